package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/ack"
)

// hangGrace is how long a handler may continue after its context has ended. After that, the runner
// abandons the handler and retries the execution.
const hangGrace = time.Second

// inFlightMessages holds the messages in flight until they are acknowledged. It sends heartbeats
// for them, reports executions as running once their handlers have worked for a while, abandons
// handlers that hang, and repeats each final report until the stream has stored it. One loop serves
// all messages, because a goroutine and timers for each message would cost more than a quick
// handler.
type inFlightMessages struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	acks *ack.Publisher // for reports on executions in the shared stream
	// ownAcks is for reports on executions in the queue's own stream. It is nil until
	// openOwnPublisher is called.
	ownAcks       *ack.Publisher
	ackWait       time.Duration                          // Options.AckWait
	announceAfter time.Duration                          // Options.ReportRunningAfter
	announce      func(*message)                         // reports the execution as running
	abandon       func(context.Context, *message)        // called for a handler that hangs
	waitsForRoom  func(*message, error)                  // called each AckWait if NATS is full
	renew         func(*message, int) (*nats.Msg, error) // builds a refused report again
	timeout       time.Duration                          // maximum duration of an attempt
	working       context.Context                        //nolint:containedctx // runner.working
	stop          chan struct{}                          // closed to stop the loop
	stopped       chan struct{}                          // closed when the loop has returned

	mu       sync.Mutex
	messages map[messageKey]*message
}

// messageKey identifies the message of an execution. The sequence number alone is not enough,
// because a stream that a power cut has rolled back reuses sequence numbers.
type messageKey struct {
	sequence uint64 // in the stream that holds the start message
	id       string // of the execution
}

// message is a message in flight with its current attempt. inFlightMessages.mu guards the fields in
// the second part, until the message is removed.
type message struct {
	messageKey
	layout   stream.Layout // where the start message is stored
	start    *execution.Start
	attempt  int                // counts from 1
	began    time.Time          // when the message arrived
	calledAt time.Time          // when the handler was called
	ordered  *leaseState        // nil for a message without an order key
	final    execution.Progress // content of the final report, set before report

	// The fields below are guarded by inFlightMessages.mu.
	jetstream.Msg           // the last delivery
	heartbeat     time.Time // when the last heartbeat was sent
	// handling is the handler's context. It is nil before the handler is called, and after it has
	// returned or been abandoned.
	handling  context.Context         //nolint:containedctx // it is not the context of a call
	stop      context.CancelCauseFunc // cancels the handler's context
	announced bool                    // whether the execution was reported as running
	overdue   time.Time               // when the end of the handler's context was first seen
	report    *nats.Msg               // the final report; nil until there is one
	reported  time.Time               // when AckWait began for the report; see handleReply
	sent      time.Time               // when the report was last sent
	err       error                   // why the report is not stored yet
	noRoom    error                   // last refusal for lack of room, not logged yet; or nil
	warned    time.Time               // when a lack of room was last logged
	published func(error)             // called with nil once it is stored, or an error
	refusals  int                     // number of refusals because of another report
}

// newInFlightMessages returns an inFlightMessages, which the caller must close.
func newInFlightMessages(r *runner, js jetstream.JetStream) (*inFlightMessages, error) {
	acks, err := ack.New(r.nc, stream.ProgressName)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the stream's confirmations: %w", err)
	}
	u := &inFlightMessages{
		nc:            r.nc,
		js:            js,
		acks:          acks,
		ackWait:       r.AckWait,
		announce:      r.reportRunning,
		announceAfter: r.ReportRunningAfter,
		abandon:       r.finishTimedOut,
		waitsForRoom:  r.logWaitingReport,
		renew:         r.renewReport,
		timeout:       r.Timeout,
		working:       r.working,
		stop:          make(chan struct{}),
		stopped:       make(chan struct{}),
		messages:      map[messageKey]*message{},
	}
	go u.runPeriodically()
	return u, nil
}

// openOwnPublisher opens the publisher for reports on executions from the queue's own stream,
// unless it is open already. It must be called before the first message from that stream is added.
func (u *inFlightMessages) openOwnPublisher(queue string) error {
	if u.ownAcks != nil {
		return nil
	}
	acks, err := ack.New(u.nc, stream.OwnProgressStreamName(queue))
	if err != nil {
		return fmt.Errorf("subscribe to the own stream's confirmations: %w", err)
	}
	u.ownAcks = acks
	return nil
}

func (u *inFlightMessages) close() {
	close(u.stop)
	<-u.stopped
	u.acks.Close()
	if u.ownAcks != nil {
		u.ownAcks.Close()
	}
}

// add registers a message: the runner then sends heartbeats for it until it is removed or its
// report is stored. It returns false if the message is already in flight here, which can happen
// because a NATS server that restarts can forget heartbeats and redeliver the message. The new
// delivery then replaces the old one.
func (u *inFlightMessages) add(m *message) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if known := u.messages[m.messageKey]; known != nil {
		known.Msg, known.heartbeat = m.Msg, m.heartbeat
		return false
	}
	u.messages[m.messageKey] = m
	return true
}

func (u *inFlightMessages) remove(m *message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.messages, m.messageKey)
}

// watchHandler begins to watch a running handler, which is then reported as running, canceled or
// abandoned when that is due. ctx is the handler's context.
func (u *inFlightMessages) watchHandler(ctx context.Context, m *message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m.handling = ctx
}

// unwatchHandler stops watching a handler that has returned. It returns false if the handler has
// been abandoned in the meantime.
func (u *inFlightMessages) unwatchHandler(m *message) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	watched := m.handling != nil
	m.handling = nil
	return watched
}

// anyHandlerRuns reports whether any handler is running.
func (u *inFlightMessages) anyHandlerRuns() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.messages {
		if m.handling != nil {
			return true
		}
	}
	return false
}

// cancelHandlers cancels the contexts of the handlers whose executions have been canceled.
func (u *inFlightMessages) cancelHandlers(canceled func(executionID string) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.messages {
		if m.handling != nil && canceled(m.id) {
			m.stop(ErrCanceled)
		}
	}
}

// publish publishes a report, and repeats it until the stream confirms it. Repeated reports are
// harmless. If the stream refuses the report because of another one, the report is built again from
// the message's final state. The callback is called exactly once: with nil after the confirmation,
// or with an error if there is none within AckWait.
//
// While the storage of NATS is full and handlers may continue, AckWait begins again with each
// refusal, because another attempt at the execution could not be reported either. A warning is then
// logged once per AckWait.
func (u *inFlightMessages) publish(m *message, report *nats.Msg, published func(error)) {
	now := time.Now()
	u.mu.Lock()
	m.report, m.reported, m.sent, m.published = report, now, now, published
	u.mu.Unlock()
	u.send(m)
}

// send publishes a message's report once. A response to any attempt is accepted until AckWait has
// passed.
func (u *inFlightMessages) send(m *message) {
	u.mu.Lock()
	attempt := *m.report // each attempt gets its own reply subject
	deadline := m.reported.Add(u.ackWait)
	u.mu.Unlock()
	acks := u.acks
	if m.layout.Own {
		acks = u.ownAcks
	}
	acks.PublishAsync(&attempt, deadline, func(_ ack.Ack, err error) { u.handleReply(m, err) })
}

// handleReply handles the stream's response to a report. After an error, performDueActions sends
// the report again later.
func (u *inFlightMessages) handleReply(m *message, err error) {
	u.mu.Lock()
	// waits is false if an earlier attempt was confirmed, or if AckWait has passed.
	waits := u.messages[m.messageKey] == m
	if m.err == nil || !errors.Is(err, ack.ErrTimeout) { // a refusal says more than a timeout
		m.err = err
	}
	if stream.IsStorageFull(err) && u.working.Err() == nil {
		m.reported, m.noRoom = time.Now(), err
	}
	if waits && err == nil {
		delete(u.messages, m.messageKey)
	}
	refused := waits && m.ordered != nil && stream.IsWrongLastSequence(err)
	if refused {
		m.refusals++
	}
	refusals := m.refusals
	u.mu.Unlock()
	switch {
	case refused:
		go u.renewReport(m, refusals) // it asks, and this must return quickly
	case waits && err == nil:
		m.published(nil)
	}
}

// renewReport replaces a report that the stream has refused because of another one, and publishes
// the new version. If the new version cannot be built now, performDueActions sends the old one
// again. The stream refuses it again, which leads to another call.
func (u *inFlightMessages) renewReport(m *message, refusals int) {
	report, err := u.renew(m, refusals)
	if err != nil {
		return
	}
	if report == nil {
		u.handleReply(m, nil)
		return
	}
	u.mu.Lock()
	waits := u.messages[m.messageKey] == m
	m.report = report
	u.mu.Unlock()
	if waits {
		u.send(m)
	}
}

// runPeriodically calls performDueActions at regular intervals until stop is closed.
func (u *inFlightMessages) runPeriodically() {
	defer close(u.stopped)
	often := min(u.ackWait/10, hangGrace/4)
	if u.announceAfter > 0 {
		often = min(often, u.announceAfter/4)
	}
	tick := time.NewTicker(max(often, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			u.performDueActions(now)
		case <-u.stop:
			return
		}
	}
}

// performDueActions sends the heartbeats and reports that are due at the given time, cancels
// handlers whose leases have expired, and abandons handlers that hang.
func (u *inFlightMessages) performDueActions(now time.Time) {
	var due []func()
	u.mu.Lock()
	for _, m := range u.messages {
		if now.Sub(m.heartbeat) >= u.ackWait/4 {
			m.heartbeat = now
			msg := m.Msg
			switch {
			case m.ordered == nil || m.ordered.until.IsZero():
				due = append(due, func() { _ = msg.InProgress() })
			case u.hasLeaseLocked(m, now):
				due = append(due, func() { go u.renewLease(m) })
			}
		}
		if m.ordered != nil && m.handling != nil && !u.hasLeaseLocked(m, now) {
			m.stop(ErrLost)
		}
		if do := u.dueHandlerAction(m, now); do != nil {
			due = append(due, do)
		}
		if do := u.dueReportAction(m, now); do != nil {
			due = append(due, do)
		}
	}
	u.mu.Unlock()
	for _, do := range due {
		do()
	}
}

// dueHandlerAction returns the action that is due for a running handler, or nil. The caller must
// hold mu.
func (u *inFlightMessages) dueHandlerAction(m *message, now time.Time) func() {
	ctx := m.handling
	canceled := ctx != nil && errors.Is(context.Cause(ctx), ErrCanceled) &&
		now.Sub(m.calledAt) < u.timeout && u.working.Err() == nil
	switch {
	case ctx == nil:
	// After a cancellation, a handler may continue until its timeout, unless the runner stops.
	case ctx.Err() == nil, canceled:
		if u.announceAfter > 0 && !m.announced && now.Sub(m.calledAt) >= u.announceAfter {
			m.announced = true
			return func() { u.announce(m) }
		}
	case m.overdue.IsZero():
		m.overdue = now
	case now.Sub(m.overdue) >= hangGrace:
		m.handling = nil
		return func() { go u.abandon(ctx, m) } // publishing its report may block
	}
	return nil
}

// dueReportAction returns the action that is due for an unconfirmed report, or nil. It does not
// give up immediately if the report was refused for lack of room: in a cluster, the stream's leader
// steps down after such a refusal, and the next leader may have room. The caller must hold mu.
func (u *inFlightMessages) dueReportAction(m *message, now time.Time) func() {
	switch {
	case m.report == nil:
	case now.Sub(m.reported) > u.ackWait:
		return u.giveUpLocked(m, errors.Join(fmt.Errorf(
			"the stream has not confirmed the report within %s", u.ackWait), m.err))
	case errors.Is(m.err, nats.ErrConnectionClosed): // for good: it will never be confirmed
		return u.giveUpLocked(m, m.err)
	case m.noRoom != nil && now.Sub(m.warned) >= u.ackWait:
		refusal := m.noRoom
		m.warned, m.noRoom = now, nil
		return func() { u.waitsForRoom(m, refusal) }
	case now.Sub(m.sent) >= u.ackWait/10:
		m.sent = now
		return func() { u.send(m) }
	}
	return nil
}

// giveUpLocked removes a message whose report was not confirmed. It returns a function that passes
// err to the message's callback. The caller must hold mu.
func (u *inFlightMessages) giveUpLocked(m *message, err error) func() {
	delete(u.messages, m.messageKey)
	return func() { m.published(err) }
}
