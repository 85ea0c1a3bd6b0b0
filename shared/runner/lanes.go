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
// lane, and the server hands out one message of a lane at a time, whichever member asks. So the
// members need not agree among themselves. Two things are left to the runner:
//
// A runner that was frozen, or cut off, for longer than AckWait must not go on with an execution
// that another member may have by now: see lease.
//
// A server that has lost what its consumer had acknowledged delivers an execution again that has
// ended, after later ones of its key. Its final report was stored before it was acknowledged, so the
// runner looks for that before it calls the handler: see hasEnded.

// ErrLost is the cause of the end of a handler's context (context.Cause) when another member may have
// its execution: the server has confirmed no heartbeat for as long as AckWait. It concerns executions
// with an order key only. What the handler returns is ignored.
var ErrLost = errors.New("the runner was frozen or cut off for longer than the ack wait: another member may have the execution")

const (
	// lanesEvery is the interval at which a runner checks whether its queue has lanes.
	lanesEvery = 2 * time.Second
	// laneReading is the maximum duration of one check.
	laneReading = 5 * time.Second
	// laneSoonest and laneLatest are the shortest and the longest pause between two requests for the
	// next message of a lane that has none.
	laneSoonest, laneLatest = 50 * time.Millisecond, 500 * time.Millisecond
	// laneHold is the time for which a place is kept for the answer to such a request. The server
	// does not answer at once while a message of the lane is out.
	laneHold = 50 * time.Millisecond
	// laneErrors is the number of consecutive failed requests after which the consumer is looked up
	// again.
	laneErrors = 5
	// pullExpiryWithLanes is the expiry of a request for executions without an order key while the
	// queue has lanes: it keeps places that lanes could use.
	pullExpiryWithLanes = time.Second
)

// takeLanes takes the executions of the queue's lanes, as soon as it has some, until the context
// ends. main is the group's consumer.
func (r *runner) takeLanes(ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo) {
	var taking sync.WaitGroup
	defer taking.Wait()
	tick := time.NewTicker(lanesEvery)
	defer tick.Stop()
	for begun := 0; ; {
		for lanes := r.countLanes(ctx, js); begun < lanes; begun++ {
			lane := begun
			r.lanesBegin()
			taking.Go(func() { r.takeLane(ctx, js, main, lane) })
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// countLanes returns the number of lanes of the queue, or 0 if it cannot be determined. A runner with
// an account of its own cannot read the queue's record: it counts the consumers that the executor has
// made for its group.
func (r *runner) countLanes(ctx context.Context, js jetstream.JetStream) (lanes int) {
	ctx, cancel := context.WithTimeout(ctx, laneReading)
	defer cancel()
	if !r.ownAccount {
		lanes, err := stream.ReadLanes(ctx, js, r.Queue)
		if err == nil {
			return lanes
		}
		// The bucket's stream is not reachable, which says that the account has no permission.
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
			return 0
		}
	}
	for ; ; lanes++ {
		if _, err := js.Consumer(ctx, stream.Name, r.group().LaneConsumer(lanes)); err != nil {
			r.ownAccount = r.ownAccount || lanes > 0
			return lanes
		}
	}
}

// takeLane takes the executions of one lane, one after the other, until the context ends.
func (r *runner) takeLane(ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo, lane int) {
	var consumer jetstream.Consumer
	wait, failed := laneSoonest, 0
	for ctx.Err() == nil {
		if consumer == nil || failed >= laneErrors {
			found, err := stream.EnsureRunnerConsumer(ctx, js, r.group(), r.group().LaneConfig(lane, main))
			if err != nil {
				r.laneFailed(ctx, lane, err)
				pause(ctx, lanesEvery)
				continue
			}
			consumer, failed = found, 0
		}
		msg, asked, err := r.pullLane(ctx, consumer)
		switch {
		case err != nil:
			failed++
			pause(ctx, laneLatest)
		case msg == nil:
			failed = 0
			pause(ctx, wait)
			wait = min(wait*3/2, laneLatest)
		default:
			wait, failed = laneSoonest, 0
			r.takeOrdered(ctx, msg, asked)
		}
	}
}

// laneFailed logs that the consumer of a lane cannot be used.
func (r *runner) laneFailed(ctx context.Context, lane int, err error) {
	if ctx.Err() == nil {
		r.log(slog.LevelWarn, "a lane of ordered executions cannot be taken", func() []slog.Attr {
			return []slog.Attr{slog.Int("lane", lane), slog.String("error", err.Error())}
		})
	}
}

// takeOrdered begins an execution of a lane in a place that was taken, and waits until it is
// acknowledged or handed back. asked is when the message was asked for.
func (r *runner) takeOrdered(ctx context.Context, msg jetstream.Msg, asked time.Time) {
	if ctx.Err() != nil && !r.isLastAttempt(msg) {
		r.leave()
		_ = msg.Nak() // not begun: another member gets it at once
		return
	}
	r.unacknowledged.Add(1)
	o := &ordered{until: asked.Add(r.AckWait), ended: make(chan struct{})}
	r.begin(msg, o) //nolint:contextcheck // what a handler has done is reported after ctx has ended, too
	<-o.ended
}

// pullLane asks for the next message of a lane. The message is nil if there is none now; otherwise a
// place is taken for it.
func (r *runner) pullLane(ctx context.Context, consumer jetstream.Consumer) (msg jetstream.Msg, asked time.Time, err error) {
	select {
	case <-r.places:
	case <-ctx.Done():
		return nil, asked, nil
	}
	asked = time.Now()
	batch, err := consumer.FetchNoWait(1)
	if err != nil {
		r.leave()
		return nil, asked, err
	}
	hold := time.NewTimer(laneHold)
	defer hold.Stop()
	select {
	case msg = <-batch.Messages():
		if msg == nil {
			r.leave()
			return nil, asked, ignored(batch.Error())
		}
		return msg, asked, nil
	case <-hold.C:
	}
	// The place is free for others until the request is answered, or has expired.
	r.leave()
	if msg = <-batch.Messages(); msg == nil {
		return nil, asked, ignored(batch.Error())
	}
	place := time.NewTimer(r.AckWait / 4)
	defer place.Stop()
	select {
	case <-r.places:
		return msg, asked, nil
	case <-place.C:
	case <-ctx.Done():
	}
	_ = msg.Nak()
	return nil, asked, nil
}

// ignored returns nil for an error that only says that there is no message now.
func ignored(err error) error {
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
		return nil
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ordered is the part of a message in flight that only a message of a lane has.
type ordered struct {
	until time.Time     // the lease ends; guarded by the mu of underway
	lost  bool          // the lease has ended; guarded by the mu of underway
	ended chan struct{} // closed when the message was acknowledged, handed back or given up
}

// A lease says until when no other member can have a message of a lane: at least for AckWait after
// the server has noted that it is worked on. The first lease begins with the request for the
// message, which is not later than its delivery. A heartbeat extends the lease from the time at which
// it was sent, if the server's confirmation comes before the lease has ended: a confirmation that
// comes later does not tell whether the server had delivered the message to another member in
// between.

// holds reports whether the lease of a message has not ended. A message without an order key needs
// none.
func (u *underway) holds(m *message) bool {
	if m.ordered == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.holdsLocked(m, time.Now())
}

func (u *underway) holdsLocked(m *message, now time.Time) bool {
	m.ordered.lost = m.ordered.lost || now.After(m.ordered.until)
	return !m.ordered.lost
}

// renew sends a heartbeat of a message of a lane, and extends the lease when it is confirmed.
func (u *underway) renew(m *message, msg jetstream.Msg) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), u.ackWait)
	defer cancel()
	if _, err := u.nc.RequestWithContext(ctx, msg.Reply(), []byte("+WPI")); err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.holdsLocked(m, time.Now()) {
		m.ordered.until = sent.Add(u.ackWait)
	}
}

// hasEnded reports whether an execution has ended, by the last report that is stored of it. It waits
// for the answer as long as the context lasts. Where reports cannot be read, it returns false.
func (r *runner) hasEnded(ctx context.Context, m *message) (bool, error) {
	subject := stream.ProgressSubject(m.start.Queue, m.start.WorkflowID, m.start.ID)
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

// reportTries is how many questions for the last report may find no responder: more say that the
// runner's account may not read reports.
const reportTries = 20

// drop gives up a message whose lease has ended: it is neither acknowledged nor handed back, because
// another member may have it.
func (r *runner) drop(m *message, o outcome) {
	r.note(m.start, m.attempt, m.began, HandedBack, failure(fmt.Errorf("%w (%s)", ErrLost, o.reason)))
	r.underway.remove(m)
	r.done(m)
}

// done counts a message as acknowledged, handed back or given up.
func (r *runner) done(m *message) {
	r.unacknowledged.Done()
	if m.ordered != nil {
		close(m.ordered.ended)
	}
}
