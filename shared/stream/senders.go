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

// SendersSubject is the subject of what ingresses saw of senders.
const SendersSubject = "reports.senders"

// SenderSeen is what was seen of one node's sender since the last report.
type SenderSeen struct {
	WorkflowID, NodeID string
	Preset             string // that was in force; "": not known

	VerifiedAt  time.Time // of the last verified request; zero: none
	HandshakeAt time.Time // of the last handshake; zero: none

	RefusedAt     time.Time // of the last request that was refused by its signature; zero: none
	RefusedCode   string    // its code
	RefusedReason string    // why, in words; at most MaxReason bytes

	Deliveries int64 // that were stored
	WithoutID  int64 // of them, without a delivery ID
	Refused    int64 // by their signature

	Captured []byte // a secret that the provider brought, sealed; empty: none
}

// MaxReason is how many bytes of a refusal's reason are kept.
const MaxReason = 200

// SendersMessage encodes a report. It may be sent again; it is applied once. 1,000 entries fit into
// NATS's default max_payload of 1 MB.
func SendersMessage(reportID string, at time.Time, seen []SenderSeen) (*nats.Msg, error) {
	report := &hookstartv1.SenderReport{ReportId: reportID, At: timestamppb.New(at)}
	for i := range seen {
		s := &seen[i]
		report.Seen = append(report.Seen, &hookstartv1.SenderSeen{
			WorkflowId: s.WorkflowID, NodeId: s.NodeID, Preset: s.Preset,
			VerifiedAt: timeToWire(s.VerifiedAt), HandshakeAt: timeToWire(s.HandshakeAt), RefusedAt: timeToWire(s.RefusedAt),
			RefusedCode: s.RefusedCode, RefusedReason: reason(s.RefusedReason),
			Deliveries: s.Deliveries, WithoutId: s.WithoutID, Refused: s.Refused, Captured: s.Captured,
		})
	}
	return reportMessage(SendersSubject, reportID, report)
}

func reason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxReason)], "")
}

// timeToWire leaves the zero time out.
func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// DecodeSenders decodes a report. It skips invalid entries. All its errors wrap ErrUnreadable.
func DecodeSenders(data []byte) (reportID string, at time.Time, seen []SenderSeen, err error) {
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
		seen = append(seen, SenderSeen{
			WorkflowID: s.GetWorkflowId(), NodeID: s.GetNodeId(), Preset: s.GetPreset(),
			VerifiedAt: timeFromWire(s.GetVerifiedAt()), HandshakeAt: timeFromWire(s.GetHandshakeAt()), RefusedAt: timeFromWire(s.GetRefusedAt()),
			RefusedCode: code, RefusedReason: reason(s.GetRefusedReason()),
			Deliveries: max(0, s.GetDeliveries()), WithoutID: max(0, s.GetWithoutId()), Refused: max(0, s.GetRefused()), Captured: s.GetCaptured(),
		})
	}
	return report.GetReportId(), timeFromWire(report.GetAt()), seen, nil
}
