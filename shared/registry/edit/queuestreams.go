package edit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// Limits on the settings of a queue's own stream.
const (
	maxPlacementTags = 20
	maxTagLength     = 100
	maxStreamAge     = 10 * 365 * 24 * time.Hour
)

// QueueStreamSpec holds the settings of a queue's own stream that an operator can set. The zero
// value means the settings of the shared stream, but without a limit on the size.
type QueueStreamSpec struct {
	MaxBytes      int64         // size at which new messages are refused; 0 means no limit
	MaxAge        time.Duration // whole seconds; 0 means the maximum age of the shared stream
	Replicas      int64         // 0 means as many as the shared stream has
	PlacementTags []string      // tags that a server must have; empty means any server
}

// Check returns an *InvalidFieldError for the first invalid setting, or nil if all settings are
// valid.
func (s *QueueStreamSpec) Check() error {
	switch {
	case s.MaxBytes < 0:
		return &InvalidFieldError{"maxBytes", "must not be negative; 0 means no limit"}
	case s.MaxAge < 0 || s.MaxAge > maxStreamAge || s.MaxAge%time.Second != 0:
		return &InvalidFieldError{
			"maxAgeSeconds",
			fmt.Sprintf("must be 0 to %d seconds; 0 means as the shared stream",
				int64(maxStreamAge/time.Second)),
		}
	case s.Replicas != 0 && s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5:
		return &InvalidFieldError{"replicas", fmt.Sprintf("must be 1, 3 or 5, not %d", s.Replicas)}
	case len(s.PlacementTags) > maxPlacementTags:
		return &InvalidFieldError{
			"placementTags", fmt.Sprintf("must be at most %d tags", maxPlacementTags),
		}
	}
	for i, tag := range s.PlacementTags {
		if tag == "" || len(tag) > maxTagLength || strings.ContainsAny(tag, " \t\r\n") {
			return &InvalidFieldError{
				fmt.Sprintf("placementTags[%d]", i),
				fmt.Sprintf("must be 1 to %d bytes without white space", maxTagLength),
			}
		}
	}
	return nil
}

// StreamSpecOf returns the settings of s that an operator can set.
func StreamSpecOf(s *registry.QueueStream) QueueStreamSpec {
	return QueueStreamSpec{
		MaxBytes:      s.MaxBytes,
		MaxAge:        s.MaxAge,
		Replicas:      s.Replicas,
		PlacementTags: s.PlacementTags,
	}
}

// SetQueueStream sets the settings of a queue's own stream. If the queue uses the shared stream, it
// begins to move to a stream of its own. If the queue is moving back to the shared stream, it stays
// in its own stream instead. The executor's package queuestreams carries out the move.
// SetQueueStream fails with ErrIngressTooOld if a live ingress would continue to store the queue's
// messages in the shared stream.
func (e *Editor) SetQueueStream(
	ctx context.Context, name string, spec QueueStreamSpec,
) (*registry.Queue, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	return e.changeQueue(ctx, name, func(q *registry.Queue) error {
		if q.Stream == nil {
			q.Stream = &registry.QueueStream{}
		}
		if q.StoreTarget() == registry.StoreTargetShared &&
			q.Stream.Phase != registry.QueuePhaseMovingToOwn {
			if err := e.requireCapability(consistency.CapabilityOwnStreams); err != nil {
				return err
			}
		}
		switch q.Stream.Phase {
		case 0, registry.QueuePhaseDrainingOwnStream:
			q.Stream.Phase = registry.QueuePhaseMovingToOwn
		case registry.QueuePhaseMovingToShared, registry.QueuePhaseClosedMovingToShared:
			// The queue can stay in its own stream, because that stream still has all messages.
			q.Stream.Phase = registry.QueuePhaseOwnStream
		case registry.QueuePhaseMovingToOwn, registry.QueuePhaseClosedMovingToOwn,
			registry.QueuePhaseOwnStream:
		}
		q.Stream.MaxBytes, q.Stream.MaxAge, q.Stream.Replicas = spec.MaxBytes, spec.MaxAge,
			spec.Replicas
		q.Stream.PlacementTags = slices.Clone(spec.PlacementTags)
		return nil
	})
}

// BeginMoveToSharedStream begins to move a queue from its own stream back to the shared one. If the
// queue is still moving to its own stream, it stays in the shared one.
func (e *Editor) BeginMoveToSharedStream(ctx context.Context, name string) (*registry.Queue,
	error,
) {
	return e.changeQueue(ctx, name, func(q *registry.Queue) error {
		if q.Stream == nil {
			return nil
		}
		switch q.Stream.Phase {
		case registry.QueuePhaseOwnStream:
			q.Stream.Phase = registry.QueuePhaseMovingToShared
		case registry.QueuePhaseMovingToOwn, registry.QueuePhaseClosedMovingToOwn:
			q.Stream.Phase = registry.QueuePhaseDrainingOwnStream
		case registry.QueuePhaseMovingToShared, registry.QueuePhaseClosedMovingToShared,
			registry.QueuePhaseDrainingOwnStream:
		}
		return nil
	})
}

// SetStreamPhase stores the next phase of a queue's move. Phase 0 removes the queue's own stream
// from the record. SetStreamPhase fails with ErrPreconditionFailed if the record no longer has the
// given revision, because another executor or an operator has changed it. When it returns without
// an error, the phase is in force. If the phase is stored but not known to be in force, it returns
// both an error and the revision of the new record.
func (e *Editor) SetStreamPhase(
	ctx context.Context, name string, revision uint64, phase registry.StreamPhase,
) (uint64, error) {
	var is uint64
	err := e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.Queue(name)
		if !ok || have.Revision != revision || have.Record.Stream == nil {
			return 0, ErrPreconditionFailed
		}
		q := have.Record.Clone()
		if q.Stream.Phase = phase; phase == 0 {
			q.Stream = nil
		}
		var err error
		is, err = e.put(ctx, e.registry, registry.QueuePrefix+name, q, have.Revision)
		return is, err
	})
	return is, err
}

// CrossStreamQueueChangeError means that a workflow cannot change its queue in one step, because
// the two queues store their start messages in different streams. First, the workflow must be
// closed (see SetWorkflowIntakeClosed), and its delivery IDs must be copied.
type CrossStreamQueueChangeError struct{ WorkflowID, From, To string }

func (e *CrossStreamQueueChangeError) Error() string {
	return fmt.Sprintf("the starts of the queues %q and %q are in different streams", e.From, e.To)
}

// ErrQueueMoving means that a queue is moving to its own stream or back.
var ErrQueueMoving = errors.New("the queue is moving to another stream")

// ErrOrderedExecutionsWaiting means that a queue cannot move to a stream because executions with an
// order key still wait there from an earlier move. If the queue moved anyway, executions could run
// in a different order from the one in which they were accepted.
var ErrOrderedExecutionsWaiting = errors.New(
	"executions with an order key still wait in the stream to which " +
		"the queue would move",
)

// allowedQueueChangeKey is the context key of the allowedQueueChange that WithAllowedQueueChange
// sets.
type allowedQueueChangeKey struct{}

// allowedQueueChange states that all delivery IDs of a workflow have been copied to the stream of
// its new queue. change is the workflow's change of queue. revision is the revision of the
// workflow's record that closed the workflow. It was in force before the copying ended.
type allowedQueueChange struct {
	change   CrossStreamQueueChangeError
	revision uint64
}

// WithAllowedQueueChange returns a context in which a workflow may make the given change of its
// queue, which was refused with a CrossStreamQueueChangeError before. The caller must first close
// the workflow. Once the closing is in force, the caller must make sure that all of the workflow's
// delivery IDs are in the stream of the new queue. revision is the current revision of the
// workflow's record, in which the workflow is closed. It is needed because the workflow may also
// have been closed for a different change of its queue.
func WithAllowedQueueChange(
	ctx context.Context, change *CrossStreamQueueChangeError, revision uint64,
) context.Context {
	return context.WithValue(ctx, allowedQueueChangeKey{}, allowedQueueChange{*change, revision})
}

// checkWorkflowQueueChange returns an error if a workflow changes its queue but cannot do so yet:
// ErrQueueMoving if one of the two queues is moving to another stream, or a
// *CrossStreamQueueChangeError if the workflow's delivery IDs must be copied first. have is the
// existing workflow, or zero if the workflow is new.
func (e *Editor) checkWorkflowQueueChange(
	ctx context.Context, have Versioned[*registry.Workflow], after *registry.Workflow,
) error {
	before := have.Record
	if before == nil || before.Queue == after.Queue {
		return nil
	}
	own := false
	for _, name := range []string{before.Queue, after.Queue} {
		q, ok := e.index.Queue(name)
		if !ok || q.Record.Stream == nil {
			continue
		}
		if q.Record.Stream.Phase.IsMoving() {
			return fmt.Errorf("%w: %s", ErrQueueMoving, name)
		}
		own = own || q.Record.StoreTarget() == registry.StoreTargetOwn
	}
	change := CrossStreamQueueChangeError{after.ID, before.Queue, after.Queue}
	if own && ctx.Value(allowedQueueChangeKey{}) != (allowedQueueChange{change, have.Revision}) {
		return &change
	}
	return nil
}

// SetWorkflowIntakeClosed makes ingresses refuse all requests for a workflow temporarily, or accept
// them again. It does not change UpdatedAt, which is the version that WithUpdatedAtCondition
// compares. It returns the revision of the workflow's record, which is in force.
//
// If the workflow is to be closed but its record already says that it is closed,
// SetWorkflowIntakeClosed first opens it. This is necessary because ingresses reopen a workflow
// that stays closed for too long, whatever its record says. Only a change of the record makes them
// close it again, and wait for the requests that they have let in.
func (e *Editor) SetWorkflowIntakeClosed(
	ctx context.Context, id string, closed bool,
) (revision uint64, err error) {
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, ok := e.index.Workflow(id)
		if !ok {
			return 0, workflowNotFound(id)
		}
		revision = have.Revision
		if !closed && !have.Record.IntakeClosed {
			return revision, errUnchanged
		}
		w := have.Record.Clone()
		states := []bool{closed}
		if closed && w.IntakeClosed {
			states = []bool{false, true}
		}
		for _, w.IntakeClosed = range states {
			var err error
			revision, err = e.put(ctx, e.registry, registry.WorkflowPrefix+id, w, revision)
			if err != nil {
				return 0, err
			}
		}
		return revision, nil
	})
	return revision, err
}
