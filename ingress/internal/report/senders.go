package report

import (
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/stream"
)

// senderReportInterval is the interval between reports on senders.
const senderReportInterval = time.Second

// maxSendersPerReport is the maximum number of nodes in a report. It bounds memory use, and keeps a
// report below the maximum size of a NATS message.
//
// Once that many nodes wait for the next report, observations about further nodes are discarded. An
// observation with a captured secret is discarded only if twice as many nodes wait, because a
// provider sends its secret only once.
const maxSendersPerReport = 1000

// maxCapturedSecretBytes is the maximum total length of the captured secrets in a report. Further
// secrets wait for the next report.
const maxCapturedSecretBytes = 256 << 10

// SenderObservation holds what one request shows about a node's sender.
type SenderObservation struct {
	VerifiedAt     time.Time // zero if the request was not verified
	HandshakeAt    time.Time // zero if the request was not a handshake
	CapturedSecret []byte    // a secret that the provider has sent, encrypted
	RefusedAt      time.Time // zero if the request was not refused because of its signature
	RefusedCode    string    // code of the refusal
	RefusedReason  string    // human-readable reason for the refusal
	DeliveryStored bool      // the delivery was stored
	WithoutID      bool      // the stored delivery had no delivery ID
}

// SenderObserver collects observations about the senders of nodes. It is safe for concurrent use.
type SenderObserver struct {
	reporter

	mu         sync.Mutex
	activities map[senderKey]*stream.SenderActivity
}

// senderKey identifies the sender of a node. It includes the preset, so that a sender and its
// replacement are observed separately.
type senderKey struct{ workflowID, nodeID, preset string }

// NewSenderObserver returns a SenderObserver. It sends reports only while Run is running.
func NewSenderObserver(js jetstream.JetStream, log logrus.FieldLogger) *SenderObserver {
	s := &SenderObserver{activities: map[senderKey]*stream.SenderActivity{}}
	s.reporter = newReporter(js, log, "senders", senderReportInterval, s.drainToMessage)
	return s
}

// Observe adds the observations from one request about the sender of a node. The node must exist,
// and preset is the preset of its sender. If too many nodes already wait for the next report,
// Observe discards the observations and returns false.
func (s *SenderObserver) Observe(
	workflowID, nodeID, preset string, seen SenderObservation,
) (observed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := senderKey{workflowID, nodeID, preset}
	entry := s.activities[key]
	if entry == nil {
		most := maxSendersPerReport
		if len(seen.CapturedSecret) > 0 {
			most *= 2
		}
		if len(s.activities) >= most {
			return false
		}
		entry = &stream.SenderActivity{WorkflowID: workflowID, NodeID: nodeID, Preset: preset}
		s.activities[key] = entry
	}
	if seen.VerifiedAt.After(entry.VerifiedAt) {
		entry.VerifiedAt = seen.VerifiedAt
	}
	if seen.HandshakeAt.After(entry.HandshakeAt) {
		entry.HandshakeAt = seen.HandshakeAt
	}
	if len(entry.Captured) == 0 { // the first secret that the provider sends counts
		entry.Captured = seen.CapturedSecret
	}
	if !seen.RefusedAt.IsZero() {
		entry.Refused++
		entry.RefusedAt, entry.RefusedCode, entry.RefusedReason = seen.RefusedAt, seen.RefusedCode,
			seen.RefusedReason
	}
	if seen.DeliveryStored {
		entry.Deliveries++
	}
	if seen.WithoutID {
		entry.WithoutID++
	}
	return true
}

func (s *SenderObserver) drainToMessage() (*nats.Msg, error) {
	s.mu.Lock()
	entries := s.activities
	if len(entries) == 0 {
		s.mu.Unlock()
		return nil, nil //nolint:nilnil // nothing to say is no error
	}
	s.activities = map[senderKey]*stream.SenderActivity{}
	all := make([]stream.SenderActivity, 0, len(entries))
	captured := 0
	for key, entry := range entries {
		captured += len(entry.Captured)
		if len(all) == maxSendersPerReport ||
			captured > maxCapturedSecretBytes && captured > len(entry.Captured) {
			captured -= len(entry.Captured)
			s.activities[key] = entry // for the next report
			continue
		}
		all = append(all, *entry)
	}
	s.mu.Unlock()
	return stream.SendersMessage(uuid.NewString(), time.Now(), all)
}
