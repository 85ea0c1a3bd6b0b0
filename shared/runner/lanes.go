package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// Executions with an order key are in the lanes of their queue: a hash of the workflow and the key
// selects the lane. The group has one consumer for each lane, and the server delivers one message
// of a lane at a time, no matter which member requests it. So the members need no coordination
// among themselves. But the server cannot prevent two problems, which the runner must handle:
//
// Two members may have the same execution, if one of them was frozen or cut off for longer than
// AckWait, or if the consumer has a new leader. A runner must not begin or continue an execution
// that another member may be running: see takeLease.
//
// A server that has lost a consumer's acknowledgments redelivers an execution that has already
// ended, after later ones with the same key. A runner acknowledges an execution only after its
// final report has been stored. So it looks for that report before it calls the handler: see
// hasEndedInGroup.

// ErrLost is the cause (context.Cause) of a handler's context when another member of the group may
// be running the execution: either the server has not confirmed a heartbeat for four fifths of
// AckWait, or it has delivered the message again. Only executions with an order key can be lost.
// The handler's result is ignored.
var ErrLost = errors.New("another member may have the execution: the runner was frozen or cut " +
	"off, or NATS delivered the message again")

const (
	// laneSlotReservationTime is how long the runner reserves a concurrency slot after it has
	// requested the next message of a lane. The server does not respond immediately if a message of
	// the lane is unacknowledged; after this time, other executions can use the slot.
	laneSlotReservationTime = 50 * time.Millisecond
	// pullExpirySharedSlots is how long a request for executions without an order key stays open
	// while the runner also consumes from lanes or from a second stream. It is short, because an
	// open request reserves concurrency slots that the lanes or the second stream could use.
	pullExpirySharedSlots = time.Second
)

// lane is a lane of the queue. Its executions are in the shared stream and, if there is one, in the
// queue's own stream. Their order must be kept across both.
//
// At any time, all executions of a lane in one of the two streams are older than all those in the
// other. The reason is that an operator cannot move a queue back to a stream that still contains
// waiting executions with an order key. So the runner requests messages from the newer stream only
// once the group has finished with the older one. The queue's record determines which stream is
// newer. The runner reads the record again when a message from the newer stream has arrived,
// because the queue may have moved since the last read.
type lane struct {
	number                      int          // the number of the lane, from 0
	sharedConsumer, ownConsumer laneConsumer // in the shared and the own stream
}

// laneConsumer is the group's consumer of a lane in one stream.
type laneConsumer struct {
	stream.Layout
	consumer jetstream.Consumer // nil means that it has not been looked up yet
	failures int                // number of consecutive failed requests
	// waiting is a message that arrived from the newer stream before the group had finished with
	// the older one. nil means that no message is waiting. While the queue moves, both consumers of
	// the lane may hold a message. Before the execution of either message begins, mayBegin
	// determines again which stream is the older one.
	waiting *waitingMessage
}

// consumeLane runs the executions of one lane, one after another, until ctx ends. main is the
// group's consumer in the shared stream.
func (r *runner) consumeLane(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo, number int,
) {
	l := &lane{number: number, ownConsumer: laneConsumer{Layout: stream.Layout{Own: true}}}
	wait := minPullPause
	for ctx.Err() == nil {
		if !r.findLaneConsumers(ctx, js, main, l) {
			sleep(ctx, settingsPollInterval)
			continue
		}
		taken, err := r.runNext(ctx, js, l)
		switch {
		case err != nil:
			sleep(ctx, maxPullPause)
		case taken:
			wait = minPullPause
		default:
			sleep(ctx, wait)
			wait = min(wait*3/2, maxPullPause)
		}
	}
	r.finishWaitingMessages(js, l)
}

// finishWaitingMessages hands back or runs the waiting messages of a lane when the runner stops. It
// hands a message back to the group, unless this is the message's last attempt: if it handed such a
// message back, another member would report the execution as failed without calling the handler. So
// the runner waits until such an execution may begin, and runs it. If the execution may still not
// begin when handlers must stop, its message is handed back after all.
func (r *runner) finishWaitingMessages(js jetstream.JetStream, l *lane) {
	consumers := []*laneConsumer{&l.sharedConsumer, &l.ownConsumer}
	handBack := func(c *laneConsumer) {
		r.handBackWithoutLease(r.handlersCtx, c.waiting.stopHeartbeats())
		c.waiting = nil
	}
	for _, c := range consumers {
		if c.waiting != nil && !r.isLastAttempt(c.waiting.msg) {
			handBack(c)
		}
	}
	for r.handlersCtx.Err() == nil &&
		(l.sharedConsumer.waiting != nil || l.ownConsumer.waiting != nil) {
		began := false
		for _, c := range consumers {
			if c.waiting != nil {
				taken, _ := r.runWaitingMessage(r.handlersCtx, js, l, c)
				began = began || taken
			}
		}
		if !began {
			sleep(r.handlersCtx, maxPullPause)
		}
	}
	for _, c := range consumers {
		if c.waiting != nil {
			handBack(c)
		}
	}
}

// findLaneConsumers looks up the lane's consumers in the shared stream and, if the runner uses it,
// in the queue's own stream. It skips a consumer that has been found already, unless the last
// maxPullFailures requests to that consumer have failed. It reports whether all of these consumers
// are available.
func (r *runner) findLaneConsumers(
	ctx context.Context, js jetstream.JetStream, main *jetstream.ConsumerInfo, l *lane,
) bool {
	find := func(c *laneConsumer, main *jetstream.ConsumerInfo) bool {
		if c.consumer != nil && c.failures < maxPullFailures {
			return true
		}
		found, err := stream.EnsureRunnerConsumer(ctx, js, r.group(),
			r.group().LaneConsumerConfig(l.number, main))
		if err != nil {
			r.logLaneFailure(ctx, l.number, err)
			return false
		}
		c.consumer, c.failures = found, 0
		return true
	}
	if own := r.ownStreamSource.Load(); own == nil {
		l.ownConsumer.consumer = nil
	} else if !find(&l.ownConsumer, own.consumer.CachedInfo()) {
		return false
	}
	return find(&l.sharedConsumer, main)
}

// runNext runs the next execution of a lane, and waits until its message is acknowledged or handed
// back. If the server has just delivered the message but the execution may not begin yet, runNext
// stores the message in laneConsumer.waiting. taken reports whether it has run an execution or
// stored a message.
func (r *runner) runNext(
	ctx context.Context, js jetstream.JetStream, l *lane,
) (taken bool, err error) {
	if l.ownConsumer.consumer == nil && l.ownConsumer.waiting == nil &&
		l.sharedConsumer.waiting == nil {
		return r.runNextFrom(ctx, js, l, &l.sharedConsumer)
	}
	older, newer := &l.ownConsumer, &l.sharedConsumer
	if stream.QueueStreamPhase(r.queuePhase.Load()).NewestLayout().Own {
		older, newer = newer, older
	}
	if older.consumer != nil || older.waiting != nil {
		if taken, err = r.runNextFrom(ctx, js, l, older); taken || err != nil {
			return taken, err
		}
	}
	if newer.waiting != nil {
		return r.runWaitingMessage(ctx, js, l, newer)
	}
	if drained, err := r.isLaneDrained(ctx, js, l, older.Layout); !drained ||
		newer.consumer == nil {
		return false, err
	}
	return r.runNextFrom(ctx, js, l, newer)
}

// runNextFrom runs the next execution of a lane in one stream. Its message is c.waiting, if that is
// set, and otherwise the next one that the server delivers. If the execution of a delivered message
// may not begin yet, runNextFrom stores the message in c.waiting. taken reports whether it has run
// an execution or stored a message.
func (r *runner) runNextFrom(
	ctx context.Context, js jetstream.JetStream, l *lane, c *laneConsumer,
) (taken bool, err error) {
	if c.waiting != nil {
		return r.runWaitingMessage(ctx, js, l, c)
	}
	msg, err := r.pullLane(ctx, c.consumer)
	if err != nil {
		c.failures++
		return false, err
	}
	c.failures = 0
	if msg == nil {
		return false, nil
	}
	//nolint:contextcheck // a runner that stops runs the last attempt: handed back, it would fail
	asking := ctx
	if r.isLastAttempt(msg) {
		asking = r.handlersCtx
	}
	if r.mayBegin(asking, js, l, c.Layout) {
		r.runLaneMessage(ctx, l.number, msg)
		return true, nil
	}
	r.freeSlot()
	c.waiting = r.startHeartbeats(msg)
	return true, nil
}

// runWaitingMessage runs the execution of the message in c.waiting, if it may begin now. taken
// reports whether it was run.
func (r *runner) runWaitingMessage(
	ctx context.Context, js jetstream.JetStream, l *lane, c *laneConsumer,
) (taken bool, err error) {
	if !r.mayBegin(ctx, js, l, c.Layout) {
		return false, nil
	}
	select {
	case <-r.freeSlots:
	case <-ctx.Done():
		return false, nil
	}
	msg := c.waiting.stopHeartbeats()
	c.waiting = nil
	r.runLaneMessage(ctx, l.number, msg)
	return true, nil
}

// mayBegin reports whether an execution of a lane may begin. It may if its stream, given by layout,
// is the older one, or if the group has finished with the lane in the other stream. mayBegin reads
// the queue's record for each execution, because the queue may have moved to its own stream and
// back since consumeLanesAndOwnStream read the record. If a request fails, mayBegin retries for a
// quarter of AckWait, and then returns false.
//
// There is one exception: if nothing responds to the request for the record, and the runner has
// never read the record nor found the lane's consumer in the queue's own stream, mayBegin assumes
// that the runner's NATS account may not read the record. The runner then consumes only from the
// shared stream, so mayBegin returns true.
func (r *runner) mayBegin(
	ctx context.Context, js jetstream.JetStream, l *lane, layout stream.Layout,
) bool {
	ctx, cancel := context.WithTimeout(ctx, r.AckWait/4)
	defer cancel()
	for ctx.Err() == nil {
		settings, err := stream.ReadQueueSettings(ctx, r.nc, r.Queue)
		if errors.Is(err, nats.ErrNoResponders) && l.ownConsumer.consumer == nil &&
			!r.hasReadQueueSettings.Load() {
			return true // no permission: the runner consumes only the shared stream
		}
		if err == nil {
			r.hasReadQueueSettings.Store(true)
			phase := settings.Stream.Phase
			r.queuePhase.Store(int32(phase))
			switch {
			case !phase.HasOwnStream(), phase.NewestLayout() != layout:
				return true
			case !layout.Own && l.ownConsumer.consumer == nil:
				// Older executions wait in the queue's own stream, which this runner does not
				// consume yet.
				return false
			}
			var drained bool
			other := stream.Layout{Own: !layout.Own}
			if drained, err = r.isLaneDrained(ctx, js, l, other); err == nil {
				return drained
			}
		}
		sleep(ctx, maxPullPause)
	}
	return false
}

// isLaneDrained reports whether the group has finished with all executions of a lane in a stream.
func (r *runner) isLaneDrained(
	ctx context.Context, js jetstream.JetStream, l *lane, layout stream.Layout,
) (bool, error) {
	return stream.IsConsumerDrained(ctx, js, layout.StreamName(r.Queue),
		r.group().LaneConsumerName(l.number))
}

// logLaneFailure logs that the consumer of a lane cannot be used, unless ctx has ended.
func (r *runner) logLaneFailure(ctx context.Context, lane int, err error) {
	if ctx.Err() == nil {
		r.log(slog.LevelWarn, "a lane of ordered executions cannot be taken", func() []slog.Attr {
			return []slog.Attr{slog.Int("lane", lane), slog.String("error", err.Error())}
		})
	}
}

// waitingMessage is a message of a lane whose execution must not begin yet. The runner sends
// heartbeats for the message, so that the server does not redeliver it.
type waitingMessage struct {
	msg  jetstream.Msg
	stop func() // stops the heartbeats and waits for the last one
}

// startHeartbeats sends heartbeats for a message until stopHeartbeats is called or handlers must
// stop.
func (r *runner) startHeartbeats(msg jetstream.Msg) *waitingMessage {
	ctx, cancel := context.WithCancel(r.handlersCtx)
	stopped := make(chan struct{})
	h := &waitingMessage{msg: msg, stop: func() { cancel(); <-stopped }}
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			_ = msg.InProgress()
			sleep(ctx, r.AckWait/4)
		}
	}()
	return h
}

// stopHeartbeats stops the heartbeats and returns the message.
func (h *waitingMessage) stopHeartbeats() jetstream.Msg {
	h.stop()
	return h.msg
}

// runLaneMessage runs an execution from a lane, and waits until its message is acknowledged or
// handed back. If the runner is stopping, and this is not the message's last attempt,
// runLaneMessage hands the message back immediately. The caller has taken a concurrency slot.
func (r *runner) runLaneMessage(ctx context.Context, lane int, msg jetstream.Msg) {
	if ctx.Err() != nil && !r.isLastAttempt(msg) {
		r.freeSlot()
		r.handBackWithoutLease(ctx, msg)
		return
	}
	r.unacknowledgedMessages.Add(1)
	state := &laneMessageState{ended: make(chan struct{}), lane: lane}
	//nolint:contextcheck // what a handler has done is reported after ctx has ended, too
	r.beginAttempt(msg, state)
	<-state.ended
}

// pullLane requests the next message of a lane. The message is nil if there is none at the moment;
// otherwise, pullLane has reserved a concurrency slot for it.
func (r *runner) pullLane(
	ctx context.Context, consumer jetstream.Consumer,
) (msg jetstream.Msg, err error) {
	select {
	case <-r.freeSlots:
	case <-ctx.Done():
		return nil, nil
	}
	pull, err := newLanePull(r.nc, consumer.CachedInfo())
	if err != nil {
		r.freeSlot()
		return nil, err
	}
	msg, err = pull.next(ctx, laneSlotReservationTime)
	if msg == nil {
		r.freeSlot()
	}
	if !errors.Is(err, errNoResponse) {
		return msg, err
	}
	// The request stays open, but without a reserved slot, so that other executions can use the
	// slot meanwhile.
	if msg, err = pull.finish(ctx); msg == nil {
		return nil, err
	}
	if r.reserveSlot(ctx, msg) {
		return msg, nil
	}
	r.handBackWithoutLease(ctx, msg)
	return nil, nil
}

// lastDeliveryCheckTimeout is how long handBackWithoutLease waits for a response from the
// consumer's leader.
const lastDeliveryCheckTimeout = 2 * time.Second

// handBackWithoutLease hands a message of a lane back to the group before its execution has begun.
// It does so only if the consumer's leader confirms in time that the message is the last one that
// the consumer has delivered. Without that confirmation, another member may already be working on
// the message. The server would still accept the negative acknowledgment, and deliver the message
// to a third member. ctx may have ended.
func (r *runner) handBackWithoutLease(ctx context.Context, msg jetstream.Msg) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastDeliveryCheckTimeout)
	defer cancel()
	if isLast, err := stream.IsLastDelivery(ctx, r.inFlight.js, msg); err == nil && isLast {
		_ = msg.NakWithDelay(nakDelay)
	}
}

// reserveSlot reserves a concurrency slot for a message of a lane. It returns false if no slot
// becomes free within a quarter of AckWait, or before ctx ends. If this is the message's last
// attempt, it ignores both limits: it waits for a slot as long as handlers may run, and sends
// heartbeats for the message meanwhile.
func (r *runner) reserveSlot(ctx context.Context, msg jetstream.Msg) bool {
	if r.isLastAttempt(msg) {
		//nolint:contextcheck // a runner that stops runs the last attempt, too
		defer r.startHeartbeats(msg).stopHeartbeats()
		select {
		case <-r.freeSlots:
			return true
		case <-r.handlersCtx.Done():
			return false
		}
	}
	timeout := time.NewTimer(r.AckWait / 4)
	defer timeout.Stop()
	select {
	case <-r.freeSlots:
		return true
	case <-timeout.C:
	case <-ctx.Done():
	}
	return false
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// laneMessageState is the additional state that a message of a lane has while it is in flight.
type laneMessageState struct {
	expiresAt time.Time     // zero before takeLease; guarded by inFlightMessages.mu
	lost      bool          // whether the lease has ended; guarded by inFlightMessages.mu
	ended     chan struct{} // closed when the message is acknowledged, handed back or given up
	lane      int           // the number of the lane, from 0
	// lastReport is the last known report on the execution. It is nil if reports cannot be read,
	// have not been read yet, or are ignored after maxReportRefusals; guarded by
	// inFlightMessages.mu.
	lastReport *stream.LastReport
}

// A lease is the period in which a handler may work on a message of a lane. No other member gets
// the message for AckWait after the consumer's leader has received a heartbeat for it. The lease
// ends earlier, so that the handler has time to stop: see leaseEnd.
//
// A delivery alone does not begin a lease. A new leader of the consumer knows when heartbeats were
// received, but not when a message was delivered: it uses the time at which the message was stored.
// It therefore redelivers an older message 0.5 to 1.5 s after its election, regardless of the ack
// wait (nats-server 2.15, consumer.go: deliverMsg passes the message's time to updateDelivered, and
// applyState sets the timer). So the runner first sends a heartbeat, and then asks the consumer's
// leader whether this is still the consumer's last delivery. If it is, the lease begins at the
// heartbeat. Later heartbeats extend the lease in the same way, if they are confirmed before it has
// expired.
//
// A leader confirms a heartbeat before its followers know of it. If the leader stops at that
// moment, the next one does not know of the heartbeat. The second heartbeat is therefore sent
// before the next leader would redeliver the message: see secondHeartbeatDelay.

// leaseEnd returns the end of a lease whose heartbeat was sent at the given time. Another member
// may get the message once the ack wait has passed, so the lease ends a fifth of the ack wait
// before that. The runner may take half of this margin to notice the end (see
// performDueActionsPeriodically). The other half gives the handler time to stop.
func leaseEnd(sent time.Time, ackWait time.Duration) time.Time {
	return sent.Add(ackWait - ackWait/5)
}

// secondHeartbeatDelay is the time from the start of a handler to the second heartbeat. It is
// shorter than 0.5 s, because a new leader of a consumer redelivers nothing before that time.
const secondHeartbeatDelay = 250 * time.Millisecond

// hasLease reports whether the lease of a message is still valid. A message without an order key
// needs no lease, so hasLease returns true.
func (u *inFlightMessages) hasLease(m *message) bool {
	if m.laneState == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasLeaseLocked(m, time.Now())
}

// hasFreshLease reports whether the lease of a message of a lane is valid, and at least half of
// AckWait is left of it.
func (u *inFlightMessages) hasFreshLease(m *message) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasLeaseLocked(m, time.Now()) && time.Until(m.laneState.expiresAt) >= u.ackWait/2
}

// hasLeaseLocked is like hasLease, for a message of a lane. The caller must hold mu.
func (u *inFlightMessages) hasLeaseLocked(m *message, now time.Time) bool {
	m.laneState.lost = m.laneState.lost || now.After(m.laneState.expiresAt)
	return !m.laneState.lost
}

// takeLease begins the lease of a message of a lane. It returns false if the message has been
// delivered to another member, or is no longer pending. It retries until there is a response, and
// returns an error if AckWait passes or ctx ends before that. After AckWait, the server delivers
// the message again, if the consumer still exists.
func (u *inFlightMessages) takeLease(ctx context.Context, m *message) (bool, error) {
	trying, cancel := context.WithTimeout(ctx, u.ackWait)
	defer cancel()
	var failure error
	for trying.Err() == nil {
		until, isLast, err := u.sendHeartbeat(trying, m)
		if err == nil {
			u.mu.Lock()
			defer u.mu.Unlock()
			m.laneState.expiresAt, m.laneState.lost = until, !isLast
			return isLast, nil
		}
		if failure == nil || trying.Err() == nil {
			failure = err
		}
		sleep(trying, 100*time.Millisecond)
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return false, fmt.Errorf("the lease was not confirmed within %s: %w", u.ackWait, failure)
}

// renewLease sends a heartbeat for a message of a lane. It extends the lease if the heartbeat is
// confirmed before the lease has expired, and ends it if another member has the message.
func (u *inFlightMessages) renewLease(m *message) {
	until, isLast, err := u.sendHeartbeat(context.Background(), m)
	if err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !isLast {
		m.laneState.lost = true
	}
	if u.hasLeaseLocked(m, time.Now()) {
		m.laneState.expiresAt = until
	}
}

// sendHeartbeat sends a heartbeat for a message of a lane and waits for the confirmation. isLast
// reports whether this message is still pending and is the last one that the consumer has
// delivered. If so, until is the end of the message's lease.
func (u *inFlightMessages) sendHeartbeat(
	ctx context.Context, m *message,
) (until time.Time, isLast bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, u.ackWait)
	defer cancel()
	u.mu.Lock()
	msg := m.Msg
	u.mu.Unlock()
	sent := time.Now()
	if _, err := u.nc.RequestWithContext(ctx, msg.Reply(), []byte("+WPI")); err != nil {
		return until, false, err
	}
	isLast, err = stream.IsLastDelivery(ctx, u.js, msg)
	return leaseEnd(sent, u.ackWait), isLast, err
}

// Each group of a queue runs every execution. All groups report on the same subject, and a runner
// can read only the last report on it. So a report on an execution with an order key also names the
// other groups that have ended the execution. The runner takes their names from the last report
// that it has read. If the stream has stored another report since then, it refuses the new one, and
// the runner reads the last report again and builds a new version.

// hasEndedInGroup reports whether the group has ended an execution, according to the last report
// stored for it. It retries a failed read until ctx ends. There is one exception: if the runner has
// never been able to read a report in that stream, and nothing responds to maxUnansweredReads
// requests in a row, hasEndedInGroup assumes that the runner's NATS account may not read reports
// there. It then returns false and a nil error.
func (r *runner) hasEndedInGroup(ctx context.Context, m *message) (bool, error) {
	for unanswered := 0; ; {
		last, err := r.readLastReport(ctx, m)
		switch {
		case err == nil:
			r.inFlight.setLastReport(m, &last)
			return last.EndedInGroup, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case !errors.Is(err, nats.ErrNoResponders):
			unanswered = 0
		default:
			unanswered++
			_, readable := r.readableProgressStreams.Load(stream.StreamOf(m.progressSubject()))
			if unanswered >= maxUnansweredReads && !readable {
				return false, nil
			}
		}
		sleep(ctx, unansweredReadPause)
	}
}

// readLastReport makes one request for the last report on an execution. It does not retry: if the
// request or the response is lost, it returns an error.
func (r *runner) readLastReport(ctx context.Context, m *message) (stream.LastReport, error) {
	ctx, cancel := context.WithTimeout(ctx, reportReadTimeout)
	defer cancel()
	subject := m.progressSubject()
	last, err := stream.ReadLastReport(ctx, r.nc, subject, r.Group)
	if err == nil {
		r.readableProgressStreams.Store(stream.StreamOf(subject), true)
	}
	return last, err
}

// progressSubject returns the subject of the reports on the message's execution.
func (m *message) progressSubject() string {
	return m.layout.ProgressSubject(m.start.Queue, m.start.WorkflowID, m.start.ID)
}

// rebuildReport returns a new version of a final report that the stream has refused because another
// report was stored first. It returns nil if no report is needed, because this group has already
// ended the execution: either the stream has stored an earlier version of this report after all, or
// another member has reported. refusals is the number of times that the stream has refused the
// report. If it exceeds maxReportRefusals, rebuildReport returns a report that the stream accepts
// in any case, although this may hide the final report of another group.
func (r *runner) rebuildReport(m *message, refusals int) (*nats.Msg, error) {
	if refusals > maxReportRefusals {
		r.inFlight.setLastReport(m, nil)
		return r.progressMessage(m, m.finalProgress)
	}
	ctx := context.Background()
	// A replica that lags behind may have responded with an older report. Wait before reading
	// again, longer each time.
	sleep(ctx, time.Duration(refusals-1)*10*time.Millisecond)
	last, err := r.readLastReport(ctx, m)
	if err != nil {
		return nil, err
	}
	if last.EndedInGroup {
		return nil, nil //nolint:nilnil // there is nothing to report
	}
	r.inFlight.setLastReport(m, &last)
	return r.progressMessage(m, m.finalProgress)
}

// maxReportRefusals is how many times the stream may refuse a final report because another report
// was stored first. After that, the runner sends a report that the stream accepts in any case.
const maxReportRefusals = 10

// setLastReport sets the last known report on an ordered execution. If last is nil, the stream
// accepts the next report whatever other reports it has stored.
func (u *inFlightMessages) setLastReport(m *message, last *stream.LastReport) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m.laneState.lastReport = last
}

// lastReport returns the last known report on an execution, or nil.
func (u *inFlightMessages) lastReport(m *message) *stream.LastReport {
	if m.laneState == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return m.laneState.lastReport
}

// reportReadTimeout is the maximum duration of one request for the last report.
const reportReadTimeout = 2 * time.Second

// A runner that has never read a report assumes that its NATS account lacks the permission to do so
// if nothing responds to maxUnansweredReads requests in a row, with a pause after each.
const (
	maxUnansweredReads  = 20
	unansweredReadPause = 100 * time.Millisecond
)

// dropLostMessage abandons a message whose lease has expired. The message is neither acknowledged
// nor handed back, because another member may be working on it.
func (r *runner) dropLostMessage(m *message, o outcome) {
	r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, HandedBack,
		failureOutcome(fmt.Errorf("%w (%s)", ErrLost, o.errText)))
	r.inFlight.remove(m)
	r.markDone(m)
}

// markDone records that the runner has finished with a message: it has acknowledged the message,
// handed it back, or given it up. Run returns only when it has finished with all messages. A lane
// takes its next message only when it has finished with the previous one.
func (r *runner) markDone(m *message) {
	r.unacknowledgedMessages.Done()
	if m.laneState != nil {
		close(m.laneState.ended)
	}
}
