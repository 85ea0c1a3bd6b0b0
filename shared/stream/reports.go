package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// ReportsName is the name of the internal stream through which ingresses send their counts to the
// executors.
const ReportsName = "REPORTS"

// ReportsSubjects is the wildcard subject that selects the messages of the REPORTS stream.
const ReportsSubjects = "reports.>"

// DuplicatesSubject is the subject of the reports that count suppressed repeats of deliveries.
const DuplicatesSubject = "reports.duplicates"

// EnsureReportsStream creates the REPORTS stream if it does not exist.
func EnsureReportsStream(ctx context.Context, js jetstream.JetStream, replicas int) error {
	_, err := js.Stream(ctx, ReportsName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, reportsStreamConfig(replicas))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil // another executor has created it
		}
	}
	return err
}

// reportsStreamConfig returns the configuration of the REPORTS stream.
func reportsStreamConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        ReportsName,
		Description: "hookstart: what ingresses counted, on its way to the executors",
		Subjects:    []string{ReportsSubjects},
		Retention:   jetstream.LimitsPolicy,
		// Counts are less important than start messages: if no executor consumes them, the oldest
		// are dropped first.
		Discard:    jetstream.DiscardOld,
		Storage:    jetstream.FileStorage,
		Replicas:   replicas,
		MaxAge:     24 * time.Hour,
		MaxBytes:   64 << 20,
		Duplicates: time.Hour,
	}
}

// DuplicatesMessage encodes a report on suppressed repeats made at the given time. counts holds the
// number of repeats, keyed by execution ID. Resending the message is safe: its ID ensures that the
// report is applied only once.
func DuplicatesMessage(reportID string, at time.Time, counts map[string]int64) (*nats.Msg, error) {
	report := &hookstartv1.DuplicateReport{ReportId: reportID, At: timestamppb.New(at)}
	for id, count := range counts {
		report.Counts = append(report.Counts, &hookstartv1.DuplicateCount{
			ExecutionId: id,
			Count:       count,
		})
	}
	return reportMessage(DuplicatesSubject, reportID, report)
}

// DecodeDuplicates decodes the data of a report on suppressed repeats, and skips counts that are
// not valid. Its errors wrap ErrUnreadable.
func DecodeDuplicates(
	data []byte,
) (reportID string, at time.Time, counts map[string]int64, err error) {
	var report hookstartv1.DuplicateReport
	if err := proto.Unmarshal(data, &report); err != nil {
		return "", time.Time{}, nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if report.GetReportId() == "" {
		return "", time.Time{}, nil, fmt.Errorf("%w: the report has no ID", ErrUnreadable)
	}
	counts = map[string]int64{}
	for _, c := range report.GetCounts() {
		if isUUID(c.GetExecutionId()) && c.GetCount() > 0 {
			counts[c.GetExecutionId()] += c.GetCount()
		}
	}
	return report.GetReportId(), timeFromWire(report.GetAt()), counts, nil
}
