package edit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// Limits of the settings of a queue's own stream.
const (
	maxPlacementTags = 20
	maxTagLength     = 100
	maxStreamAge     = 10 * 365 * 24 * time.Hour
)

// QueueStreamSpec is the part of a queue's own stream that an operator sets. The zero value means
// that it is like the shared stream, without a limit of its size.
type QueueStreamSpec struct {
	MaxBytes      int64
	MaxAge        time.Duration
	Replicas      int64
	PlacementTags []string
}

func (s *QueueStreamSpec) check() error {
	switch {
	case s.MaxBytes < 0:
		return &InvalidError{"maxBytes", "must not be negative; 0 means no limit"}
	case s.MaxAge < 0 || s.MaxAge > maxStreamAge || s.MaxAge%time.Second != 0:
		return &InvalidError{"maxAgeSeconds", fmt.Sprintf("must be 0 to %d seconds; 0 means as the shared stream", int64(maxStreamAge/time.Second))}
	case s.Replicas != 0 && s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5:
		return &InvalidError{"replicas", fmt.Sprintf("must be 1, 3 or 5, not %d", s.Replicas)}
	case len(s.PlacementTags) > maxPlacementTags:
		return &InvalidError{"placementTags", fmt.Sprintf("must be at most %d tags", maxPlacementTags)}
	}
	for i, tag := range s.PlacementTags {
		if tag == "" || len(tag) > maxTagLength || strings.ContainsAny(tag, " \t\r\n") {
			return &InvalidError{fmt.Sprintf("placementTags[%d]", i), fmt.Sprintf("must be 1 to %d bytes without white space", maxTagLength)}
		}
	}
	return nil
}

// StreamOf returns the part of a queue's own stream that an operator sets.
func StreamOf(s *registry.QueueStream) QueueStreamSpec {
	return QueueStreamSpec{MaxBytes: s.MaxBytes, MaxAge: s.MaxAge, Replicas: s.Replicas, PlacementTags: s.PlacementTags}
}

// SetQueueStream sets the settings of a queue's own stream. A queue without one begins to move to
// it, and a queue that is on the way back stays in it; package queuestreams of the executor makes the
// move. It fails with ErrIngressTooOld if a live ingress would go on storing in the shared stream.
func (e *Editor) SetQueueStream(ctx context.Context, name string, spec QueueStreamSpec) (*registry.Queue, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	return e.changeQueue(ctx, name, func(q *registry.Queue) error {
		if q.Stream == nil {
			q.Stream = &registry.QueueStream{}
		}
		if q.Place() == registry.PlaceShared && q.Stream.Phase != registry.MovingIn {
			if err := e.enforceable(consistency.OwnStreams); err != nil {
				return err
			}
		}
		switch q.Stream.Phase {
		case 0, registry.Draining:
			q.Stream.Phase = registry.MovingIn
		case registry.MovingOut, registry.ClosedOut:
			q.Stream.Phase = registry.Own // everything is there still
		case registry.MovingIn, registry.ClosedIn, registry.Own:
		}
		q.Stream.MaxBytes, q.Stream.MaxAge, q.Stream.Replicas = spec.MaxBytes, spec.MaxAge, spec.Replicas
		q.Stream.PlacementTags = slices.Clone(spec.PlacementTags)
		return nil
	})
}

// DropQueueStream begins to move a queue back to the shared stream. A queue that is on the way to its
// own stream stays in the shared one.
func (e *Editor) DropQueueStream(ctx context.Context, name string) (*registry.Queue, error) {
	return e.changeQueue(ctx, name, func(q *registry.Queue) error {
		if q.Stream == nil {
			return nil
		}
		switch q.Stream.Phase {
		case registry.Own:
			q.Stream.Phase = registry.MovingOut
		case registry.MovingIn, registry.ClosedIn:
			q.Stream.Phase = registry.Draining
		case registry.MovingOut, registry.ClosedOut, registry.Draining:
		}
		return nil
	})
}

// SetStreamPhase continues the move of a queue. The queue's record must have the given revision, or
// SetStreamPhase fails with ErrChangedSince: another executor, or an operator, was first. It stores
// the phase before the time storeBy, or fails; the zero time means no such limit. When it returns
// without an error, the phase is in force. Phase 0 takes the setting away. SetStreamPhase returns the
// revision of the new record, also when the phase is stored but not known to be in force.
func (e *Editor) SetStreamPhase(ctx context.Context, name string, revision uint64, phase registry.StreamPhase, storeBy time.Time) (uint64, error) {
	stored := marks{}
	ctx = context.WithValue(ctx, marksKey{}, stored)
	storing := ctx
	if !storeBy.IsZero() {
		var cancel context.CancelFunc
		storing, cancel = context.WithDeadline(ctx, storeBy)
		defer cancel()
	}
	is, err := e.store(storing, func() (uint64, error) {
		have, ok := e.directory.Queue(name)
		if !ok || have.Revision != revision || have.Record.Stream == nil {
			return 0, ErrChangedSince
		}
		q := have.Record.Clone()
		if q.Stream.Phase = phase; phase == 0 {
			q.Stream = nil
		}
		return e.put(storing, e.registry, registry.QueuePrefix+name, q, have.Revision)
	})
	if err != nil {
		return 0, err
	}
	note(ctx, registry.Bucket, is)
	return is, e.confirm(ctx, is, stored)
}
