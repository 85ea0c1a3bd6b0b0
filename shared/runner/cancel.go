package runner

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// To cancel an execution, the executor stores a key in a bucket. Then it checks whether the
// execution has been delivered to any group. If it has not, the executor itself ends the execution
// as canceled, and tells the operator so. A runner looks for new keys after a message has arrived
// and before it calls the handler. So there are two cases. If an execution was delivered before the
// executor's check, the executor leaves the final state to the runner. If it was delivered later,
// the key was already stored when the runner looked for it, so the handler is never called. This
// works even if the machines' clocks differ, and even if no runner is alive. One read of the bucket
// serves all messages that are waiting at that moment, so the check costs a busy runner little.
//
// A runner that finds the key reports the state CANCELED and acknowledges the message. If several
// final reports on an execution are stored, every reader uses the first one.

// ErrCanceled is the cause (context.Cause) of a handler's context after an operator has canceled
// the execution. If the handler then returns an error, the execution ends as canceled; otherwise it
// has succeeded.
var ErrCanceled = errors.New("the execution is canceled")

const (
	// cancelPollInterval is the interval at which the runner looks for cancellations of executions
	// whose handlers are running.
	cancelPollInterval = time.Second
	// cancelCheckInterval is how often a runner that stays connected and finds no new keys checks
	// that the bucket has not been replaced by a new one: see readNewKeys.
	cancelCheckInterval = time.Second
	// cancelCatchUpWait is how long a message waits, before its handler is called, for the runner
	// to read all new cancellations. After that, the runner reads only the key of the message's own
	// execution.
	cancelCatchUpWait = 200 * time.Millisecond
	// minCancellationsToForget is the number of cancellations that a runner must know before it
	// removes expired ones from memory for the first time.
	minCancellationsToForget = 1000
	// cancelReadTimeout is the maximum duration of one request to the bucket.
	cancelReadTimeout = 2 * time.Second
	// maxCancelReadFailures is the number of failed requests after which a runner that has never
	// been able to read the bucket runs executions without looking for cancellations.
	maxCancelReadFailures = 3
	// cancelRetryDelay is how long a runner that has never been able to read the bucket waits
	// before it tries again. The executor may be too old to have the bucket, or the runner's NATS
	// account may lack the permission to read it.
	cancelRetryDelay = 30 * time.Second
)

// cancellations tracks the executions that have been canceled. It is safe for concurrent use.
type cancellations struct {
	nc *nats.Conn

	mu           sync.Mutex
	nextRead     *bucketRead       // the next read; nil if no call waits for one
	reading      bool              // whether the bucket is being read
	revisionByID map[string]uint64 // revisions of the cancellations' keys, by execution ID
	pausedUntil  time.Time         // no request is sent before this; zero means no pause

	// Only the methods that read the bucket use the fields below. They are not guarded by mu,
	// because only one read runs at a time.

	// lastRevision is the revision of the newest key that has been read, and lastExecutionID the
	// execution ID in that key.
	lastRevision    uint64
	lastExecutionID string
	// lastCheck is when the bucket was last known to contain the key with lastRevision, and
	// reconnectsAtCheck is the connection's number of reconnects at that time.
	lastCheck         time.Time
	reconnectsAtCheck uint64
	// anyReadSucceeded means that at least one request has succeeded. From then on, failed requests
	// are always retried.
	anyReadSucceeded bool
	// failedReads is the number of failed requests since the last call to pause. It is used only
	// until the first request succeeds.
	failedReads int
	// forgetAtCount is the number of known cancellations that triggers the next removal of expired
	// ones.
	forgetAtCount int
}

// bucketRead is one read of the bucket. Several calls may wait for it.
type bucketRead struct {
	done chan struct{} // closed when the read is finished
	err  error         // error of the read; set before done is closed
}

func newCancellations(nc *nats.Conn) *cancellations {
	return &cancellations{
		nc: nc, revisionByID: map[string]uint64{},
		forgetAtCount: minCancellationsToForget,
	}
}

// isCanceled reports whether the bucket contains a cancellation of an execution. It relies only on
// reads that begin after the call, and retries until it can read the bucket or ctx ends. If there
// are so many new keys that reading them takes long, it reads only the key of this execution. While
// reads are paused (see pause), it relies on the keys that have been read before.
func (c *cancellations) isCanceled(ctx context.Context, executionID string) (bool, error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, cancelCatchUpWait)
		err := c.awaitFreshRead(waiting)
		late := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			return c.isKnownCanceled(executionID), nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case late:
			asking, cancel := context.WithTimeout(ctx, cancelReadTimeout)
			canceled, err := stream.IsCanceled(asking, c.nc, executionID)
			cancel()
			if err == nil {
				return canceled, nil
			}
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// isKnownCanceled reports whether an execution is among the cancellations read so far.
func (c *cancellations) isKnownCanceled(executionID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.revisionByID[executionID]
	return ok
}

// awaitFreshRead waits for a read of the bucket that begins after the call. While reads are paused
// (see pause), it returns nil immediately.
func (c *cancellations) awaitFreshRead(ctx context.Context) error {
	c.mu.Lock()
	if time.Now().Before(c.pausedUntil) {
		c.mu.Unlock()
		return nil
	}
	if c.nextRead == nil {
		c.nextRead = &bucketRead{done: make(chan struct{})}
	}
	waiting := c.nextRead
	if !c.reading {
		c.reading = true
		go c.readWhileAwaited() //nolint:contextcheck // several calls wait for the result
	}
	c.mu.Unlock()
	select {
	case <-waiting.done:
		return waiting.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readWhileAwaited reads the bucket again and again, until no call is waiting for a read.
func (c *cancellations) readWhileAwaited() {
	for {
		c.mu.Lock()
		now := c.nextRead
		c.nextRead = nil
		if now == nil {
			c.reading = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		now.err = c.readNewKeys()
		close(now.done)
	}
}

// readNewKeys reads the keys of new cancellations. Their revisions are higher than those of the
// keys that it has already read. In a bucket that was recreated, revisions begin with 1 again, so
// readNewKeys would miss new keys there. To notice that, it checks whether the bucket still
// contains the newest key that it has read: when it has found new keys, after a reconnect, and
// whenever cancelCheckInterval has passed since the last check. If that key is gone, the bucket was
// recreated or has lost keys. readNewKeys then reads all keys again, and keeps the cancellations
// that it already knows.
//
// The bucket may be recreated once more while readNewKeys reads all keys again. Afterwards,
// readNewKeys therefore checks that the bucket still contains the newest of these keys. Older keys
// may be gone for another reason: they expire.
func (c *cancellations) readNewKeys() error {
	reconnects, last, lastID := c.nc.Stats().Reconnects, c.lastRevision, c.lastExecutionID
	fromBeginning := last == 0
	for check := false; ; {
		from := last + 1
		if check {
			from = c.lastRevision
		}
		ctx, cancel := context.WithTimeout(context.Background(), cancelReadTimeout)
		id, revision, err := stream.NextCancellation(ctx, c.nc, from)
		cancel()
		if err != nil {
			return c.handleReadError(err)
		}
		c.anyReadSucceeded = true
		if id != "" {
			c.add(id, revision)
		}
		now := c.nc.Stats().Reconnects
		switch {
		case now != reconnects: // the keys read so far may be from another bucket
			reconnects, last, lastID, check = now, c.lastRevision, c.lastExecutionID, false
			fromBeginning = false
		case check && id == c.lastExecutionID && revision == c.lastRevision:
			c.lastRevision, c.lastExecutionID, c.lastCheck, c.reconnectsAtCheck = last, lastID,
				time.Now(), reconnects
			c.forgetExpired()
			return nil
		case check:
			c.lastRevision, last, check, fromBeginning = 0, 0, false, true
		case id != "":
			last, lastID = revision, id
			if fromBeginning {
				c.lastRevision, c.lastExecutionID = last, lastID
			}
		default:
			check = last > 0 && (last != c.lastRevision || reconnects != c.reconnectsAtCheck ||
				time.Since(c.lastCheck) >= cancelCheckInterval)
			if !check {
				return nil
			}
		}
	}
}

// add records that an execution has been canceled. revision is the revision of the cancellation's
// key.
func (c *cancellations) add(executionID string, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revisionByID[executionID] = revision
}

// forgetExpired removes from memory the cancellations whose keys have expired. It does so whenever
// the number of known cancellations has doubled since the last time, and is at least
// minCancellationsToForget. Keys expire in the order of their revisions, so all revisions below
// that of the oldest existing key have expired.
func (c *cancellations) forgetExpired() {
	if len(c.revisionByID) < c.forgetAtCount {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelReadTimeout)
	defer cancel()
	id, oldest, err := stream.NextCancellation(ctx, c.nc, 1)
	if err != nil || id == "" {
		return // the next read of the bucket tries again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.revisionByID, func(_ string, revision uint64) bool {
		return revision < oldest
	})
	c.forgetAtCount = max(minCancellationsToForget, 2*len(c.revisionByID))
}

// handleReadError handles the error of a failed request to the bucket. If it returns an error, the
// read has failed and is retried. It returns nil if there is no bucket, or if the runner has never
// been able to read it and now gives up for a while: handlers are then called although the runner
// may not know all cancellations.
func (c *cancellations) handleReadError(err error) error {
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		c.lastRevision = 0 // if the bucket is recreated, its revisions begin with 1 again
		if !c.anyReadSucceeded {
			c.pause(cancelReadTimeout)
		}
		return nil
	}
	if !c.anyReadSucceeded && (errors.Is(err, nats.ErrNoResponders) ||
		c.failedReads >= maxCancelReadFailures) {
		c.failedReads = 0
		c.pause(cancelRetryDelay)
		return nil
	}
	c.failedReads++
	return err
}

// pause stops requests to the bucket for d.
func (c *cancellations) pause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pausedUntil = time.Now().Add(d)
}

// runUnlessCanceled makes an attempt at an execution without an order key. If the execution has
// been canceled, it does not call the handler, but reports the execution as canceled.
func (r *runner) runUnlessCanceled(ctx context.Context, m *message) {
	//nolint:contextcheck // the context of all handlers, which outlives the attempt's
	canceled, err := r.cancellations.isCanceled(r.handlersCtx, m.start.ID)
	switch {
	case err != nil: // the runner is stopping
		r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, HandedBack, failureOutcome(err))
		r.handBack(m, 0)
		r.endSpan(ctx, failureOutcome(err))
		r.freeSlot()
	case canceled:
		r.reportCanceled(ctx, m)
	default:
		r.runHandler(ctx, m)
	}
}

// reportCanceled reports that an execution was canceled before its handler was called.
func (r *runner) reportCanceled(ctx context.Context, m *message) {
	r.reportFinal(m, execution.Progress{Status: execution.Canceled}, failureOutcome(ErrCanceled))
	r.endSpan(ctx, failureOutcome(ErrCanceled))
	r.freeSlot()
}

// watchCancellations cancels the contexts of the handlers whose executions have been canceled,
// until ctx ends.
func (r *runner) watchCancellations(ctx context.Context) {
	tick := time.NewTicker(cancelPollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.inFlight.anyHandlerRuns() && r.cancellations.awaitFreshRead(ctx) == nil {
			r.inFlight.cancelHandlers(r.cancellations.isKnownCanceled)
		}
	}
}
