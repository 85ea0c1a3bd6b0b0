package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// maxIdempotencyKeyBytes is the maximum length of an idempotency key in bytes.
const maxIdempotencyKeyBytes = 255

// ReplayExecution starts a new execution with the body, headers and query of an execution that has
// ended or was rejected. A repeated call with the same idempotency key returns the first call's
// execution. Without a key (""), each call starts another execution. The new execution belongs to
// the workflow's current account and queue. It starts even if the workflow is inactive or its plan
// would refuse it.
func (s *Service) ReplayExecution(
	ctx context.Context, caller Caller, id, key string,
) (api.Started, error) {
	r := newAccessRule("ReplayExecution", accessToExecution(id))
	return runChange(ctx, s, caller, r, 2*readTimeout, func(
		ctx context.Context,
	) (none api.Started, err error) {
		if err := checkIdempotencyKey(key); err != nil {
			return none, err
		}
		record, err := s.record(ctx, id)
		if err != nil {
			return none, err
		}
		if !record.Status.Final() {
			return none, &Error{
				Code: api.CodeNotFinished,
				Detail: fmt.Sprintf("The execution is %s. It can be replayed when it has ended.",
					record.Status),
			}
		}
		as := execution.IDForReplay(record.ID, key)
		if key == "" {
			fresh, err := uuid.NewV7()
			if err != nil {
				return none, fmt.Errorf("make an execution ID: %w", err)
			}
			as = fresh.String()
		} else if _, err := s.config.Store.Get(ctx, as); !errors.Is(err, store.ErrNotFound) {
			// Also query the database, because the stream recognizes duplicates only within the
			// deduplication window.
			return api.Started{ExecutionID: as}, err
		}
		err = s.restartExecution(ctx, caller, record, execution.Start{ID: as, ReplayOf: record.ID},
			s.triggerOf)
		return api.Started{ExecutionID: as}, err
	})
}

// checkIdempotencyKey returns an error for an idempotency key that is too long.
func checkIdempotencyKey(key string) error {
	if len(key) > maxIdempotencyKeyBytes {
		return &edit.InvalidFieldError{
			Field:   "Idempotency-Key",
			Problem: fmt.Sprintf("must have at most %d bytes", maxIdempotencyKeyBytes),
		}
	}
	return nil
}

// defaultBulkIdempotencyKey is the idempotency key of bulk replays whose callers set none. Because
// these replays share the key, they replay each execution only once.
const defaultBulkIdempotencyKey = "all"

// ReplayRejected replays at most Config.MaxBulkItems rejected executions, oldest first. It skips
// executions that an earlier call with the same key has replayed, so an interrupted call can be
// repeated. The result counts the executions that cannot be replayed, by error code.
func (s *Service) ReplayRejected(
	ctx context.Context, caller Caller, filter ExecutionFilter, key string,
) (api.Replayed, error) {
	return runChange(ctx, s, caller,
		newAccessRule("ReplayRejected", narrowToCallerAccount(&filter.AccountID)), bulkTimeout,
		func(ctx context.Context) (none api.Replayed, err error) {
			if err := checkIdempotencyKey(key); err != nil {
				return none, err
			}
			if key == "" {
				key = defaultBulkIdempotencyKey
			}
			filter.Status = execution.Rejected
			b := s.newBulkRestart(caller, func(record store.Record) execution.Start {
				return execution.Start{
					ID:       execution.IDForReplay(record.ID, key),
					ReplayOf: record.ID,
				}
			})
			err = b.restartMatching(ctx, filter)
			return api.Replayed{
					Replayed: b.restartedCount,
					Left:     b.skippedCounts(),
					More:     b.mayHaveMore,
				},
				err
		})
}

// restartExecution copies the request of the execution in record into start, and publishes start.
// The ID of the new execution, start.ID, is also the message ID, so that a repeated call with the
// same ID starts nothing.
func (s *Service) restartExecution(
	ctx context.Context, caller Caller, record store.Record, start execution.Start,
	triggerOf triggerFinder,
) error {
	trigger, err := s.prepareRestart(ctx, caller, record, &start, triggerOf)
	if err != nil {
		return err
	}
	_, err = s.publishStart(ctx, trigger, start, true)
	return err
}

// prepareRestart copies another execution's request into a start message, and returns the trigger
// node at which to start it.
func (s *Service) prepareRestart(
	ctx context.Context, caller Caller, record store.Record, start *execution.Start,
	triggerOf triggerFinder,
) (*edit.TriggerInfo, error) {
	original, err := s.readStoredRequest(ctx, record)
	switch {
	case err != nil:
		return nil, err
	case original.expired():
		return nil, &Error{Code: api.CodeInputExpired}
	case original.payload.Kind == execution.BodyNone:
		return nil, &Error{Code: api.CodeBodyNotKept}
	}
	trigger, err := triggerOf(ctx, caller, record.WorkflowID, record.NodeID)
	if err != nil {
		return nil, err
	}
	start.Payload, start.Headers, start.Query = original.payload, original.headers, original.query
	// The sender was verified when the request arrived, and is not verified again.
	start.Sender, start.Verified = original.senderPreset, original.verified
	start.OrderKey = original.orderKey
	return trigger, nil
}

// triggerFinder looks up the trigger node of an execution to be restarted.
type triggerFinder func(ctx context.Context, caller Caller,
	workflowID, nodeID string) (*edit.TriggerInfo, error)

// bulkTimeout is the maximum duration of a bulk call. If the call cannot finish in this time, a
// repeated call does the rest. No batch begins within the last lastBatchTimeReserve of this time,
// so that the last batch can finish.
const (
	bulkTimeout          = 45 * time.Second
	lastBatchTimeReserve = 15 * time.Second
)
