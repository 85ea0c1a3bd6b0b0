package stream

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// RefusalsSubject is where the counts of refused requests travel.
const RefusalsSubject = "reports.refusals"

// RefusalCount is how often requests to one workflow were refused with one code, within
// one minute.
type RefusalCount struct {
	WorkflowID string // "": there is none with that ID, or more were called than an ingress counts
	Code       string
	Minute     time.Time // its beginning
	Count      int64
	Last       RefusedRequest
}

// RefusedRequest is what is kept of a request that was refused.
type RefusedRequest struct {
	At        time.Time
	BodyBytes int64  // as declared; -1: it was not
	UserAgent string // printable ASCII, at most MaxUserAgent bytes, without a token
}

// MaxUserAgent is how much is kept of what a request says sent it.
const MaxUserAgent = 120

// RefusalsMessage is the message for a report. Sent again, it counts once. 2,000 counts
// fit into the 1 MB that NATS takes.
func RefusalsMessage(reportID string, at time.Time, counts []RefusalCount) (*nats.Msg, error) {
	report := &hookstartv1.RefusalReport{ReportId: reportID, At: timestamppb.New(at)}
	for _, c := range counts {
		report.Counts = append(report.Counts, &hookstartv1.RefusalCount{
			WorkflowId: c.WorkflowID, Code: c.Code, Minute: timestamppb.New(c.Minute), Count: c.Count,
			Last: &hookstartv1.RefusedRequest{At: timestamppb.New(c.Last.At), BodyBytes: c.Last.BodyBytes, UserAgent: c.Last.UserAgent},
		})
	}
	return reportMessage(RefusalsSubject, reportID, report)
}

// DecodeRefusals reads a report. Counts that cannot be are left out. All its errors are
// ErrUnreadable.
func DecodeRefusals(data []byte) (reportID string, at time.Time, counts []RefusalCount, err error) {
	var report hookstartv1.RefusalReport
	if err := proto.Unmarshal(data, &report); err != nil {
		return "", time.Time{}, nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if report.GetReportId() == "" {
		return "", time.Time{}, nil, fmt.Errorf("%w: the report has no ID", ErrUnreadable)
	}
	for _, c := range report.GetCounts() {
		if c.GetCount() <= 0 || !validCode(c.GetCode()) || (c.GetWorkflowId() != "" && !execution.ValidName(c.GetWorkflowId())) {
			continue
		}
		counts = append(counts, RefusalCount{
			WorkflowID: c.GetWorkflowId(), Code: c.GetCode(), Minute: timeFromWire(c.GetMinute()).Truncate(time.Minute), Count: c.GetCount(),
			Last: RefusedRequest{At: timeFromWire(c.GetLast().GetAt()), BodyBytes: max(-1, c.GetLast().GetBodyBytes()), UserAgent: UserAgent(c.GetLast().GetUserAgent())},
		})
	}
	return report.GetReportId(), timeFromWire(report.GetAt()), counts, nil
}

func validCode(code string) bool {
	return code != "" && len(code) <= 64 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// UserAgent is as much of what a request says sent it as is kept: printable ASCII.
func UserAgent(text string) string {
	kept := []byte(text[:min(len(text), MaxUserAgent)])
	for i, c := range kept {
		if c < ' ' || c > '~' {
			kept[i] = '?'
		}
	}
	return string(kept)
}

// reportMessage is a message of the reports' stream.
func reportMessage(subject, reportID string, report proto.Message) (*nats.Msg, error) {
	data, err := proto.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("encode a report: %w", err)
	}
	return &nats.Msg{
		Subject: subject,
		Header:  nats.Header{jetstream.MsgIDHeader: {reportID}, "Content-Type": {contentType}},
		Data:    data,
	}, nil
}
