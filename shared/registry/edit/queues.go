package edit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
)

// MaxInFlightLimit is the highest limit that can be set on the number of executions that a group of
// runners has in flight.
const MaxInFlightLimit = 1_000_000

// queueConditionKey is the context key of the condition that WithQueueCondition sets.
type queueConditionKey struct{}

// WithQueueCondition returns a context for a conditional change of a queue's settings. The change
// calls check with the existing settings, which are empty if the queue has none. If check returns
// an error, the change fails with that error. check may be called more than once.
func WithQueueCondition(ctx context.Context, check func(*registry.Queue) error) context.Context {
	return context.WithValue(ctx, queueConditionKey{}, check)
}

// CheckQueueCondition calls the check function of WithQueueCondition with the current settings of a
// queue, and returns its error. It returns nil if the context has no condition. Call it before side
// effects that precede the change of the queue's record; that change checks the condition again.
func (e *Editor) CheckQueueCondition(ctx context.Context, name string) error {
	check, ok := ctx.Value(queueConditionKey{}).(func(*registry.Queue) error)
	if !ok {
		return nil
	}
	if err := e.EnsureCurrent(ctx); err != nil {
		return err
	}
	q, _ := e.queueSettings(name)
	err := check(q)
	if err == nil || !mayBeStale(err) {
		return err
	}
	// The index may lack a change that the caller has already seen, so catch up and check
	// again.
	if err := e.follower.CatchUp(ctx); err != nil {
		return err
	}
	q, _ = e.queueSettings(name)
	return check(q)
}

// queueSettings returns a copy of a queue's settings and the revision of the queue's record. If the
// queue has no record, it returns empty settings and revision 0.
func (e *Editor) queueSettings(name string) (*registry.Queue, uint64) {
	have, ok := e.index.Queue(name)
	if !ok {
		return &registry.Queue{Name: name}, 0
	}
	return have.Record.Clone(), have.Revision
}

// PauseQueue pauses a queue until the given time, or, if that is the zero time, until ResumeQueue
// is called. If the queue is already paused, only the end of the pause changes. PauseQueue only
// changes the record; the executor's package queues enforces the pause.
func (e *Editor) PauseQueue(
	ctx context.Context, name string, until time.Time,
) (*registry.Queue, error) {
	return e.changeQueue(ctx, name, func(q *registry.Queue) error {
		now := e.now()
		if !until.IsZero() && !until.After(now) {
			return &InvalidFieldError{"until", "must be in the future"}
		}
		if !q.IsPaused(now) {
			q.PausedSince = now
		}
		q.PausedUntil = until.UTC().Truncate(time.Microsecond)
		return nil
	})
}

// ResumeQueue ends the pause of a queue, if there is one, and returns the queue's settings.
func (e *Editor) ResumeQueue(ctx context.Context, name string) (*registry.Queue, error) {
	return e.changeQueue(ctx, name, func(q *registry.Queue) error {
		q.PausedSince, q.PausedUntil = time.Time{}, time.Time{}
		return nil
	})
}

// SetQueueGroupLimit limits how many executions the members of a group of runners may have in
// flight in total. A maxInFlight of 0 removes the limit, so that only the members' own limits
// apply.
func (e *Editor) SetQueueGroupLimit(
	ctx context.Context, name, group string, maxInFlight int64,
) (*registry.Queue, error) {
	if err := checkID("group", group); err != nil {
		return nil, err
	}
	if maxInFlight < 0 || maxInFlight > MaxInFlightLimit {
		return nil, &InvalidFieldError{
			"maxInFlight", fmt.Sprintf("must be from 1 to %d, or null", MaxInFlightLimit),
		}
	}
	return e.changeQueue(ctx, name, func(q *registry.Queue) error {
		at, ok := slices.BinarySearchFunc(q.Groups, group,
			func(g registry.QueueGroup, name string) int {
				return strings.Compare(g.Group, name)
			})
		if !ok {
			q.Groups = slices.Insert(q.Groups, at, registry.QueueGroup{Group: group})
		}
		q.Groups[at].MaxInFlight = maxInFlight
		return nil
	})
}

// maxQueueGroups is the maximum number of groups with settings that one queue may have. It limits
// the size of the record.
const maxQueueGroups = 1_000

// changeQueue changes the settings of a queue: apply modifies them, and may be called more than
// once. If the queue has no record, apply receives empty settings with only the queue's name.
func (e *Editor) changeQueue(
	ctx context.Context, name string, apply func(*registry.Queue) error,
) (q *registry.Queue, err error) {
	if err := checkID("queue", name); err != nil {
		return nil, err
	}
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		var revision uint64
		q, revision = e.queueSettings(name)
		if check, ok := ctx.Value(queueConditionKey{}).(func(*registry.Queue) error); ok {
			if err := check(q); err != nil {
				return 0, err
			}
		}
		before := q.Clone()
		if err := apply(q); err != nil {
			return 0, err
		}
		if len(q.Groups) > maxQueueGroups {
			return 0, &InvalidFieldError{
				"group",
				fmt.Sprintf("%d groups of the queue have settings already", maxQueueGroups),
			}
		}
		if registry.Equal(q, before) {
			return revision, errUnchanged
		}
		return e.put(ctx, e.registry, registry.QueuePrefix+name, q, revision)
	})
	return q, err
}
