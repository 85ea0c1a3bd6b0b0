package stream

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
)

// SendersSubject is the subject of the ingresses' reports about senders.
const SendersSubject = "reports.senders"

// SenderActivity describes the activity of one node's sender since the last report.
type SenderActivity struct {
	WorkflowID, NodeID string
	Preset             string // the preset in use; "" means that the node had no sender

	VerifiedAt  time.Time // when a request was last verified; zero means never
	HandshakeAt time.Time // when the last handshake took place; zero means never

	// RefusedAt is when a request was last refused because of its signature. The zero time means
	// that there was no such request.
	RefusedAt     time.Time
	RefusedCode   string // code of that refusal
	RefusedReason string // why it was refused, in words; at most MaxRefusedReasonBytes bytes

	Deliveries int64 // number of deliveries that were stored
	WithoutID  int64 // number of stored deliveries that had no delivery ID
	Refused    int64 // number of requests that were refused because of their signature

	Captured []byte // an encrypted secret received from the provider; empty means none
}

// MaxRefusedReasonBytes is the maximum length of SenderActivity.RefusedReason in bytes.
const MaxRefusedReasonBytes = 200

// SendersMessage encodes a report on senders made at the given time. Resending the message is safe:
// its ID ensures that the report is applied only once. seen should have at most 1,000 elements,
// which fit into NATS's default max_payload of 1 MB.
func SendersMessage(reportID string, at time.Time, seen []SenderActivity) (*nats.Msg, error) {
	report := &hookstartv1.SenderReport{ReportId: reportID, At: timestamppb.New(at)}
	for i := range seen {
		s := &seen[i]
		report.Seen = append(report.Seen, &hookstartv1.SenderSeen{
			WorkflowId:    s.WorkflowID,
			NodeId:        s.NodeID,
			Preset:        s.Preset,
			VerifiedAt:    timeToWire(s.VerifiedAt),
			HandshakeAt:   timeToWire(s.HandshakeAt),
			RefusedAt:     timeToWire(s.RefusedAt),
			RefusedCode:   s.RefusedCode,
			RefusedReason: truncateReason(s.RefusedReason),
			Deliveries:    s.Deliveries,
			WithoutId:     s.WithoutID,
			Refused:       s.Refused,
			Captured:      s.Captured,
		})
	}
	return reportMessage(SendersSubject, reportID, report)
}

// truncateReason truncates a reason to MaxRefusedReasonBytes bytes of valid UTF-8.
func truncateReason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxRefusedReasonBytes)], "")
}

// timeToWire encodes a time. It returns nil for the zero time.
func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// DecodeSenders decodes the data of a report on senders, and skips entries that are not valid. Its
// errors wrap ErrUnreadable.
func DecodeSenders(
	data []byte,
) (reportID string, at time.Time, seen []SenderActivity, err error) {
	var report hookstartv1.SenderReport
	if err := proto.Unmarshal(data, &report); err != nil {
		return "", time.Time{}, nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if report.GetReportId() == "" {
		return "", time.Time{}, nil, fmt.Errorf("%w: the report has no ID", ErrUnreadable)
	}
	for _, s := range report.GetSeen() {
		if !execution.ValidName(s.GetWorkflowId()) || !execution.ValidName(s.GetNodeId()) {
			continue
		}
		code := s.GetRefusedCode()
		if !validCode(code) {
			code = ""
		}
		seen = append(seen, SenderActivity{
			WorkflowID:    s.GetWorkflowId(),
			NodeID:        s.GetNodeId(),
			Preset:        s.GetPreset(),
			VerifiedAt:    timeFromWire(s.GetVerifiedAt()),
			HandshakeAt:   timeFromWire(s.GetHandshakeAt()),
			RefusedAt:     timeFromWire(s.GetRefusedAt()),
			RefusedCode:   code,
			RefusedReason: truncateReason(s.GetRefusedReason()),
			Deliveries:    max(0, s.GetDeliveries()),
			WithoutID:     max(0, s.GetWithoutId()),
			Refused:       max(0, s.GetRefused()),
			Captured:      s.GetCaptured(),
		})
	}
	return report.GetReportId(), timeFromWire(report.GetAt()), seen, nil
}
