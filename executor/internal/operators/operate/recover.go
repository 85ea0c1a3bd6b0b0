package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/fromstream"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// recoverMessage records a message that was put aside, under the execution ID that its sender
// received, and removes it from the dead letters. It starts nothing, because runners receive the
// message from the stream in any case. It is idempotent; recovered reports whether this call
// recorded the message.
func (s *Service) recoverMessage(
	ctx context.Context, id string, key store.MessageKey,
) (none api.Started, recovered bool, err error) {
	if key.StreamSequence == 0 {
		return none, false, notFoundError("dead letter", id, "")
	}
	aside, err := s.config.Store.GetAside(ctx, key)
	known := err == nil
	if !known && !errors.Is(err, store.ErrNotFound) {
		return none, false, err
	}
	msg, err := s.readAsideMessage(ctx, key, aside.Subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound) && known:
		return none, false, &Error{Code: api.CodeInputExpired}
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return none, false, notFoundError("dead letter", id, "")
	case err != nil:
		return none, false, fmt.Errorf("read message %d: %w", key.StreamSequence, err)
	}
	batch, err := fromstream.RecoveryBatch(msg, time.Now())
	if errors.Is(err, stream.ErrUnreadable) && known {
		return none, false, &Error{Code: api.CodeUndecodable, Cause: err}
	}
	if err != nil {
		return none, false, notFoundError("dead letter", id, "")
	}
	var record store.Record
	if len(batch.NewRecords) > 0 {
		record = batch.NewRecords[0]
	} else {
		record.ID = batch.Progress[0].ID
	}
	executionID := record.ID
	if !known || len(batch.Progress) > 0 {
		// In two cases, the execution must already have a record. If the message is no dead letter,
		// only that record shows that an earlier call has recorded the message. If the message is a
		// report, it can only be added to an existing record.
		if record, err = s.record(ctx, executionID); err != nil || !known {
			return api.Started{ExecutionID: executionID}, false, err
		}
	}
	batch.Audit = append(batch.Audit,
		audit.NewRequeueEntry(id, aside.At, time.Now(), edit.ActorOf(ctx), record))
	applied, err := s.config.Store.Apply(ctx, batch)
	if store.IsDataError(err) {
		return none, false, &Error{
			Code:   api.CodeRefused,
			Detail: "The database still refuses it: " + err.Error(),
			Cause:  err,
		}
	}
	if err != nil {
		return none, false, err
	}
	if len(batch.NewRecords) > 0 && s.config.OnRecordedLate != nil {
		s.config.OnRecordedLate(record.AcceptedAt)
	}
	// Ignore the error: a watcher that misses this notification sees the change at its next query.
	_ = s.config.Changes.Publish(applied.ChangedIDs)
	return api.Started{ExecutionID: executionID}, len(applied.ChangedIDs) > 0, nil
}

// readAsideMessage reads a message that was put aside. subject is the message's subject, or empty
// if unknown. If the stream has no message or a different one at that sequence, readAsideMessage
// fails with jetstream.ErrMsgNotFound.
func (s *Service) readAsideMessage(
	ctx context.Context, key store.MessageKey, subject string,
) (*jetstream.RawStreamMsg, error) {
	at := stream.Layout{Own: key.Queue != ""}
	name := at.StreamName(key.Queue)
	if key.Progress {
		name = at.ProgressStreamName(key.Queue)
	}
	from, err := s.config.JetStream.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && key.Queue != "" {
		return nil, jetstream.ErrMsgNotFound // the queue's own stream was deleted
	}
	if err != nil {
		return nil, err
	}
	msg, err := from.GetMsg(ctx, key.StreamSequence)
	if err == nil && subject != "" && store.StoredSubject(msg.Subject) != subject {
		return nil, jetstream.ErrMsgNotFound
	}
	return msg, err
}
