// Package await waits for executions to finish, on behalf of requests whose responses contain the
// result.
//
// A Wait subscribes to the reports of one execution before the start message is published, so that
// it misses no report. A report that arrives is only a signal to read the stream, because NATS may
// deliver a report that the stream does not store, or deliver reports in another order. The result
// is the first final report in the stream. A signal can also be lost, when a connection breaks or
// before a cluster has learned of the subscription. A Wait therefore also reads the stream after
// each reconnect, and from time to time without a signal.
//
// A Wait costs memory and a subscription. It needs no goroutine other than the request's.
package await

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// MaxWaitsPerAccount is the maximum number of requests of one account that wait simultaneously.
const MaxWaitsPerAccount = 1000

const (
	// firstReadDelay is the time after which a Wait reads the stream if no signal has arrived. The
	// delay doubles with each read, up to maxReadDelay.
	firstReadDelay = 250 * time.Millisecond
	maxReadDelay   = 8 * time.Second
	// signalReadDelay is the delay before the stream is read again if a report has arrived but is
	// not in the stream yet. The delay doubles with each read.
	signalReadDelay = time.Millisecond
	// readTimeout is the maximum duration of a read that begins before the request's time limit.
	// Such a read also ends when the limit is reached. finalReadTimeout is the maximum duration of
	// the last read, which begins at the limit.
	readTimeout      = time.Second
	finalReadTimeout = 500 * time.Millisecond
	// maxConcurrentReads is the maximum number of simultaneous reads. It matters when a lost
	// connection to NATS is restored, because all waiting requests then read the stream.
	maxConcurrentReads = 256
	// maxOtherQueuesPerRead is the maximum number of queues in Wait.otherQueues whose own streams
	// Await checks in one read. The next read continues with the queues that follow.
	maxOtherQueuesPerRead = 32
	// reportBufferSize is the number of reports that a Wait buffers.
	reportBufferSize = 4
)

// Reason is the reason why a Wait has ended. Its value appears in the log and the metrics.
type Reason string

// The reasons for the end of a Wait.
const (
	ReasonExecutionEnded Reason = "ended"    // the execution has finished
	ReasonTimeLimit      Reason = "limit"    // the request's time limit has been reached
	ReasonStopping       Reason = "stopping" // the ingress is shutting down
	ReasonTooManyWaits   Reason = "full"     // it did not wait: too many other requests are waiting
	ReasonSenderGone     Reason = "gone"     // the sender has closed the connection
)

// Reasons returns all values of Reason, so that callers can prepare a counter for each of them.
func Reasons() []Reason {
	return []Reason{
		ReasonExecutionEnded,
		ReasonTimeLimit,
		ReasonStopping,
		ReasonTooManyWaits,
		ReasonSenderGone,
	}
}

// Result is the result of a Wait: the execution's last known status and, if the execution has
// finished, its output or error.
type Result struct {
	Reason Reason
	// Status is the last known status. It is final if and only if Reason is ReasonExecutionEnded.
	Status execution.Status
	Output []byte // a JSON text; nil means that there is no output
	Error  string // why the execution failed
}

// Waits tracks the requests that wait for executions, and limits their number. It is safe for
// concurrent use.
type Waits struct {
	nc             *nats.Conn
	maxWaiting     int
	readSlots      chan struct{} // semaphore that limits reads
	firstReadDelay time.Duration // the constant firstReadDelay, except in tests

	mu      sync.Mutex
	waiting int
	// waitingByAccount counts the waiting requests of each account. An account without waiting
	// requests has no entry.
	waitingByAccount map[string]int
	stopping         chan struct{}
	stopped          bool
	// reconnected is closed and replaced when a lost connection is restored.
	reconnected chan struct{}
}

// New returns a Waits that lets up to maxWaiting requests wait. It watches the connection until
// Stop is called or the connection is closed.
func New(nc *nats.Conn, maxWaiting int) *Waits {
	w := &Waits{
		nc:               nc,
		maxWaiting:       maxWaiting,
		readSlots:        make(chan struct{}, maxConcurrentReads),
		firstReadDelay:   firstReadDelay,
		waitingByAccount: map[string]int{},
		stopping:         make(chan struct{}),
		reconnected:      make(chan struct{}),
	}
	go w.watch(nc.StatusChanged(nats.CONNECTED, nats.CLOSED))
	return w
}

// watch makes all waiting requests read the stream when a lost connection is restored.
func (w *Waits) watch(changes chan nats.Status) {
	defer w.nc.RemoveStatusListener(changes)
	for {
		select {
		case status := <-changes:
			if status != nats.CONNECTED {
				return
			}
			w.mu.Lock()
			close(w.reconnected)
			w.reconnected = make(chan struct{})
			w.mu.Unlock()
		case <-w.stopping:
			return
		}
	}
}

// nextReconnect returns a channel that is closed the next time that a lost connection is restored.
func (w *Waits) nextReconnect() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reconnected
}

// Stop makes all current and future Waits end immediately. It does not wait until the waiting
// requests have ended, and may be called repeatedly.
func (w *Waits) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.stopped = true
		close(w.stopping)
	}
}

// Waiting returns the number of requests that are waiting.
func (w *Waits) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

// reserveSlot reserves a slot for a waiting request of an account, and reports whether one was
// free.
func (w *Waits) reserveSlot(accountID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting >= w.maxWaiting || w.waitingByAccount[accountID] >= MaxWaitsPerAccount {
		return false
	}
	w.waiting++
	w.waitingByAccount[accountID]++
	return true
}

func (w *Waits) releaseSlot(accountID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	if w.waitingByAccount[accountID]--; w.waitingByAccount[accountID] == 0 {
		delete(w.waitingByAccount, accountID)
	}
}

// Execution identifies the execution to wait for.
type Execution struct {
	ID, AccountID, WorkflowID, Queue string

	Layout       stream.Layout // the stream that stores the start message
	HasOwnStream bool          // whether the queue has its own stream
}

// Wait waits for one execution to finish. Only one goroutine may use it.
type Wait struct {
	waits     *Waits
	execution Execution
	reports   chan *nats.Msg
	subs      []*nats.Subscription
	sources   []reportSource // streams that may hold reports
	// otherQueues holds other queues that have their own streams. The execution may have been
	// started in one of these queues, before its workflow changed its queue. A queue is removed
	// once its stream has been read, because later reports arrive through the subscription.
	otherQueues []string
	running     bool // a report with the status Running has arrived
	// reconnected is closed when a lost connection to NATS is next restored. Await then replaces it
	// with the channel for the following reconnect.
	reconnected <-chan struct{}
}

// reportSource selects reports in a stream: the reports of one queue, or the reports of all queues
// if queue is stream.AnyQueue.
type reportSource struct {
	stream.Layout

	queue string
}

// Begin reserves a slot and subscribes to the reports of an execution. It returns nil without an
// error if no slot is free. The caller must call End on the result.
func (w *Waits) Begin(execution Execution) (*Wait, error) {
	if !w.reserveSlot(execution.AccountID) {
		return nil, nil //nolint:nilnil // having no free slot is not an error
	}
	wait := &Wait{
		waits:       w,
		execution:   execution,
		reports:     make(chan *nats.Msg, reportBufferSize),
		reconnected: w.nextReconnect(),
	}
	if err := wait.addSubscribedSource(execution.Layout, execution.Queue); err != nil {
		wait.End()
		return nil, err
	}
	return wait, nil
}

// addSubscribedSource subscribes to the reports of a queue, and makes each later read include their
// stream. The parameter at identifies the stream.
func (w *Wait) addSubscribedSource(at stream.Layout, queue string) error {
	w.sources = append(w.sources, reportSource{at, queue})
	return w.listen(at, queue)
}

// listen subscribes to the reports of a queue in the stream that at identifies. queue may be
// stream.AnyQueue.
func (w *Wait) listen(at stream.Layout, queue string) error {
	sub, err := w.waits.nc.ChanSubscribe(
		at.ProgressSubject(queue, w.execution.WorkflowID, w.execution.ID),
		w.reports)
	if err != nil {
		return fmt.Errorf("subscribe to the reports of execution %s: %w", w.execution.ID, err)
	}
	w.subs = append(w.subs, sub)
	return nil
}

// End ends the subscriptions and frees the slot. It may be called repeatedly, and on a nil Wait.
func (w *Wait) End() {
	if w == nil || w.waits == nil {
		return
	}
	for _, sub := range w.subs {
		_ = sub.Unsubscribe() // fails only on a closed connection, which has no subscriptions
	}
	w.waits.releaseSlot(w.execution.AccountID)
	w.waits = nil
}

// ExpectEarlierStart records that an earlier request has started the execution. The execution may
// therefore have finished already, and may have been started in another queue. ownStreams holds the
// queues that have their own streams.
func (w *Wait) ExpectEarlierStart(ownStreams []string) {
	w.sources, w.otherQueues = nil, slices.Clone(ownStreams)
	// Ignore the error: without a subscription, the Wait finds the result a little later, when it
	// polls the stream.
	_ = w.addSubscribedSource(stream.Layout{}, stream.AnyQueue)
	if w.execution.HasOwnStream {
		w.addOwnStreamSource(w.execution.Queue)
	}
	// If the execution may be in a queue's own stream that Begin did not subscribe to, also
	// subscribe to the reports in all queues' own streams.
	if len(w.otherQueues) > 0 || w.execution.HasOwnStream && !w.execution.Layout.Own {
		_ = w.listen(stream.Layout{Own: true}, stream.AnyQueue)
	}
	w.signalRead()
}

// addOwnStreamSource makes each later read cover the queue's own stream, and removes the queue from
// otherQueues.
func (w *Wait) addOwnStreamSource(queue string) {
	own := reportSource{stream.Layout{Own: true}, queue}
	if !slices.Contains(w.sources, own) {
		w.sources = append(w.sources, own)
	}
	w.otherQueues = slices.DeleteFunc(w.otherQueues, func(other string) bool {
		return other == queue
	})
}

// signalRead makes Await read the stream as soon as possible.
func (w *Wait) signalRead() {
	select {
	case w.reports <- nil:
	default: // there is a signal already
	}
}

// Await waits until the execution has finished, the limit is reached, the sender has disconnected,
// or Waits.Stop is called. ctx is the request's context. reserve must reserve memory for an output
// of the given number of bytes and report whether there was enough; if it returns false, Await
// tries again later.
func (w *Wait) Await(ctx context.Context, limit time.Time, reserve func(bytes int) bool) Result {
	atLimit := time.NewTimer(time.Until(limit))
	defer atLimit.Stop()
	pause := w.waits.firstReadDelay
	next := time.NewTimer(pause)
	defer next.Stop()
	for {
		reason := Reason("")
		select {
		case msg := <-w.reports:
			if !w.handleReport(msg) {
				continue
			}
			pause = signalReadDelay
		case <-w.reconnected:
			w.reconnected = w.waits.nextReconnect()
			pause = w.waits.firstReadDelay
		case <-next.C:
		case <-atLimit.C:
			reason = ReasonTimeLimit
		case <-w.waits.stopping:
			reason = ReasonStopping
		case <-ctx.Done():
			return w.unfinishedResult(ReasonSenderGone)
		}
		timeout := finalReadTimeout
		if reason == "" {
			// End the read at the limit even if NATS does not answer.
			timeout = min(readTimeout, time.Until(limit))
		}
		if end := w.readFinalReport(ctx, timeout); end != nil && reserve(len(end.Output)) {
			return Result{ReasonExecutionEnded, end.Status, end.Output, end.Error}
		}
		if reason != "" {
			return w.unfinishedResult(reason)
		}
		next.Reset(pause)
		pause = min(2*pause, maxReadDelay)
	}
}

func (w *Wait) unfinishedResult(why Reason) Result {
	status := execution.Queued
	if w.running {
		status = execution.Running
	}
	return Result{Reason: why, Status: status}
}

// handleReport processes a report that has arrived, or a signal without a report if msg is nil. It
// returns true if the stream must now be read for the final report.
func (w *Wait) handleReport(msg *nats.Msg) bool {
	if msg == nil {
		return true
	}
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if err != nil || event.Progress == nil {
		return false
	}
	if event.Progress.Status == execution.Running {
		w.running = true
	}
	if at, queue := stream.LayoutOf(msg.Subject); at.Own {
		w.addOwnStreamSource(queue)
	}
	return event.Progress.Status.Final()
}

// readFinalReport returns the final report of the execution, or nil if it finds none. It reads the
// streams of w.sources, and at most maxOtherQueuesPerRead of w.otherQueues.
func (w *Wait) readFinalReport(ctx context.Context, timeout time.Duration) *execution.Progress {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case w.waits.readSlots <- struct{}{}:
		defer func() { <-w.waits.readSlots }()
	case <-ctx.Done():
		return nil
	}
	for _, at := range w.sources {
		// Ignore the error, because Await reads the stream again later.
		found, _ := at.FirstFinalOrLastReport(ctx, w.waits.nc, at.queue, w.execution.WorkflowID,
			w.execution.ID)
		switch {
		case found == nil:
		case found.Status.Final():
			return found
		default:
			w.running = true
		}
	}
	return w.readOtherQueues(ctx)
}

// readOtherQueues returns the final report of the execution from one of the next
// maxOtherQueuesPerRead streams of w.otherQueues, or nil if it finds none.
func (w *Wait) readOtherQueues(ctx context.Context) *execution.Progress {
	for range min(len(w.otherQueues), maxOtherQueuesPerRead) {
		queue := w.otherQueues[0]
		found, err := stream.Layout{Own: true}.FirstFinalOrLastReport(ctx, w.waits.nc, queue,
			w.execution.WorkflowID, w.execution.ID)
		if found != nil {
			w.addOwnStreamSource(queue)
			if found.Status.Final() {
				return found
			}
			w.running = true
			continue
		}
		if w.otherQueues = w.otherQueues[1:]; err != nil {
			w.otherQueues = append(w.otherQueues, queue) // read it again, after those not read yet
		}
	}
	return nil
}
