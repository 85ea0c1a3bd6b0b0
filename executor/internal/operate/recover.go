package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/recorder"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/stream"
)

// recoverMessage records a message that was put aside, under the execution ID that its sender was
// told, and takes it off the dead letters. Nothing is started: the message was never withheld
// from the runners. Asked for again, it changes nothing and answers the same.
func (s *Service) recoverMessage(ctx context.Context, id, number string) (none api.Started, err error) {
	sequence, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return none, notFound("dead letter", id, "")
	}
	aside, err := s.config.Store.GetUnreadable(ctx, sequence)
	known := err == nil
	if !known && !errors.Is(err, store.ErrNotFound) {
		return none, s.databaseError(ctx, err)
	}
	from, err := s.executionsStream(ctx)
	if err != nil {
		return none, err
	}
	msg, err := from.GetMsg(ctx, sequence)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound) && !known:
		return none, notFound("dead letter", id, "")
	case errors.Is(err, jetstream.ErrMsgNotFound), err == nil && known && store.Text(msg.Subject) != aside.Subject:
		// No message, or another one: the stream was made anew.
		return none, &Error{Code: api.CodeInputExpired}
	case err != nil:
		return none, fmt.Errorf("read message %d: %w", sequence, err)
	}
	batch, err := recorder.Recovering(msg, time.Now())
	if errors.Is(err, stream.ErrUnreadable) && known {
		return none, &Error{Code: api.CodeUndecodable, Cause: err}
	}
	if err != nil {
		return none, notFound("dead letter", id, "")
	}
	var executionID string
	if len(batch.New) > 0 {
		executionID = batch.New[0].ID
	} else {
		executionID = batch.Progress[0].ID
	}
	if !known || len(batch.Progress) > 0 {
		// What is no dead letter any more was recorded; and progress needs its execution.
		if _, err := s.record(ctx, executionID); err != nil || !known {
			return api.Started{ExecutionID: executionID}, err
		}
	}
	applied, err := s.config.Store.Apply(ctx, batch)
	if store.IsDataError(err) {
		return none, &Error{Code: api.CodeRefused, Detail: "The database still refuses it: " + err.Error(), Cause: err}
	}
	if err != nil {
		return none, s.databaseError(ctx, err)
	}
	_ = s.config.Changes.Tell(applied.Changed) // watchers who miss it see it when they look
	return api.Started{ExecutionID: executionID}, nil
}
