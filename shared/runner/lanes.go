package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// Executions with an order key are in the lanes of their queue. The group has one consumer for each
// lane, and the server delivers one message of a lane at a time, no matter which member requests
// it. So the members need no coordination among themselves. Two things are left to the runner:
//
// A runner that was frozen or cut off for longer than AckWait must not continue an execution that
// another member may have by now: see hasLease.
//
// A server that has lost a consumer's acknowledgments redelivers an execution that has already
// ended, after later ones with the same key. Its final report was stored before it was
// acknowledged, so the runner looks for that report before it calls the handler: see hasEnded.

// ErrLost is the cause (context.Cause) of a handler's context when another member may have the
// execution, because the server has not confirmed a heartbeat for AckWait. It occurs only for
// executions with an order key. The handler's result is ignored.
var ErrLost = errors.New("the runner was frozen or cut off for longer than the ack wait: another " +
	"member may have the execution")

const (
	// laneHold is how long a concurrency slot is reserved for the response to a request for the
	// next message of a lane. The server does not respond immediately while a message of the lane
	// is unacknowledged.
	laneHold = 50 * time.Millisecond
	// pullExpiryShared is the expiry of a request for executions without an order key when others
	// also need concurrency slots: the request reserves slots that they could use.
	pullExpiryShared = time.Second
)

// lane is a lane of the queue. Its executions are in the shared stream and in the queue's own
// stream, if there is one; they have one order across both.
//
// At any time, all executions of a lane in one of the two streams are older than all those in the
// other, because an operator cannot move a queue to a stream where executions with an order key are
// still waiting from an earlier move. So the runner requests messages from the newer stream only
// once the group has finished with the older one. The queue's record determines which one is newer.
// It is read again after a message from the newer stream has arrived, because the queue may have
// moved in between.
type lane struct {
	number      int          // the number of the lane, from 0
	shared, own laneConsumer // the consumers in the shared and in the queue's own stream
	held        *heldMessage // nil means that no message is being held
}

// laneConsumer is the group's consumer of a lane in one stream.
type laneConsumer struct {
	stream.Layout
	consumer jetstream.Consumer // nil means that it has not been looked up yet
	failed   int                // number of consecutive failed requests
}

// consumeLane runs the executions of one lane, one after another, until ctx ends. main is the
// group's consumer in the shared stream.
func (r *runner) consumeLane(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo, number int,
) {
	l := &lane{number: number, own: laneConsumer{Layout: stream.Layout{Own: true}}}
	wait := soonest
	for ctx.Err() == nil {
		if !r.findLane(ctx, js, main, l) {
			pause(ctx, followEvery)
			continue
		}
		taken, err := r.runNext(ctx, js, l)
		switch {
		case err != nil:
			pause(ctx, latest)
		case taken:
			wait = soonest
		default:
			pause(ctx, wait)
			wait = min(wait*3/2, latest)
		}
	}
	if l.held != nil {
		_ = l.held.release().Nak() // not begun: another member gets it immediately
	}
}

// findLane looks up the consumers of a lane that have not been found yet or have failed several
// times. It reports whether all of them are available.
func (r *runner) findLane(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo, l *lane,
) bool {
	find := func(c *laneConsumer, main *jetstream.ConsumerInfo) bool {
		if c.consumer != nil && c.failed < pullErrors {
			return true
		}
		found, err := stream.EnsureRunnerConsumer(ctx, js, r.group(),
			r.group().LaneConfig(l.number, main))
		if err != nil {
			r.logLaneFailure(ctx, l.number, err)
			return false
		}
		c.consumer, c.failed = found, 0
		return true
	}
	if own := r.own.Load(); own == nil {
		l.own.consumer = nil
	} else if !find(&l.own, own.consumer.CachedInfo()) {
		return false
	}
	return find(&l.shared, main)
}

// runNext runs the next execution of a lane, and waits until it is acknowledged or handed back.
// taken is false if there is none at the moment.
func (r *runner) runNext(
	ctx context.Context, js jetstream.JetStream, l *lane,
) (taken bool, err error) {
	if l.own.consumer == nil && l.held == nil {
		return r.runNextFrom(ctx, js, l, &l.shared)
	}
	older, newer := &l.own, &l.shared
	if stream.Phase(r.phase.Load()).NewestLayout().Own {
		older, newer = newer, older
	}
	if older.consumer != nil {
		if taken, err = r.runNextFrom(ctx, js, l, older); taken || err != nil {
			return taken, err
		}
	}
	if l.held != nil {
		return r.runHeld(ctx, js, l)
	}
	if drained, err := r.laneDrained(ctx, js, l, older.Layout); !drained || newer.consumer == nil {
		return false, err
	}
	return r.runNextFrom(ctx, js, l, newer)
}

// runNextFrom runs the next execution of a lane in one stream.
func (r *runner) runNextFrom(
	ctx context.Context, js jetstream.JetStream, l *lane, c *laneConsumer,
) (taken bool, err error) {
	msg, asked, err := r.pullLane(ctx, c.consumer)
	if err != nil {
		c.failed++
		return false, err
	}
	c.failed = 0
	if msg == nil {
		return false, nil
	}
	if r.mayBegin(ctx, js, l, c.Layout, asked.Add(r.AckWait)) {
		r.runPulled(ctx, msg, asked)
		return true, nil
	}
	r.freeSlot()
	//nolint:contextcheck // it is held until it is begun or released
	l.held = r.hold(msg, asked.Add(r.AckWait))
	return true, nil
}

// runHeld runs the execution that is being held, if it may begin now.
func (r *runner) runHeld(
	ctx context.Context, js jetstream.JetStream, l *lane,
) (taken bool, err error) {
	layout := layoutOf(l.held.msg)
	if !r.mayBegin(ctx, js, l, layout, time.Now().Add(latest)) {
		return false, nil
	}
	select {
	case <-r.slots:
	case <-ctx.Done():
		return false, nil
	}
	until := l.held.until()
	msg := l.held.release()
	l.held = nil
	r.runPulled(ctx, msg, until.Add(-r.AckWait))
	return true, nil
}

// mayBegin reports whether an execution of a lane may begin. It may if its stream, given by layout,
// is the older one, or if the group has finished with the lane in the other stream. mayBegin reads
// the queue's record for each execution, because the queue may have moved to its own stream and
// back since follow read the record. It retries until the given time if it cannot determine that.
func (r *runner) mayBegin(
	ctx context.Context, js jetstream.JetStream, l *lane, layout stream.Layout, until time.Time,
) bool {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for ctx.Err() == nil {
		settings, err := stream.ReadQueueSettings(ctx, r.nc, r.Queue)
		if errors.Is(err, nats.ErrNoResponders) && l.own.consumer == nil {
			return true // the account lacks the permission, and therefore has no own stream
		}
		if err == nil {
			phase := settings.Stream.Phase
			r.phase.Store(int32(phase))
			switch {
			case !phase.HasOwnStream(), phase.NewestLayout() != layout:
				return true
			case !layout.Own && l.own.consumer == nil:
				return false // older executions wait where this runner does not look yet
			}
			var drained bool
			other := stream.Layout{Own: !layout.Own}
			if drained, err = r.laneDrained(ctx, js, l, other); err == nil {
				return drained
			}
		}
		pause(ctx, latest)
	}
	return false
}

// laneDrained reports whether the group has finished with all executions of a lane in a stream.
func (r *runner) laneDrained(
	ctx context.Context, js jetstream.JetStream, l *lane, layout stream.Layout,
) (bool, error) {
	return stream.Drained(ctx, js, layout.Name(r.Queue), r.group().LaneConsumer(l.number))
}

// logLaneFailure logs that the consumer of a lane cannot be used.
func (r *runner) logLaneFailure(ctx context.Context, lane int, err error) {
	if ctx.Err() == nil {
		r.log(slog.LevelWarn, "a lane of ordered executions cannot be taken", func() []slog.Attr {
			return []slog.Attr{slog.Int("lane", lane), slog.String("error", err.Error())}
		})
	}
}

// heldMessage is a message of a lane that must not begin yet. Meanwhile, heartbeats are sent for
// it.
type heldMessage struct {
	msg  jetstream.Msg
	stop func() // stops the heartbeats and waits for the last one

	mu    sync.Mutex
	lease time.Time // no other member can have the message before this
}

// hold keeps a message whose lease ends at the given time, and sends heartbeats for it.
func (r *runner) hold(msg jetstream.Msg, lease time.Time) *heldMessage {
	ctx, cancel := context.WithCancel(r.working)
	h := &heldMessage{msg: msg, lease: lease}
	stopped := make(chan struct{})
	h.stop = func() { cancel(); <-stopped }
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			sent := time.Now()
			asking, done := context.WithTimeout(ctx, r.AckWait)
			_, err := r.nc.RequestWithContext(asking, msg.Reply(), []byte("+WPI"))
			done()
			h.mu.Lock()
			if err == nil && time.Now().Before(h.lease) {
				h.lease = sent.Add(r.AckWait)
			}
			h.mu.Unlock()
			pause(ctx, r.AckWait/4)
		}
	}()
	return h
}

// until returns when the lease ends.
func (h *heldMessage) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// release stops the heartbeats and returns the message.
func (h *heldMessage) release() jetstream.Msg {
	h.stop()
	return h.msg
}

// runPulled runs an execution from a lane, and waits until its message is acknowledged or returned
// to the server. The caller has taken a concurrency slot. asked is when the message was requested.
func (r *runner) runPulled(ctx context.Context, msg jetstream.Msg, asked time.Time) {
	if ctx.Err() != nil && !r.isLastAttempt(msg) {
		r.freeSlot()
		_ = msg.NakWithDelay(returnDelay)
		return
	}
	r.unacknowledged.Add(1)
	o := &laneState{until: asked.Add(r.AckWait), ended: make(chan struct{})}
	//nolint:contextcheck // what a handler has done is reported after ctx has ended, too
	r.begin(msg, o)
	<-o.ended
}

// pullLane requests the next message of a lane. The message is nil if there is none at the moment;
// otherwise, pullLane has reserved a concurrency slot for it.
func (r *runner) pullLane(
	ctx context.Context, consumer jetstream.Consumer,
) (msg jetstream.Msg, asked time.Time, err error) {
	select {
	case <-r.slots:
	case <-ctx.Done():
		return nil, asked, nil
	}
	asked = time.Now()
	batch, err := consumer.FetchNoWait(1)
	if err != nil {
		r.freeSlot()
		return nil, asked, err
	}
	hold := time.NewTimer(laneHold)
	defer hold.Stop()
	select {
	case msg = <-batch.Messages():
		if msg == nil {
			r.freeSlot()
			return nil, asked, ignoreNoMessage(batch.Error())
		}
		return msg, asked, nil
	case <-hold.C:
	}
	// The slot is free for others until the request is answered or has expired.
	r.freeSlot()
	if msg = <-batch.Messages(); msg == nil {
		return nil, asked, ignoreNoMessage(batch.Error())
	}
	slotTimeout := time.NewTimer(r.AckWait / 4)
	defer slotTimeout.Stop()
	select {
	case <-r.slots:
		return msg, asked, nil
	case <-slotTimeout.C:
	case <-ctx.Done():
	}
	_ = msg.Nak()
	return nil, asked, nil
}

// ignoreNoMessage returns nil for an error that only means that there is no message at the moment.
func ignoreNoMessage(err error) error {
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
		return nil
	}
	return err
}

// pause sleeps for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// laneState is the part of the state of a message in flight that only messages of a lane have.
type laneState struct {
	until time.Time     // end of the lease; guarded by inFlight.mu
	lost  bool          // whether the lease has expired; guarded by inFlight.mu
	ended chan struct{} // closed when the message was acknowledged, handed back or given up
}

// A lease is the period in which no other member can have a message of a lane: at least AckWait
// from the moment when the server last recorded progress on it. The first lease begins with the
// request for the message, which precedes its delivery. If the server confirms a heartbeat before
// the lease has expired, the lease is extended from the moment when the heartbeat was sent. A later
// confirmation does not rule out that the server delivered the message to another member in
// between.

// hasLease reports whether the lease of a message is still valid. It returns true for a message
// without an order key, which needs no lease.
func (u *inFlight) hasLease(m *message) bool {
	if m.ordered == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasLeaseLocked(m, time.Now())
}

// hasLeaseLocked is like hasLease, for a message of a lane. The caller must hold mu.
func (u *inFlight) hasLeaseLocked(m *message, now time.Time) bool {
	m.ordered.lost = m.ordered.lost || now.After(m.ordered.until)
	return !m.ordered.lost
}

// renew sends a heartbeat for a message of a lane, and extends the lease if it is confirmed.
func (u *inFlight) renew(m *message, msg jetstream.Msg) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), u.ackWait)
	defer cancel()
	if _, err := u.nc.RequestWithContext(ctx, msg.Reply(), []byte("+WPI")); err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.hasLeaseLocked(m, time.Now()) {
		m.ordered.until = sent.Add(u.ackWait)
	}
}

// hasEnded reports whether an execution has ended, according to the last report stored for it. It
// retries until there is a response or ctx ends. If reports cannot be read, it returns false.
func (r *runner) hasEnded(ctx context.Context, m *message) (bool, error) {
	subject := m.layout.ProgressSubject(m.start.Queue, m.start.WorkflowID, m.start.ID)
	for tries := 0; ; tries++ {
		ended, err := stream.HasEnded(ctx, r.nc, subject)
		switch {
		case err == nil:
			return ended, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, nats.ErrNoResponders) && tries >= reportTries:
			return false, nil
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// reportTries is how many requests for the last report may fail with no responders. After that, the
// runner's NATS account is assumed to lack the permission to read reports.
const reportTries = 20

// dropExpired abandons a message whose lease has expired. The message is neither acknowledged nor
// handed back, because another member may have it.
func (r *runner) dropExpired(m *message, o outcome) {
	r.reportAttempt(m.start, m.attempt, m.began, HandedBack,
		failure(fmt.Errorf("%w (%s)", ErrLost, o.reason)))
	r.underway.remove(m)
	r.markDone(m)
}

// markDone counts a message as acknowledged, handed back or given up.
func (r *runner) markDone(m *message) {
	r.unacknowledged.Done()
	if m.ordered != nil {
		close(m.ordered.ended)
	}
}
