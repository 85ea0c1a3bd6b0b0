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

// hangGracePeriod is how long a handler may continue after its context has ended. After that, the
// runner abandons the handler and retries the execution.
const hangGracePeriod = time.Second

// inFlightMessages holds the messages in flight until they are acknowledged. It sends heartbeats
// for them, reports executions as running once their handlers have worked for a while, abandons
// handlers that hang, and repeats each final report until the stream has stored it. One loop serves
// all messages, because a goroutine and timers for each message would cost more than a quick
// handler.
type inFlightMessages struct {
	nc                    *nats.Conn
	js                    jetstream.JetStream
	sharedStreamPublisher *ack.Publisher // for reports on executions in the shared stream
	// ownStreamPublisher is for reports on executions in the queue's own stream. It is nil until
	// openOwnStreamPublisher is called.
	ownStreamPublisher *ack.Publisher
	ackWait            time.Duration                          // Options.AckWait
	reportRunningAfter time.Duration                          // Options.ReportRunningAfter
	reportRunning      func(*message)                         // reports the execution as running
	abandonHandler     func(context.Context, *message)        // called for a handler that hangs
	logWaitingReport   func(*message, error)                  // called per AckWait if NATS is full
	rebuildReport      func(*message, int) (*nats.Msg, error) // returns a new version of a report
	attemptTimeout     time.Duration                          // maximum duration of an attempt
	//nolint:containedctx // it is runner.handlersCtx, not the context of one call
	handlersCtx context.Context
	stop        chan struct{} // closed to stop the loop
	stopped     chan struct{} // closed when the loop has returned

	mu       sync.Mutex
	messages map[messageKey]*message
}

// messageKey identifies the message of an execution. The sequence number alone is not enough: a
// stream that has lost its last messages in a power cut uses their sequence numbers again.
type messageKey struct {
	sequence    uint64 // sequence number of the start message in its stream
	executionID string // ID of the execution
}

// message is a message in flight with its current attempt.
type message struct {
	messageKey
	layout          stream.Layout // where the start message is stored
	start           *execution.Start
	attempt         int                // counts from 1
	receivedAt      time.Time          // when the message arrived
	handlerCalledAt time.Time          // when the handler was called
	laneState       *laneMessageState  // nil for a message without an order key
	finalProgress   execution.Progress // content of the final report, set before the field report

	// The fields below are guarded by inFlightMessages.mu until the message is removed from there.
	jetstream.Msg           // the last delivery
	lastHeartbeat time.Time // when the last heartbeat was sent
	// handlerCtx is the handler's context. It is nil before the handler is called, and after it has
	// returned or been abandoned.
	handlerCtx          context.Context         //nolint:containedctx // not the context of a call
	cancelHandler       context.CancelCauseFunc // cancels the handler's context
	reportedRunning     bool                    // whether the execution was reported as running
	overdueSince        time.Time               // when the end of handlerCtx was first seen
	report              *nats.Msg               // the final report; nil until there is one
	ackWaitStart        time.Time               // when the report's AckWait began; see handleReply
	reportSentAt        time.Time               // when the report was last sent
	reportErr           error                   // why the report is not stored yet
	storageFullErr      error                   // last refusal for lack of space; nil once logged
	storageFullLoggedAt time.Time               // when a lack of space was last logged
	onPublished         func(error)             // gets nil once the report is stored, or an error
	refusals            int                     // refusals because another report came first
}

// newInFlightMessages returns an inFlightMessages, which the caller must close.
func newInFlightMessages(r *runner, js jetstream.JetStream) (*inFlightMessages, error) {
	acks, err := ack.New(r.nc, stream.ProgressName)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the stream's confirmations: %w", err)
	}
	u := &inFlightMessages{
		nc:                    r.nc,
		js:                    js,
		sharedStreamPublisher: acks,
		ackWait:               r.AckWait,
		reportRunning:         r.reportRunning,
		reportRunningAfter:    r.ReportRunningAfter,
		abandonHandler:        r.finishAbandonedAttempt,
		logWaitingReport:      r.logWaitingReport,
		rebuildReport:         r.rebuildReport,
		attemptTimeout:        r.Timeout,
		handlersCtx:           r.handlersCtx,
		stop:                  make(chan struct{}),
		stopped:               make(chan struct{}),
		messages:              map[messageKey]*message{},
	}
	go u.performDueActionsPeriodically()
	return u, nil
}

// openOwnStreamPublisher opens the publisher for reports on executions from the queue's own stream,
// unless it is open already. It must be called before the first message from that stream is added.
func (u *inFlightMessages) openOwnStreamPublisher(queue string) error {
	if u.ownStreamPublisher != nil {
		return nil
	}
	acks, err := ack.New(u.nc, stream.OwnProgressStreamName(queue))
	if err != nil {
		return fmt.Errorf("subscribe to the own stream's confirmations: %w", err)
	}
	u.ownStreamPublisher = acks
	return nil
}

func (u *inFlightMessages) close() {
	close(u.stop)
	<-u.stopped
	u.sharedStreamPublisher.Close()
	if u.ownStreamPublisher != nil {
		u.ownStreamPublisher.Close()
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
		known.Msg, known.lastHeartbeat = m.Msg, m.lastHeartbeat
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

// watchHandler begins to watch a running handler, whose context is ctx. From then on,
// performDueActions reports the execution as running, cancels the handler if its lease expires, and
// abandons it if it hangs.
func (u *inFlightMessages) watchHandler(ctx context.Context, m *message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m.handlerCtx = ctx
}

// unwatchHandler stops watching a handler that has returned. It returns false if the runner has
// already abandoned the handler.
func (u *inFlightMessages) unwatchHandler(m *message) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	watched := m.handlerCtx != nil
	m.handlerCtx = nil
	return watched
}

// anyHandlerRuns reports whether any handler is running.
func (u *inFlightMessages) anyHandlerRuns() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.messages {
		if m.handlerCtx != nil {
			return true
		}
	}
	return false
}

// cancelHandlers cancels the contexts of the handlers whose executions have been canceled. The
// function canceled reports whether the execution with an ID has been canceled.
func (u *inFlightMessages) cancelHandlers(canceled func(executionID string) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.messages {
		if m.handlerCtx != nil && canceled(m.executionID) {
			m.cancelHandler(ErrCanceled)
		}
	}
}

// publishReport publishes a report, and sends it again until the stream confirms it. Repeated
// reports are harmless. If the stream refuses the report because another report on the execution
// was stored first, the runner replaces it with an updated one. published is called exactly once:
// with nil once the report is confirmed or no longer needed, or with an error if AckWait passes or
// the connection is closed before that.
//
// While the storage of NATS is full, each refusal restarts AckWait, until the runner stops its
// handlers. Giving up would not help: another attempt at the execution could not be reported
// either. A warning is logged once per AckWait.
func (u *inFlightMessages) publishReport(m *message, report *nats.Msg, published func(error)) {
	now := time.Now()
	u.mu.Lock()
	m.report, m.ackWaitStart, m.reportSentAt, m.onPublished = report, now, now, published
	u.mu.Unlock()
	u.sendReport(m)
}

// sendReport publishes a message's report once. Each call waits for its own response, until AckWait
// has passed; the report counts as stored as soon as any of these responses confirms it.
func (u *inFlightMessages) sendReport(m *message) {
	u.mu.Lock()
	attempt := *m.report // each attempt gets its own reply subject
	deadline := m.ackWaitStart.Add(u.ackWait)
	u.mu.Unlock()
	acks := u.sharedStreamPublisher
	if m.layout.Own {
		acks = u.ownStreamPublisher
	}
	acks.PublishAsync(&attempt, deadline, func(_ ack.Ack, err error) { u.handleReply(m, err) })
}

// handleReply handles the stream's response to a report. After an error, performDueActions sends
// the report again later.
func (u *inFlightMessages) handleReply(m *message, err error) {
	u.mu.Lock()
	// waits reports whether the message still needs this reply: no earlier attempt to send the
	// report was confirmed, and AckWait has not passed.
	waits := u.messages[m.messageKey] == m
	if m.reportErr == nil || !errors.Is(err, ack.ErrTimeout) { // a refusal says more than a timeout
		m.reportErr = err
	}
	if stream.IsStorageFull(err) && u.handlersCtx.Err() == nil {
		m.ackWaitStart, m.storageFullErr = time.Now(), err
	}
	if waits && err == nil {
		delete(u.messages, m.messageKey)
	}
	refused := waits && m.laneState != nil && stream.IsWrongLastSequence(err)
	if refused {
		m.refusals++
	}
	refusals := m.refusals
	u.mu.Unlock()
	switch {
	case refused:
		go u.replaceReport(m, refusals) // it waits for NATS, and handleReply must not block
	case waits && err == nil:
		m.onPublished(nil)
	}
}

// replaceReport builds and publishes a new version of a report that the stream has refused because
// another one was stored first. If it cannot build one now, it does nothing: performDueActions
// sends the old version again later, the stream refuses that as well, and replaceReport is called
// again.
func (u *inFlightMessages) replaceReport(m *message, refusals int) {
	report, err := u.rebuildReport(m, refusals)
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
		u.sendReport(m)
	}
}

// performDueActionsPeriodically calls performDueActions at regular intervals until stop is closed.
func (u *inFlightMessages) performDueActionsPeriodically() {
	defer close(u.stopped)
	often := min(u.ackWait/10, hangGracePeriod/4)
	if u.reportRunningAfter > 0 {
		often = min(often, u.reportRunningAfter/4)
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
		if now.Sub(m.lastHeartbeat) >= u.ackWait/4 {
			m.lastHeartbeat = now
			msg := m.Msg
			switch {
			case m.laneState == nil || m.laneState.expiresAt.IsZero():
				due = append(due, func() { _ = msg.InProgress() })
			case u.hasLeaseLocked(m, now):
				due = append(due, func() { go u.renewLease(m) })
			}
		}
		if m.laneState != nil && m.handlerCtx != nil && !u.hasLeaseLocked(m, now) {
			m.cancelHandler(ErrLost)
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

// dueHandlerAction returns what must be done now for a running handler: report the execution as
// running, or abandon the handler if it still runs hangGracePeriod after it should have returned.
// It returns nil if nothing is due. The caller must hold mu.
func (u *inFlightMessages) dueHandlerAction(m *message, now time.Time) func() {
	ctx := m.handlerCtx
	canceled := ctx != nil && errors.Is(context.Cause(ctx), ErrCanceled) &&
		now.Sub(m.handlerCalledAt) < u.attemptTimeout && u.handlersCtx.Err() == nil
	switch {
	case ctx == nil:
	// After a cancellation, a handler may continue until its timeout, unless the runner stops.
	case ctx.Err() == nil, canceled:
		if u.reportRunningAfter > 0 && !m.reportedRunning &&
			now.Sub(m.handlerCalledAt) >= u.reportRunningAfter {
			m.reportedRunning = true
			return func() { u.reportRunning(m) }
		}
	case m.overdueSince.IsZero():
		m.overdueSince = now
	case now.Sub(m.overdueSince) >= hangGracePeriod:
		m.handlerCtx = nil
		return func() { go u.abandonHandler(ctx, m) } // publishing its report may block
	}
	return nil
}

// dueReportAction returns the action that is due for an unconfirmed report, or nil. It does not
// give up immediately if the stream has refused the report because its storage is full: in a
// cluster, the stream's leader steps down after such a refusal, and the next leader may have space.
// The caller must hold mu.
func (u *inFlightMessages) dueReportAction(m *message, now time.Time) func() {
	switch {
	case m.report == nil:
	case now.Sub(m.ackWaitStart) > u.ackWait:
		return u.giveUpReportLocked(m, errors.Join(fmt.Errorf(
			"the stream has not confirmed the report within %s", u.ackWait), m.reportErr))
	case errors.Is(m.reportErr, nats.ErrConnectionClosed): // closed for good: no confirmation comes
		return u.giveUpReportLocked(m, m.reportErr)
	case m.storageFullErr != nil && now.Sub(m.storageFullLoggedAt) >= u.ackWait:
		refusal := m.storageFullErr
		m.storageFullLoggedAt, m.storageFullErr = now, nil
		return func() { u.logWaitingReport(m, refusal) }
	case now.Sub(m.reportSentAt) >= u.ackWait/10:
		m.reportSentAt = now
		return func() { u.sendReport(m) }
	}
	return nil
}

// giveUpReportLocked removes a message whose report was not confirmed. It returns a function that
// passes err to the message's callback. The caller must hold mu.
func (u *inFlightMessages) giveUpReportLocked(m *message, err error) func() {
	delete(u.messages, m.messageKey)
	return func() { m.onPublished(err) }
}
