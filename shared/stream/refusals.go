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

// RefusalsSubject is the subject of the reports that count refused requests.
const RefusalsSubject = "reports.refusals"

// RefusalCount counts the requests for one workflow that were refused with the same code within one
// minute.
type RefusalCount struct {
	// WorkflowID is "" if there is no such workflow, or if the ingress has reached its maximum
	// number of separate counters.
	WorkflowID string
	Code       string
	Minute     time.Time // the beginning of the minute
	Count      int64
	Last       RefusedRequest // the most recent of these requests
}

// RefusedRequest is the stored part of a refused request.
type RefusedRequest struct {
	At        time.Time // when the request was refused
	BodyBytes int64     // declared length in bytes; -1 if none was declared
	UserAgent string    // printable ASCII, at most MaxUserAgentBytes bytes, without a token
}

// MaxUserAgentBytes is the maximum number of bytes of a User-Agent header that are stored.
const MaxUserAgentBytes = 120

// RefusalsMessage encodes a report on refused requests made at the given time. Resending the
// message is safe: its ID ensures that the report is applied only once. counts should have at most
// 2,000 elements, which fit into NATS's default max_payload of 1 MB.
func RefusalsMessage(reportID string, at time.Time, counts []RefusalCount) (*nats.Msg, error) {
	report := &hookstartv1.RefusalReport{ReportId: reportID, At: timestamppb.New(at)}
	for _, c := range counts {
		report.Counts = append(report.Counts, &hookstartv1.RefusalCount{
			WorkflowId: c.WorkflowID,
			Code:       c.Code,
			Minute:     timestamppb.New(c.Minute),
			Count:      c.Count,
			Last: &hookstartv1.RefusedRequest{
				At:        timestamppb.New(c.Last.At),
				BodyBytes: c.Last.BodyBytes,
				UserAgent: c.Last.UserAgent,
			},
		})
	}
	return reportMessage(RefusalsSubject, reportID, report)
}

// DecodeRefusals decodes the data of a report on refused requests, and skips counts that are not
// valid. Its errors wrap ErrUnreadable.
func DecodeRefusals(data []byte) (reportID string, at time.Time, counts []RefusalCount, err error) {
	var report hookstartv1.RefusalReport
	if err := proto.Unmarshal(data, &report); err != nil {
		return "", time.Time{}, nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if report.GetReportId() == "" {
		return "", time.Time{}, nil, fmt.Errorf("%w: the report has no ID", ErrUnreadable)
	}
	for _, c := range report.GetCounts() {
		if c.GetCount() <= 0 || !validCode(c.GetCode()) ||
			(c.GetWorkflowId() != "" && !execution.ValidName(c.GetWorkflowId())) {
			continue
		}
		counts = append(counts, RefusalCount{
			WorkflowID: c.GetWorkflowId(),
			Code:       c.GetCode(),
			Minute:     timeFromWire(c.GetMinute()).Truncate(time.Minute),
			Count:      c.GetCount(),
			Last: RefusedRequest{
				At:        timeFromWire(c.GetLast().GetAt()),
				BodyBytes: max(-1, c.GetLast().GetBodyBytes()),
				UserAgent: SanitizeUserAgent(c.GetLast().GetUserAgent()),
			},
		})
	}
	return report.GetReportId(), timeFromWire(report.GetAt()), counts, nil
}

func validCode(code string) bool {
	return code != "" && len(code) <= 64 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// SanitizeUserAgent truncates a User-Agent header to the length that is stored, and replaces every
// byte that is not printable ASCII with a question mark.
func SanitizeUserAgent(text string) string {
	kept := []byte(text[:min(len(text), MaxUserAgentBytes)])
	for i, c := range kept {
		if c < ' ' || c > '~' {
			kept[i] = '?'
		}
	}
	return string(kept)
}

// reportMessage returns a message for the REPORTS stream. Its Nats-Msg-Id is reportID, so the
// stream recognizes a repeat.
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
