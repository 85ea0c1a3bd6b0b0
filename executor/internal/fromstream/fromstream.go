// Package fromstream converts messages of the streams to database records. The recorder uses it for
// every message that it receives, and package operate for a dead letter that an operator requeues,
// so that both store the same record for the same message.
package fromstream

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// MessagePosition is the position of a message in a stream, and the time at which the stream stored
// it.
type MessagePosition struct {
	Sequence uint64
	StoredAt time.Time // when the stream stored the message
}

// StartRecord returns the execution record for a start message. now is the time of recording, and
// bodyBytes is the length of the message's body in bytes.
func StartRecord(s *execution.Start, bodyBytes int, at MessagePosition,
	now time.Time,
) store.Record {
	return store.Record{
		ID:             s.ID,
		AccountID:      s.AccountID,
		WorkflowID:     s.WorkflowID,
		NodeID:         s.NodeID,
		Queue:          s.Queue,
		Source:         s.Source,
		Status:         execution.Queued,
		DeliveryID:     s.DeliveryID,
		RerunOf:        s.RerunOf,
		ReplayOf:       s.ReplayOf,
		TokenID:        s.TokenID,
		Sender:         s.Sender,
		Verified:       s.Verified,
		AcceptedAt:     messageTimeOrStored(s.AcceptedAt, at.StoredAt),
		RecordedAt:     now,
		ContentType:    s.Payload.ContentType,
		BodyBytes:      int64(bodyBytes),
		StreamSequence: at.Sequence,
	}
}

// AuditEntries returns a slice with the audit entry for a start message that is recorded as r. The
// slice is nil if no operator requested the start. header is the header of the message, and at is
// its position in the stream.
func AuditEntries(header nats.Header, r store.Record, at MessagePosition) []store.AuditEntry {
	entry, audited := audit.NewStartEntry(header, r, store.StoredTime(at.StoredAt))
	if !audited {
		return nil
	}
	return []store.AuditEntry{entry}
}

// RejectionRecord returns the execution record for a request that was rejected. now is the time of
// recording.
func RejectionRecord(r *execution.Rejection, at MessagePosition, now time.Time) store.Record {
	return store.Record{
		ID:             r.ID,
		AccountID:      r.AccountID,
		WorkflowID:     r.WorkflowID,
		NodeID:         r.NodeID,
		Queue:          r.Queue,
		Source:         execution.SourceWebhook,
		Status:         execution.Rejected,
		DeliveryID:     r.DeliveryID,
		TokenID:        r.TokenID,
		Sender:         r.Sender,
		Verified:       r.Verified,
		AcceptedAt:     messageTimeOrStored(r.At, at.StoredAt),
		RecordedAt:     now,
		ContentType:    r.Payload.ContentType,
		BodyBytes:      r.DeclaredSize,
		StreamSequence: at.Sequence,
		Error:          r.Code,
	}
}

// ProgressWithDefaultTime returns p, the progress in a runner's report. If the report contains no
// time, the result's time is when the stream stored the report.
func ProgressWithDefaultTime(p *execution.Progress, at MessagePosition) execution.Progress {
	result := *p
	result.At = messageTimeOrStored(p.At, at.StoredAt)
	return result
}

// messageTimeOrStored returns own, the time that a message contains. If own is zero, it returns
// stored, the time at which the stream stored the message.
func messageTimeOrStored(own, stored time.Time) time.Time {
	if own.IsZero() {
		own = stored
	}
	return store.StoredTime(own)
}

// RecoveryBatch returns the batch for msg, a message that was put aside. The batch records the
// message, and removes it from the messages that were put aside. RecoveryBatch fails with
// stream.ErrUnreadable if msg still cannot be decoded. now is the time of recording.
func RecoveryBatch(msg *jetstream.RawStreamMsg, now time.Time) (store.Batch, error) {
	event, bodyBytes, err := stream.DecodeSummary(msg.Subject, msg.Header, msg.Data)
	if err != nil {
		return store.Batch{}, err
	}
	now = store.StoredTime(now)
	at := MessagePosition{Sequence: msg.Sequence, StoredAt: msg.Time}
	batch := store.Batch{
		RecoveredAside: []store.MessageKey{MessageKeyOf(msg.Sequence, msg.Subject)},
	}
	switch {
	case event.Start != nil:
		record := StartRecord(event.Start, bodyBytes, at, now)
		batch.NewRecords, batch.Audit = []store.Record{record}, AuditEntries(msg.Header, record, at)
	case event.Rejection != nil:
		batch.NewRecords = []store.Record{RejectionRecord(event.Rejection, at, now)}
	case event.Progress != nil:
		batch.Progress = []execution.Progress{ProgressWithDefaultTime(event.Progress, at)}
	}
	return batch, nil
}

// MessageKeyOf returns the key under which a message with the given sequence and subject is put
// aside.
func MessageKeyOf(sequence uint64, subject string) store.MessageKey {
	_, queue := stream.LayoutOf(subject)
	return store.MessageKey{
		StreamSequence: sequence, Progress: stream.IsProgressSubject(subject), Queue: queue,
	}
}
