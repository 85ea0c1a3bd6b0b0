package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// A cancellation is a key of a bucket that the executor has stored before it looks whether any
// group was given the execution. If none was, it ends the execution as canceled, and answers so. A
// runner asks for new keys after a message has come and before its handler begins. So for each
// execution one of two things holds: it was delivered before the executor looked, then the executor
// leaves its end to the runner; or it was delivered after, then the key was stored before the
// runner asked, and the handler never begins. This needs no clock, and no runner that is alive.
// Messages that come together share a question, so it costs a runner with much to do little.
//
// A runner that finds the key reports the state CANCELED and acknowledges the message. The first
// final report that is recorded counts, for every reader.

// ErrCanceled is the cause of the end of a handler's context when an operator has canceled the
// execution (context.Cause). If the handler returns an error then, the execution is canceled; if
// not, it has succeeded.
var ErrCanceled = errors.New("the execution is canceled")

const (
	// cancelPoll is the interval at which the runner asks for cancellations of the executions that
	// its handlers work on.
	cancelPoll = time.Second
	// cancelAsk is the maximum duration of one question.
	cancelAsk = 2 * time.Second
	// cancelTries is the number of questions without an answer after which a runner that never got
	// an answer runs executions without asking.
	cancelTries = 3
	// cancelAgain is the pause between two attempts if cancellations cannot be read: the executor
	// is of an earlier version and has no bucket, or the runner's account may not read it.
	cancelAgain = 30 * time.Second
)

// cancellations holds the executions that are to end. It is safe for concurrent use.
type cancellations struct {
	nc *nats.Conn

	mu     sync.Mutex
	next   *question           // not asked yet; nil means that no call waits for one
	asking bool                // the bucket is being read
	ids    map[string]struct{} // the IDs of the executions that are to end
	// last is the revision of the newest key that was read.
	last uint64
	// readable says that a question was answered before: from then on none is given up.
	readable bool
	// failures counts the questions without an answer, as long as none was answered.
	failures int
	offUntil time.Time // no question is asked before; the zero time means that they are asked
}

// question is one reading of the bucket, which several wait for.
type question struct {
	done chan struct{} // closed when the reading has ended
	err  error         // of the reading; set before done is closed
}

func newCancellations(nc *nats.Conn) *cancellations {
	return &cancellations{nc: nc, ids: map[string]struct{}{}}
}

// has reports whether an execution is to end, by what the bucket holds after the call has begun. It
// waits for the answer as long as the context lasts.
func (c *cancellations) has(ctx context.Context, executionID string) (bool, error) {
	for {
		err := c.read(ctx)
		switch {
		case err == nil:
			return c.knows(executionID), nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (c *cancellations) knows(executionID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.ids[executionID]
	return ok
}

// read waits for a reading that begins after the call.
func (c *cancellations) read(ctx context.Context) error {
	c.mu.Lock()
	if time.Now().Before(c.offUntil) {
		c.mu.Unlock()
		return nil
	}
	if c.next == nil {
		c.next = &question{done: make(chan struct{})}
	}
	waiting := c.next
	if !c.asking {
		c.asking = true
		go c.answer() //nolint:contextcheck // several calls wait for the result
	}
	c.mu.Unlock()
	select {
	case <-waiting.done:
		return waiting.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer reads the bucket for the calls that wait, until none does.
func (c *cancellations) answer() {
	for {
		c.mu.Lock()
		now := c.next
		c.next = nil
		if now == nil {
			c.asking = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		now.err = c.catchUp()
		close(now.done)
	}
}

// catchUp reads the keys that are new.
func (c *cancellations) catchUp() error {
	for {
		c.mu.Lock()
		from := c.last + 1
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), cancelAsk)
		id, revision, err := stream.NextCancellation(ctx, c.nc, from)
		cancel()
		c.mu.Lock()
		switch {
		case err == nil && id == "":
			c.readable = true
			c.mu.Unlock()
			return nil
		case err == nil:
			c.readable = true
			c.ids[id], c.last = struct{}{}, revision
		case errors.Is(err, jetstream.ErrBucketNotFound):
			// Made anew, it begins with the first revision.
			c.last, c.offUntil = 0, time.Now().Add(cancelAsk)
			c.mu.Unlock()
			return nil
		case !c.readable && (errors.Is(err, nats.ErrNoResponders) || c.failures >= cancelTries):
			c.failures, c.offUntil = 0, time.Now().Add(cancelAgain)
			c.mu.Unlock()
			return nil
		default:
			c.failures++
			c.mu.Unlock()
			return err
		}
		c.mu.Unlock()
	}
}

// runUnlessCanceled makes an attempt, or reports that the execution is canceled.
func (r *runner) runUnlessCanceled(ctx context.Context, m *message) {
	//nolint:contextcheck // the context of all handlers, which outlives the attempt's
	canceled, err := r.cancellations.has(r.working, m.start.ID)
	switch {
	case err != nil: // the runner stops
		r.note(m.start, m.attempt, m.began, HandedBack, failure(err))
		r.handBack(m, 0)
		r.endSpan(ctx, failure(err))
		r.leave()
	case canceled:
		r.end(m, execution.Progress{Status: execution.Canceled}, failure(ErrCanceled))
		r.endSpan(ctx, failure(ErrCanceled))
		r.leave()
	default:
		r.run(ctx, m)
	}
}

// watchCancellations ends the contexts of handlers whose executions are canceled, until the context
// ends.
func (r *runner) watchCancellations(ctx context.Context) {
	tick := time.NewTicker(cancelPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.underway.handles() && r.cancellations.read(ctx) == nil {
			r.underway.cancel(r.cancellations.knows)
		}
	}
}
