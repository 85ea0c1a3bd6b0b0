// Package queuestreams moves queues to their own streams, and back to the shared stream.
//
// A move also copies the delivery IDs in the old stream's deduplication window, so that the new
// stream recognizes duplicates. The copies are messages that carry only a Nats-Msg-Id. Most IDs are
// copied while the queue still uses the old stream. Then the executor closes the queue for a
// moment, copies the remaining IDs, and opens the queue in the new stream. Each phase is a record
// in the registry, and every ingress applies it before the next phase begins. Start messages that
// wait in the old stream stay there, and runners receive them from there.
//
// Every step is idempotent: if an ID is copied again, the stream discards the copy as a duplicate.
// Another executor can therefore continue the move of an executor that has crashed: see Run.
package queuestreams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Config holds the dependencies of a Mover. The Mover does not own them.
type Config struct {
	JetStream     jetstream.JetStream
	Editor        *edit.Editor
	RegistryIndex *edit.RegistryIndex
	Settings      stream.Settings // settings of the shared stream
	Log           logrus.FieldLogger
	// OnStep is called before each step of a move, with the name of the step. It is for tests and
	// may be nil.
	OnStep func(step string)
}

// Mover moves queues between the shared stream and streams of their own. It is safe for concurrent
// use, including by several executors.
type Mover struct {
	config Config

	mu         sync.Mutex
	queueLocks map[string]chan struct{} // the lock of each queue: see lockOf
	// resumeErrors says for each queue why Run could not continue its move.
	resumeErrors map[string]error
	// newestRevisions holds the newest known revision of each queue and workflow.
	newestRevisions map[string]firstSeenRevision
	// emptySince is when each queue's own stream was found empty.
	emptySince  map[string]time.Time
	movingSince map[string]time.Time // when each queue's or workflow's move was noticed

	// Only Run uses the fields below.
	resumingMoves    sync.WaitGroup // the goroutines that continue moves
	missingStreams   stream.MissingStreams
	ownStreamMissing bool // whether a queue's own stream is missing, and cannot be created yet
}

// firstSeenRevision is a revision of a record, and when this process first saw it.
type firstSeenRevision struct {
	revision uint64
	seenAt   time.Time
}

const (
	// A move whose record has not changed for this long is considered abandoned: an executor then
	// continues the move of the queue, or reopens the closed workflow. closedPhaseStallTimeout
	// applies while the queue or workflow is closed, and movingPhaseStallTimeout in the other
	// phases of a queue's move. Run looks for abandoned moves every resumeMovesInterval.
	closedPhaseStallTimeout = 3 * time.Second
	movingPhaseStallTimeout = 5 * time.Second
	resumeMovesInterval     = 500 * time.Millisecond
	// emptyStreamGracePeriod is how long a queue's unused own stream must have been empty before it
	// is deleted. It is much longer than a publish takes, so that no publish to the stream is still
	// in progress when the stream is deleted.
	emptyStreamGracePeriod = time.Minute
	// ownStreamsCheckInterval is the interval between checks of the queues' own streams: lost
	// streams are recreated, and unused streams are deleted.
	ownStreamsCheckInterval = 15 * time.Second
	// phaseChangeTimeout is how long changing a queue to another phase may take.
	phaseChangeTimeout = 10 * time.Second
	// workflowCopyTimeout is how long MoveWorkflow may copy before it closes the workflow. A call
	// may take 50 s, so enough time is left to store the change.
	workflowCopyTimeout = 35 * time.Second
	// lateCopyTimeout is the maximum duration of copyAfterUnconfirmedMove, including retries.
	lateCopyTimeout = 20 * time.Second
)

// New returns a Mover. It continues abandoned moves only while Run is running.
func New(c Config) *Mover {
	return &Mover{
		config:          c,
		queueLocks:      map[string]chan struct{}{},
		resumeErrors:    map[string]error{},
		newestRevisions: map[string]firstSeenRevision{},
		emptySince:      map[string]time.Time{},
		movingSince:     map[string]time.Time{},
		missingStreams:  stream.MissingStreams{},
	}
}

// MoveToOwnStream gives a queue its own stream, or changes the settings of the own stream that it
// already has. It returns when the move is complete.
func (m *Mover) MoveToOwnStream(ctx context.Context, queue string,
	spec edit.QueueStreamSpec,
) error {
	if err := m.checkSpec(spec); err != nil {
		return err
	}
	// Check the condition before EnsureOwnStreams, which may change an existing stream: a shorter
	// maximum age deletes messages. The editor checks the condition only later.
	if err := m.config.Editor.CheckQueueCondition(ctx, queue); err != nil {
		return err
	}
	limits := stream.QueueStreamLimits{
		MaxBytes:      spec.MaxBytes,
		MaxAge:        spec.MaxAge,
		Replicas:      int(spec.Replicas),
		PlacementTags: spec.PlacementTags,
	}
	q, _ := m.config.RegistryIndex.Queue(queue)
	if q.Record == nil || q.Record.Stream == nil ||
		q.Record.Stream.Phase == registry.QueuePhaseDrainingOwnStream {
		if err := m.checkLanesDrained(ctx, queue, stream.Layout{Own: true}); err != nil {
			return err
		}
	}
	err := retryTransient(ctx, func() error {
		return stream.EnsureOwnStreams(ctx, m.config.JetStream, m.config.Settings, queue, limits)
	})
	switch {
	case errors.Is(err, stream.ErrTooFewServers) && len(spec.PlacementTags) > 0:
		return &edit.InvalidFieldError{
			Field:   "placementTags",
			Problem: fmt.Sprintf("too few servers have them: %v", err),
		}
	case errors.Is(err, stream.ErrTooFewServers):
		return &edit.InvalidFieldError{Field: "replicas", Problem: err.Error()}
	case errors.Is(err, stream.ErrPlacementNeedsCluster):
		return &edit.InvalidFieldError{Field: "placementTags", Problem: err.Error()}
	case err != nil:
		return err
	}
	if _, err := m.config.Editor.SetQueueStream(ctx, queue, spec); err != nil {
		if errors.Is(err, edit.ErrPreconditionFailed) {
			return errors.Join(err, m.restoreLimits(ctx, queue))
		}
		return err
	}
	return m.completeMove(ctx, queue)
}

// restoreLimits resets the limits of a queue's own stream to those in the queue's record.
// MoveToOwnStream changes the stream before it changes the record. It calls restoreLimits if the
// registry then refuses the change to the record, because somebody else has changed the record
// since MoveToOwnStream checked its condition.
func (m *Mover) restoreLimits(ctx context.Context, queue string) error {
	q, ok := m.config.RegistryIndex.Queue(queue)
	if !ok || q.Record.Stream == nil {
		return nil
	}
	return retryTransient(ctx, func() error {
		return m.ensureOwnStreams(ctx, queue, q.Record.Stream)
	})
}

// checkSpec validates the settings of a queue's own stream, also in relation to the settings of the
// shared stream.
func (m *Mover) checkSpec(spec edit.QueueStreamSpec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	if spec.MaxAge > 0 && spec.MaxAge < m.config.Settings.DedupWindow {
		return &edit.InvalidFieldError{Field: "maxAgeSeconds", Problem: fmt.Sprintf(
			"must be at least %d, the time for which delivery IDs are remembered: a delivery is "+
				"known only while its message is stored",
			int64(m.config.Settings.DedupWindow/time.Second))}
	}
	if spec.MaxAge > m.config.Settings.MaxAge {
		return &edit.InvalidFieldError{Field: "maxAgeSeconds", Problem: fmt.Sprintf(
			"must be at most %d, the age of the shared stream: cancellations and reports are kept "+
				"as long as that", int64(m.config.Settings.MaxAge/time.Second))}
	}
	return nil
}

// checkLanesDrained returns edit.ErrOrderedExecutionsWaiting if the stream to which a queue would
// move still holds ordered executions from before an earlier move. After a move, runners first take
// all of a lane's executions from the stream that the queue has left, so those old executions would
// run after newer ones.
func (m *Mover) checkLanesDrained(ctx context.Context, queue string, to stream.Layout) error {
	return retryTransient(ctx, func() error {
		drained, err := stream.AreLanesDrained(ctx, m.config.JetStream, to, queue)
		if err == nil && !drained {
			err = edit.ErrOrderedExecutionsWaiting
		}
		return err
	})
}

// MoveToShared moves a queue back to the shared stream. It returns when the move is complete.
// Messages in the queue's own stream stay there until they expire.
func (m *Mover) MoveToShared(ctx context.Context, queue string) error {
	q, ok := m.config.RegistryIndex.Queue(queue)
	if ok && q.Record.Stream != nil && q.Record.Stream.Phase == registry.QueuePhaseOwnStream {
		if err := m.checkLanesDrained(ctx, queue, stream.Layout{}); err != nil {
			return err
		}
	}
	if _, err := m.config.Editor.BeginMoveToSharedStream(ctx, queue); err != nil {
		return err
	}
	return m.completeMove(ctx, queue)
}

// Run continues moves that another executor has abandoned, until the context is done. It also
// deletes own streams that are empty and no longer used, and recreates own streams that NATS has
// lost.
func (m *Mover) Run(ctx context.Context) {
	defer m.resumingMoves.Wait()
	failing := false
	lastDrain := time.Time{}
	retry.Every(ctx, resumeMovesInterval, func() {
		err := m.resumeStalledMoves(ctx)
		if m.ownStreamMissing || time.Since(lastDrain) > ownStreamsCheckInterval {
			lastDrain = time.Now()
			err = errors.Join(err, m.maintainOwnStreams(ctx))
		}
		if err != nil && !failing && ctx.Err() == nil {
			m.config.Log.WithError(err).Warn("the move of a queue could not be continued; it is " +
				"tried again")
		}
		failing = err != nil
	})
}

// resumeStalledMoves continues every move of a queue that has made no progress for some time, and
// reopens workflows that have been closed for too long. It does not wait until the moves of queues
// are complete, so a long move does not delay the others. (Moves that read the same stream still
// have to wait for each other, because only one copier can read a stream at a time.)
func (m *Mover) resumeStalledMoves(ctx context.Context) (err error) {
	m.trackMoves()
	for _, q := range m.config.RegistryIndex.QueueSettings() {
		if q.Stream == nil || !q.Stream.Phase.IsMoving() {
			m.recordResumeResult(q.Name, nil)
			continue
		}
		have, ok := m.config.RegistryIndex.Queue(q.Name)
		after := movingPhaseStallTimeout
		if q.StoreTarget() == registry.StoreTargetClosed {
			after = closedPhaseStallTimeout
		}
		if ok && m.isStalled("queue."+q.Name, have.Revision, after) {
			err = errors.Join(err, m.resumeMoveInBackground(ctx, q.Name))
		}
	}
	for _, id := range m.config.RegistryIndex.IntakeClosedWorkflowIDs() {
		have, ok := m.config.RegistryIndex.Workflow(id)
		if ok && m.isStalled("workflow."+id, have.Revision, closedPhaseStallTimeout) {
			changing, cancel := context.WithTimeout(ctx, phaseChangeTimeout)
			_, opening := m.config.Editor.SetWorkflowIntakeClosed(changing, id, false)
			err = errors.Join(err, opening)
			cancel()
		}
	}
	return err
}

// isStalled reports whether this process has seen the same revision of a record for longer than the
// given time.
func (m *Mover) isStalled(key string, revision uint64, stallTimeout time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.newestRevisions[key]; s.revision == revision {
		return time.Since(s.seenAt) > stallTimeout
	}
	m.newestRevisions[key] = firstSeenRevision{revision, time.Now()}
	return false
}

// resumeMoveInBackground continues the move of a queue in a new goroutine, unless this process is
// already moving the queue. It returns the error of the previous attempt, or nil if there was none
// or it succeeded.
func (m *Mover) resumeMoveInBackground(ctx context.Context, queue string) error {
	lock := m.lockOf(queue)
	select {
	case lock <- struct{}{}:
		m.resumingMoves.Go(func() {
			defer func() { <-lock }()
			m.recordResumeResult(queue, m.completeLockedMove(ctx, queue))
		})
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resumeErrors[queue]
}

// recordResumeResult stores the result of an attempt to continue the move of a queue. A nil error
// means that the queue is no longer moving.
func (m *Mover) recordResumeResult(queue string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.resumeErrors, queue)
	} else {
		m.resumeErrors[queue] = err
	}
}

// lockOf returns the channel that serves as the queue's lock. It holds a value while a goroutine of
// this process moves the queue.
func (m *Mover) lockOf(queue string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	lock := m.queueLocks[queue]
	if lock == nil {
		lock = make(chan struct{}, 1)
		m.queueLocks[queue] = lock
	}
	return lock
}

// completeMove continues the move of a queue. It returns when the move is complete, even if it is
// another executor that completes the move.
func (m *Mover) completeMove(ctx context.Context, queue string) error {
	lock := m.lockOf(queue)
	select {
	case lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-lock }()
	return m.completeLockedMove(ctx, queue)
}

// completeLockedMove is like completeMove, for a caller that holds the queue's lock.
func (m *Mover) completeLockedMove(ctx context.Context, queue string) error {
	for attempt := 0; ; attempt++ {
		err := retryTransient(ctx, func() error { return m.config.Editor.EnsureCurrent(ctx) })
		if err != nil {
			return err
		}
		have, ok := m.config.RegistryIndex.Queue(queue)
		if !ok || have.Record.Stream == nil || !have.Record.Stream.Phase.IsMoving() {
			return nil
		}
		err = m.advanceMove(ctx, queue, have)
		if err != nil &&
			!errors.Is(err, edit.ErrPreconditionFailed) && !errors.Is(err, errRestartMove) &&
			!errors.Is(err, edit.ErrQueueMoving) && // another queue moves from the same stream
			!isTransient(err) {

			return err
		}
		if err := retry.SleepBackoff(ctx, attempt); err != nil {
			return err
		}
	}
}

// retryTransient repeats a call until the call succeeds or fails with a permanent error, or until
// the context is done.
func retryTransient(ctx context.Context, call func() error) (err error) {
	for attempt := 0; ; attempt++ {
		if err = call(); !isTransient(err) || retry.SleepBackoff(ctx, attempt) != nil {
			return err
		}
	}
}

// isTransient reports whether an error is temporary, for example because a server is restarting or
// a new stream has no leader yet.
func isTransient(err error) bool {
	for _, known := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded,
		jetstream.ErrNoStreamResponse, consistency.ErrNotCurrent,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	code := stream.ErrorCode(err)
	return code == stream.CodeNotAvailable || code == stream.CodeNotLeader
}

// errRestartMove means that a move was interrupted and must start over.
var errRestartMove = errors.New("the move begins again")

func (m *Mover) advanceMove(
	ctx context.Context, queue string, have edit.Versioned[*registry.Queue],
) error {
	switch have.Record.Stream.Phase {
	case registry.QueuePhaseMovingToOwn:
		return m.move(ctx, queue, have.Revision, moveDirection{
			to:     stream.Layout{Own: true},
			closed: registry.QueuePhaseClosedMovingToOwn,
			moving: registry.QueuePhaseMovingToOwn,
			done:   registry.QueuePhaseOwnStream,
		})
	case registry.QueuePhaseMovingToShared:
		return m.move(ctx, queue, have.Revision, moveDirection{
			from:   stream.Layout{Own: true},
			closed: registry.QueuePhaseClosedMovingToShared,
			moving: registry.QueuePhaseMovingToShared,
			done:   registry.QueuePhaseDrainingOwnStream,
		})
	case registry.QueuePhaseClosedMovingToOwn:
		return m.reopenInOldStream(ctx, queue, have.Revision, registry.QueuePhaseMovingToOwn)
	case registry.QueuePhaseClosedMovingToShared:
		return m.reopenInOldStream(ctx, queue, have.Revision, registry.QueuePhaseMovingToShared)
	case registry.QueuePhaseOwnStream, registry.QueuePhaseDrainingOwnStream:
	}
	return nil
}

// reopenInOldStream returns a closed queue to the given phase, in which it is open in its old
// stream. Until the queue has been closed for closedPhaseStallTimeout, it returns errRestartMove
// instead, because the executor that closed the queue may still complete the move.
func (m *Mover) reopenInOldStream(
	ctx context.Context, queue string, revision uint64, phase registry.StreamPhase,
) error {
	if !m.isStalled("queue."+queue, revision, closedPhaseStallTimeout) {
		return errRestartMove
	}
	_, err := m.config.Editor.SetStreamPhase(ctx, queue, revision, phase)
	return err
}

// moveDirection describes one direction of a move, to a queue's own stream or back. It holds the
// layouts of the old and the new stream. It also holds the phases of the queue while its delivery
// IDs are copied, while it is closed, and after the move.
type moveDirection struct {
	from, to             stream.Layout
	moving, closed, done registry.StreamPhase
}

// move copies a queue's delivery IDs to its new stream, and opens the queue there.
func (m *Mover) move(ctx context.Context, queue string, revision uint64,
	d moveDirection,
) (err error) {
	m.reportStep(d.moving.String())
	own, err := m.config.JetStream.Stream(ctx, stream.OwnStreamName(queue))
	if errors.Is(err, jetstream.ErrStreamNotFound) { // deleted by hand, or not restored
		q, _ := m.config.RegistryIndex.Queue(queue)
		if q.Record == nil || q.Record.Stream == nil {
			return errRestartMove
		}
		err = m.ensureOwnStreams(ctx, queue, q.Record.Stream)
		if err == nil {
			own, err = m.config.JetStream.Stream(ctx, stream.OwnStreamName(queue))
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream.OwnStreamName(queue), err)
	}
	if !d.from.Own {
		if err := m.copyIDsFromOtherQueues(ctx, queue); err != nil {
			return err
		}
	}
	ids, err := m.newCopier(ctx, d.from, d.to, queue, queue, filterSubjectsOfQueue(d.from, queue))
	if err != nil {
		return err
	}
	defer ids.stop(ctx)
	for range 2 { // the second pass has little left to copy
		if err := ids.catchUp(ctx); err != nil {
			return err
		}
	}
	// If a process has just been killed, several seconds pass until a change is confirmed. Let them
	// pass before closing the queue, so that the queue is closed only briefly.
	if err := m.config.Editor.AwaitInForce(ctx, revision); err != nil {
		return err
	}
	if err := ids.catchUp(ctx); err != nil {
		return err
	}
	m.reportStep("close")
	deadline := time.Now().Add(registry.MaxGateClosedTime)
	closing, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	closed, err := m.config.Editor.SetStreamPhase(edit.WithStoreDeadline(closing, deadline), queue,
		revision, d.closed)
	if err == nil {
		m.reportStep(d.closed.String())
		if err = ids.catchUp(closing); err == nil {
			err = checkStreamNotRecreated(closing, m.config.JetStream, queue, own)
		}
	}
	if err != nil {
		return m.abortMove(ctx, queue, closed, d.moving, err)
	}
	m.reportStep("open")
	if _, err = m.config.Editor.SetStreamPhase(edit.WithStoreDeadline(ctx, deadline), queue, closed,
		d.done); err != nil {
		err = m.abortMove(ctx, queue, closed, d.moving, err)
		if revision, ended := m.revisionInPhase(ctx, queue, d.done); ended {
			return m.copyAfterUnconfirmedMove(ctx, ids, revision)
		}
		return err
	}
	m.reportStep(d.done.String())
	_ = ids.catchUp(ctx) // copy the IDs of messages that a server stored late
	return nil
}

// ensureOwnStreams creates a queue's own streams with the settings in the queue's record, or
// changes existing ones to these settings.
func (m *Mover) ensureOwnStreams(
	ctx context.Context, queue string, record *registry.QueueStream,
) error {
	spec := edit.StreamSpecOf(record)
	return stream.EnsureOwnStreams(ctx, m.config.JetStream, m.config.Settings, queue,
		stream.QueueStreamLimits{
			MaxBytes:      spec.MaxBytes,
			MaxAge:        spec.MaxAge,
			Replicas:      int(spec.Replicas),
			PlacementTags: spec.PlacementTags,
		})
}

// abortMove reopens a queue in its old stream after its move has failed. moveErr is the error of
// the move, and phase is the phase of the move in which the queue is open in its old stream.
// closedRevision is the revision of the record that closed the queue. If it is 0, that record may
// not have been stored, and abortMove does not reopen the queue. abortMove returns errRestartMove
// if it has reopened the queue and the move only ran out of time. Otherwise, it returns an error
// that includes moveErr.
func (m *Mover) abortMove(
	ctx context.Context,
	queue string,
	closedRevision uint64,
	phase registry.StreamPhase,
	moveErr error,
) error {
	if closedRevision == 0 {
		return moveErr
	}
	if ctx.Err() != nil { // another executor opens it, or this one after a restart
		return moveErr
	}
	changing, cancel := context.WithTimeout(ctx, phaseChangeTimeout)
	defer cancel()
	err := retryTransient(changing, func() error {
		_, err := m.config.Editor.SetStreamPhase(changing, queue, closedRevision, phase)
		return err
	})
	if errors.Is(err, edit.ErrPreconditionFailed) {
		// An earlier attempt may have reopened the queue although the attempt returned an error.
		// The next attempt then fails with ErrPreconditionFailed. The current phase of the queue
		// shows whether the queue is open.
		if _, reopened := m.revisionInPhase(ctx, queue, phase); !reopened {
			return moveErr
		}
		err = nil
	}
	if err != nil {
		return errors.Join(moveErr, err)
	}
	_, unconfirmed := errors.AsType[*consistency.UnconfirmedError](moveErr)
	if unconfirmed || errors.Is(moveErr, context.DeadlineExceeded) {
		m.config.Log.WithField("queue",
			queue).WithError(moveErr).Warn("the queue could not move in time; retrying")
		return errRestartMove
	}
	return moveErr
}

// revisionInPhase returns the current revision of a queue's record. ok reports whether the queue is
// in the given phase.
func (m *Mover) revisionInPhase(
	ctx context.Context, queue string, phase registry.StreamPhase,
) (revision uint64, ok bool) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), retry.AttemptTimeout)
	defer cancel()
	_ = retryTransient(asking, func() error { return m.config.Editor.EnsureCurrent(asking) })
	q, ok := m.config.RegistryIndex.Queue(queue)
	return q.Revision, ok && q.Record.Stream != nil && q.Record.Stream.Phase == phase
}

// checkStreamNotRecreated returns an error if a queue's own stream no longer exists, or has been
// recreated since own was read.
func checkStreamNotRecreated(
	ctx context.Context, js jetstream.JetStream, queue string, own jetstream.Stream,
) error {
	now, err := js.Stream(ctx, stream.OwnStreamName(queue))
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream.OwnStreamName(queue), err)
	}
	if !now.CachedInfo().Created.Equal(own.CachedInfo().Created) {
		return errRestartMove
	}
	return nil
}

func (m *Mover) reportStep(step string) {
	if m.config.OnStep != nil {
		m.config.OnStep(step)
	}
}

// ErrCopyUnfinished means that a workflow has not changed its queue, because not all of its
// delivery IDs have been copied yet. A repeated call continues the copying.
var ErrCopyUnfinished = errors.New("the workflow's delivery IDs are not all copied yet")

// wrapIfCopyUnfinished wraps err in ErrCopyUnfinished if err means that a copy ended early.
// Otherwise, it returns err unchanged, which may be nil.
func wrapIfCopyUnfinished(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errRestartMove) {
		return fmt.Errorf("%w: %w", ErrCopyUnfinished, err)
	}
	return err
}

// copyWorkflowDeliveryIDs copies the delivery IDs of a workflow while ingresses still accept
// requests for it. The caller uses the returned copier to copy the IDs that are stored later, and
// must stop it.
func (m *Mover) copyWorkflowDeliveryIDs(
	ctx context.Context, from, to stream.Layout, change *edit.CrossStreamQueueChangeError,
) (*deliveryIDCopier, error) {
	copying, cancel := context.WithTimeout(ctx, workflowCopyTimeout)
	defer cancel()
	ids, err := m.newCopierForWorkflow(copying, from, to, change)
	if err != nil {
		return nil, err
	}
	for range 2 { // the second pass has little left to copy
		if err := ids.catchUp(copying); err != nil {
			ids.stop(ctx)
			return nil, wrapIfCopyUnfinished(err)
		}
	}
	return ids, nil
}

// MoveWorkflow moves a workflow from the queue change.From to change.To, which use different
// streams. It copies the workflow's delivery IDs to the stream of change.To. Then it closes the
// workflow, copies the remaining IDs, and calls store, which must assign the workflow to change.To.
// If the copying takes too long, MoveWorkflow returns ErrCopyUnfinished, and a repeated call
// continues where this call ended.
func (m *Mover) MoveWorkflow(
	ctx context.Context, change *edit.CrossStreamQueueChangeError,
	store func(context.Context) error,
) error {
	from, to := m.layoutOf(change.From), m.layoutOf(change.To)
	fromQueue, err := m.revisionsUnlessMoving(change.From, change.To)
	if err != nil {
		return err
	}
	ids, err := m.copyWorkflowDeliveryIDs(ctx, from, to, change)
	if err != nil {
		return err
	}
	defer ids.stop(ctx)
	m.reportStep("close workflow")
	deadline := time.Now().Add(registry.MaxGateClosedTime)
	closing, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	closed, err := m.config.Editor.SetWorkflowIntakeClosed(closing, change.WorkflowID, true)
	if err == nil {
		m.reportStep("workflow closed")
		err = wrapIfCopyUnfinished(ids.catchUp(closing))
	}
	if err == nil {
		var now [2]uint64
		if now, err = m.revisionsUnlessMoving(change.From, change.To); err == nil &&
			now != fromQueue {
			err = edit.ErrQueueMoving
		}
	}
	if err == nil {
		err = store(
			edit.WithStoreDeadline(edit.WithAllowedQueueChange(ctx, change, closed), deadline),
		)
	}
	if err != nil {
		opening, cancel := context.WithTimeout(context.WithoutCancel(ctx), phaseChangeTimeout)
		defer cancel()
		openErr := retryTransient(opening, func() error {
			_, err := m.config.Editor.SetWorkflowIntakeClosed(opening, change.WorkflowID, false)
			return err
		})
		w, ok := m.config.RegistryIndex.Workflow(change.WorkflowID)
		if ok && w.Record.Queue == change.To {
			if err := m.copyAfterUnconfirmedMove(ctx, ids, w.Revision); err != nil {
				return err
			}
		}
		return errors.Join(err, openErr)
	}
	_ = ids.catchUp(ctx) // copy the IDs of messages that a server stored late
	return nil
}

// layoutOf returns the layout of the stream that a queue uses. The queue must not be moving.
func (m *Mover) layoutOf(queue string) stream.Layout {
	q, _ := m.config.RegistryIndex.Queue(queue)
	return stream.Layout{Own: q.Record.StoreTarget() == registry.StoreTargetOwn}
}

// revisionsUnlessMoving returns the revisions of two queues' records. It returns
// edit.ErrQueueMoving if one of the queues is moving.
func (m *Mover) revisionsUnlessMoving(queues ...string) (revisions [2]uint64, err error) {
	for i, name := range queues {
		q, ok := m.config.RegistryIndex.Queue(name)
		if ok && q.Record.Stream != nil && q.Record.Stream.Phase.IsMoving() {
			return revisions, fmt.Errorf("%w: %s", edit.ErrQueueMoving, name)
		}
		revisions[i] = q.Revision
	}
	return revisions, nil
}

// maintainOwnStreams deletes queues' own streams that are empty and no longer used. It recreates
// own streams that NATS has lost, once they have been missing for long enough. It does nothing
// while a backup is being restored: then own streams exist before the records of their queues.
func (m *Mover) maintainOwnStreams(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, phaseChangeTimeout)
	current := m.config.Editor.EnsureCurrent(asking)
	cancel()
	if errors.Is(current, consistency.ErrRestoring) {
		clear(m.emptySince)
		return nil
	}
	starts, reports, err := stream.StreamNames(ctx, m.config.JetStream)
	if err != nil {
		return err
	}
	m.ownStreamMissing = false
	for _, q := range m.config.RegistryIndex.QueueSettings() {
		if q.Stream == nil || q.Stream.Phase == registry.QueuePhaseDrainingOwnStream {
			continue
		}
		names := [...]string{stream.OwnStreamName(q.Name), stream.OwnProgressStreamName(q.Name)}
		lost, creatable := 0, 0
		for i, found := range [...][]string{starts, reports} {
			exists := slices.Contains(found, names[i])
			if !exists {
				lost++
			}
			if m.missingStreams.RecordCheck(names[i], exists) {
				creatable++
			}
		}
		switch {
		case creatable < lost:
			m.ownStreamMissing = true
		case lost > 0:
			err = errors.Join(err, m.ensureOwnStreams(ctx, q.Name, q.Stream))
		}
	}
	for _, name := range starts {
		queue, ok := stream.QueueOfOwnStream(name)
		if !ok {
			continue
		}
		err = errors.Join(err, m.deleteOwnStreamsIfUnused(ctx, queue))
	}
	return err
}

func (m *Mover) deleteOwnStreamsIfUnused(ctx context.Context, queue string) error {
	have, _ := m.config.RegistryIndex.Queue(queue)
	if have.Record != nil && have.Record.Stream != nil &&
		have.Record.Stream.Phase != registry.QueuePhaseDrainingOwnStream {
		delete(m.emptySince, queue)
		return nil
	}
	empty, err := m.areOwnStreamsDrained(ctx, queue)
	if err != nil || !empty {
		delete(m.emptySince, queue)
		return err
	}
	if m.emptySince[queue].IsZero() {
		m.emptySince[queue] = time.Now()
	}
	if time.Since(m.emptySince[queue]) < emptyStreamGracePeriod {
		return nil
	}
	if have.Record != nil && have.Record.Stream != nil {
		changing, cancel := context.WithTimeout(ctx, phaseChangeTimeout)
		defer cancel()
		if _, err := m.config.Editor.SetStreamPhase(changing, queue, have.Revision, 0); err != nil {
			return err
		}
	}
	delete(m.emptySince, queue)
	return stream.DeleteOwnStreams(ctx, m.config.JetStream, queue)
}

// areOwnStreamsDrained reports whether a queue's own streams are no longer needed: the stream of
// start messages is empty, and all reports about its executions have been recorded.
func (m *Mover) areOwnStreamsDrained(ctx context.Context, queue string) (bool, error) {
	for _, name := range []string{
		stream.OwnStreamName(queue),
		stream.OwnProgressStreamName(queue),
	} {
		s, err := m.config.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("stream %s: %w", name, err)
		}
		if name == stream.OwnStreamName(queue) && s.CachedInfo().State.Msgs > 0 {
			return false, nil
		}
		consumers := s.ListConsumers(ctx)
		for info := range consumers.Info() {
			if !stream.IsDrained(info) {
				return false, nil
			}
		}
		if err := consumers.Err(); err != nil {
			return false, fmt.Errorf("consumers of %s: %w", name, err)
		}
	}
	return true, nil
}
