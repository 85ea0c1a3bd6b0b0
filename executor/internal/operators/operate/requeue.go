package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// RequeueExecution requeues a dead letter or a canceled execution. If the dead letter is a message
// that was put aside, it records the message, provided that the database accepts it now. Otherwise,
// it restarts the execution with its original request, but only once: the new ID is derived from
// the original's, and is also the message ID. Repeated and concurrent calls therefore return the
// same execution, even after a crash in the middle of a call.
func (s *Service) RequeueExecution(
	ctx context.Context, caller Caller, id string,
) (api.Started, error) {
	r := newAccessRule("RequeueExecution", accessToDeadLetter(id))
	return runChange(ctx, s, caller, r, 2*readTimeout, func(
		ctx context.Context,
	) (none api.Started, err error) {
		if key, isMessage := parseMessageDeadLetterID(id); isMessage {
			started, _, err := s.recoverMessage(ctx, id, key)
			return started, err
		}
		record, err := s.record(ctx, id)
		if err != nil {
			return none, err
		}
		if record.Status != execution.Failed && record.Status != execution.Canceled {
			return none, &Error{
				Code: api.CodeNotFailed,
				Detail: fmt.Sprintf("The execution is %s. Only one that has failed, or was "+
					"canceled, can be requeued.", record.Status),
			}
		}
		if record.RequeuedAs != "" {
			return api.Started{ExecutionID: record.RequeuedAs}, nil
		}
		as := execution.IDForRequeue(record.ID)
		// Ask the database whether the new execution already exists, because the stream recognizes
		// duplicates only within the deduplication window.
		_, err = s.config.Store.Get(ctx, as)
		if errors.Is(err, store.ErrNotFound) {
			err = s.restartExecution(ctx, caller, record,
				execution.Start{ID: as, RerunOf: record.ID},
				s.triggerOf)
		}
		if err != nil {
			return none, err
		}
		marked, err := s.config.Store.MarkRequeued(ctx,
			[]store.Requeue{{ID: record.ID, ReplacementID: as}})
		if err != nil {
			return none, err
		}
		// Ignore the error: a watcher that misses this notification sees the change at its next
		// query.
		_ = s.config.Changes.Publish(marked)
		return api.Started{ExecutionID: as}, nil
	})
}
