package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// RequeueExecution requeues a dead letter or a canceled execution. It records a message that was
// put aside, if the database accepts the message now. It restarts an execution with its original
// request, but only once: the new ID is derived from the original's, and is also the message ID.
// Repeated and concurrent calls, and a call after a crash between publishing and marking, therefore
// return the same execution.
func (s *Service) RequeueExecution(
	ctx context.Context, caller Caller, id string,
) (api.Started, error) {
	r := newRule("RequeueExecution", accessToDeadLetter(id))
	return change(ctx, s, caller, r, 2*readTimeout, func(
		ctx context.Context,
	) (none api.Started, err error) {
		if key, isMessage := parseMessageKey(id); isMessage {
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
		// The stream keeps message IDs only for the deduplication window; the database keeps them
		// longer.
		_, err = s.config.Store.Get(ctx, as)
		if errors.Is(err, store.ErrNotFound) {
			err = s.restartExecution(ctx, caller, record,
				execution.Start{ID: as, RerunOf: record.ID},
				s.triggerOf)
		}
		if err != nil {
			return none, err
		}
		marked, err := s.config.Store.MarkRequeued(ctx, []store.Requeue{{ID: record.ID, As: as}})
		if err != nil {
			return none, err
		}
		// A watcher that misses this notification sees the change at its next query.
		_ = s.config.Changes.Publish(marked)
		return api.Started{ExecutionID: as}, nil
	})
}
