package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/queues"
	"github.com/hookstart/hookstart/executor/internal/operators/queuestreams"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
)

// moveTimeout is the maximum duration of a call that moves a queue or a workflow. If the move of a
// queue takes longer, it continues, and a repeated call waits for it. The move of a workflow stops,
// and a repeated call continues it.
const moveTimeout = 50 * time.Second

// SetQueueStream gives a queue its own stream, or changes the stream's settings. It returns when
// the move is complete. It is idempotent.
func (s *Service) SetQueueStream(
	ctx context.Context, caller Caller, name string, put api.PutQueueStream,
) (api.Queue, error) {
	return s.moveQueue(ctx, caller, "SetQueueStream", name, func(ctx context.Context) error {
		return s.config.StreamMover.MoveToOwnStream(ctx, name, edit.QueueStreamSpec{
			MaxBytes: put.MaxBytes, MaxAge: time.Duration(put.MaxAgeSeconds) * time.Second,
			Replicas: put.Replicas, PlacementTags: put.PlacementTags,
		})
	})
}

// MoveQueueToSharedStream moves a queue back to the shared stream. It returns when the move is
// complete. It is idempotent. Executions that still wait in the queue's own stream are delivered
// from there.
func (s *Service) MoveQueueToSharedStream(ctx context.Context, caller Caller, name string) error {
	_, err := s.moveQueue(
		ctx,
		caller,
		"MoveQueueToSharedStream",
		name,
		func(ctx context.Context) error {
			return s.config.StreamMover.MoveToShared(ctx, name)
		},
	)
	return err
}

func (s *Service) moveQueue(
	ctx context.Context, caller Caller, operation, name string, move func(context.Context) error,
) (api.Queue, error) {
	return runChange(ctx, s, caller, newAccessRule(operation, accessToQueue(name)), moveTimeout,
		func(ctx context.Context) (none api.Queue, err error) {
			err = move(ctx)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
				return none,
					&Error{Code: api.CodeNotConfirmed, Cause: err, Detail: "The queue is " +
						"still moving. Repeat the change: that is safe, and waits again."}
			}
			if err != nil {
				return none, err
			}
			moved, err := s.pollMovedQueue(ctx, name)
			if err != nil {
				return none, err
			}
			return s.apiQueue(moved, s.queuesUsedByOthers(caller)[name]), nil
		})
}

// pollMovedQueue returns the state of a queue that has just moved. It waits briefly for the new
// stream to respond. If the stream does not respond, pollMovedQueue returns an incomplete state
// instead of an error, because the move itself is complete.
func (s *Service) pollMovedQueue(ctx context.Context, name string) (none queues.Queue, err error) {
	for n := 0; ; n++ {
		all, err := s.config.Queues.Poll(ctx)
		if isNATSUnavailable(err) && retry.SleepBackoff(ctx, n) == nil {
			continue
		}
		if err != nil {
			return none, err
		}
		i := slices.IndexFunc(all, func(q queues.Queue) bool { return q.Name == name })
		if i < 0 {
			settings := &registry.Queue{Name: name}
			if q, ok := s.config.RegistryIndex.Queue(name); ok {
				settings = q.Record
			}
			return unusedQueue(settings), nil
		}
		if !all[i].Incomplete || n >= 10 {
			return all[i], nil
		}
		retry.Sleep(ctx, retry.Backoff(n))
	}
}

// apiQueueStream returns the settings of a queue's own stream, or nil if it has none.
func (s *Service) apiQueueStream(name string) *api.QueueStream {
	q, ok := s.config.RegistryIndex.Queue(name)
	if !ok || q.Record.Stream == nil {
		return nil
	}
	own := q.Record.Stream
	return &api.QueueStream{
		Phase:         own.Phase.String(),
		MaxBytes:      own.MaxBytes,
		MaxAgeSeconds: int64(own.MaxAge / time.Second),
		Replicas:      own.Replicas,
		PlacementTags: own.PlacementTags,
	}
}

// changeWorkflow is like Editor.ChangeWorkflow, but it also supports a change to a queue whose
// start messages are in a different stream.
func (s *Service) changeWorkflow(
	ctx context.Context, id string, modify func(*edit.WorkflowSpec) error,
) (w *registry.Workflow, err error) {
	err = s.storeWithWorkflowMove(ctx, func(ctx context.Context) (err error) {
		w, err = s.config.Editor.ChangeWorkflow(ctx, id, modify)
		return err
	})
	return w, err
}

// storeWithWorkflowMove calls store, which changes a workflow. If the change assigns the workflow
// to a queue whose start messages are in a different stream, storeWithWorkflowMove first copies the
// workflow's delivery IDs to that stream, and then calls store again. Such a change may take up to
// moveTimeout, although ctx ends after ChangeTimeout.
func (s *Service) storeWithWorkflowMove(
	ctx context.Context, store func(context.Context) error,
) error {
	err := store(ctx)
	if move, ok := errors.AsType[*edit.CrossStreamQueueChangeError](err); ok &&
		s.config.StreamMover != nil {
		moving, cancel := context.WithTimeout(context.WithoutCancel(ctx),
			moveTimeout-s.config.ChangeTimeout)
		defer cancel()
		err = s.config.StreamMover.MoveWorkflow(moving, move, store)
		if _, ok := errors.AsType[*edit.CrossStreamQueueChangeError](err); ok {
			return &Error{
				Code: api.CodeQueueMoves, Cause: err, Detail: "Another call changed the workflow " +
					"while this one copied its delivery IDs to the stream of the new queue, so " +
					"this one has not changed it. Repeat the call: that is safe.",
			}
		}
	}
	switch {
	case errors.Is(err, queuestreams.ErrCopyUnfinished) && s.config.JetStream.Conn().IsConnected():
		return &Error{
			Code: api.CodeNotConfirmed, Cause: err, Detail: "The workflow has not changed its " +
				"queue yet: its delivery IDs are still being copied to the stream of the new " +
				"queue. Repeat the change: that is safe, and goes on with the copying.",
		}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return err
}
