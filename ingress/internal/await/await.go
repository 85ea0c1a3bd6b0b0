// Package await waits for the ends of executions, for requests whose answers hold the outcome.
//
// A Wait subscribes to the reports of one execution before its start is published, so that no
// report is missed. A report is only a signal: NATS may deliver it although the stream does not
// store it, or in another order than the stream has. The end is the first final report in the
// stream. A signal may also get lost, when a connection breaks or a cluster does not yet know of
// the subscription. So a Wait reads the stream now and then without a signal, too.
//
// A Wait costs memory and a subscription. It needs no goroutine besides that of its request.
package await

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// MaxPerAccount is the maximum number of requests of one account that wait at the same time.
const MaxPerAccount = 1000

const (
	// firstLook is the time after which a Wait without a signal reads the stream. It doubles with
	// each reading, up to maxLook.
	firstLook = 250 * time.Millisecond
	maxLook   = 8 * time.Second
	// signalLook is the time after which a Wait reads the stream again that has got a signal and
	// did not find the report. It doubles with each reading, too.
	signalLook = time.Millisecond
	// lookTimeout is the maximum duration of a reading, and of the last one at the limit.
	lookTimeout = time.Second
	lastTimeout = 500 * time.Millisecond
	// maxLooks is the maximum number of readings at the same time. All requests read when a lost
	// connection to NATS is back.
	maxLooks = 256
	// signals is the number of reports that a Wait holds.
	signals = 4
)

// Reason is the reason why a Wait is over.
type Reason string

// These are the reasons.
const (
	Ended    Reason = "ended"    // the execution has ended
	Limit    Reason = "limit"    // the limit is reached
	Stopping Reason = "stopping" // the ingress stops
	Full     Reason = "full"     // the maximum number of requests is waiting, so this one did not
	Gone     Reason = "gone"     // the sender has closed the connection
)

// Reasons returns all reasons.
func Reasons() []Reason { return []Reason{Ended, Limit, Stopping, Full, Gone} }

// Result is the result of a Wait.
type Result struct {
	Reason Reason
	// Status is the last status that is known: a final one exactly with the Reason Ended.
	Status execution.Status
	Output []byte // one JSON text; nil means that there is none
	Error  string // the reason of a failure
}

// Waits holds the requests that wait. It is safe for concurrent use.
type Waits struct {
	nc    *nats.Conn
	most  int
	looks chan struct{} // places for readings

	mu      sync.Mutex
	waiting int
	// accounts counts the waiting requests of each account. An account without any has no entry.
	accounts map[string]int
	stopping chan struct{}
	stopped  bool
}

// New returns a Waits for at most so many requests.
func New(nc *nats.Conn, most int) *Waits {
	return &Waits{
		nc:       nc,
		most:     most,
		looks:    make(chan struct{}, maxLooks),
		accounts: map[string]int{},
		stopping: make(chan struct{}),
	}
}

// Stop ends all waiting, at once and for good. It may be called repeatedly.
func (w *Waits) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.stopped = true
		close(w.stopping)
	}
}

// Waiting returns the number of requests that wait.
func (w *Waits) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

// enter reserves a place, and reports whether there was one.
func (w *Waits) enter(accountID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting >= w.most || w.accounts[accountID] >= MaxPerAccount {
		return false
	}
	w.waiting++
	w.accounts[accountID]++
	return true
}

func (w *Waits) leave(accountID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	if w.accounts[accountID]--; w.accounts[accountID] == 0 {
		delete(w.accounts, accountID)
	}
}

// Execution names the execution whose end is waited for.
type Execution struct {
	ID, AccountID, WorkflowID, Queue string

	Place  stream.Place // where the start is stored
	HasOwn bool         // the queue has its own stream, in which an earlier start may be
}

// Wait waits for the end of one execution. One goroutine uses it.
type Wait struct {
	waits     *Waits
	execution Execution
	reports   chan *nats.Msg
	subs      []*nats.Subscription
	places    []place // where reports may be
	running   bool    // a report said so
}

// place is a stream of reports, and the queue of the reports in it, which may be AnyQueue.
type place struct {
	stream.Place

	queue string
}

// Begin reserves a place and subscribes to the reports of an execution. It returns nil if there is
// no place. The caller must End the Wait.
func (w *Waits) Begin(execution Execution) (*Wait, error) {
	if !w.enter(execution.AccountID) {
		return nil, nil //nolint:nilnil // no place is no error
	}
	wait := &Wait{waits: w, execution: execution, reports: make(chan *nats.Msg, signals)}
	if err := wait.subscribe(execution.Place, execution.Queue); err != nil {
		wait.End()
		return nil, err
	}
	return wait, nil
}

func (w *Wait) subscribe(at stream.Place, queue string) error {
	w.places = append(w.places, place{at, queue})
	sub, err := w.waits.nc.ChanSubscribe(
		at.ProgressSubject(queue, w.execution.WorkflowID, w.execution.ID),
		w.reports)
	if err != nil {
		return fmt.Errorf("subscribe to the reports of execution %s: %w", w.execution.ID, err)
	}
	w.subs = append(w.subs, sub)
	return nil
}

// End frees the place. It may be called repeatedly. w may be nil.
func (w *Wait) End() {
	if w == nil || w.waits == nil {
		return
	}
	for _, sub := range w.subs {
		_ = sub.Unsubscribe() // fails on a closed connection only, which has no subscriptions
	}
	w.waits.leave(w.execution.AccountID)
	w.waits = nil
}

// MarkRepeated says that an earlier request has started the execution. Then the execution may have
// ended already, and the queue may have been another one.
func (w *Wait) MarkRepeated() {
	w.places = nil
	// Without a subscription, the end is found a little later.
	_ = w.subscribe(stream.Place{}, stream.AnyQueue)
	if w.execution.HasOwn && w.execution.Place.Own {
		// The execution's own place is subscribed to already.
		w.places = append(w.places, place{w.execution.Place, w.execution.Queue})
	} else if w.execution.HasOwn {
		_ = w.subscribe(stream.Place{Own: true}, w.execution.Queue)
	}
	w.signal()
}

// signal makes the Wait read the stream at once.
func (w *Wait) signal() {
	select {
	case w.reports <- nil:
	default: // there is a signal already
	}
}

// Await waits until the execution has ended, until the limit, until the sender is gone, or until
// Waits.Stop. ctx is the request's. take reserves memory for an output of so many bytes, and
// reports whether there was enough; without it, the Wait tries again later.
func (w *Wait) Await(ctx context.Context, limit time.Time, take func(bytes int) bool) Result {
	atLimit := time.NewTimer(time.Until(limit))
	defer atLimit.Stop()
	pause := firstLook
	next := time.NewTimer(pause)
	defer next.Stop()
	for {
		timeout := lookTimeout
		reason := Reason("")
		select {
		case msg := <-w.reports:
			if !w.note(msg) {
				continue
			}
			pause = signalLook
		case <-next.C:
		case <-atLimit.C:
			reason, timeout = Limit, lastTimeout
		case <-w.waits.stopping:
			reason, timeout = Stopping, lastTimeout
		case <-ctx.Done():
			return w.unended(Gone)
		}
		if end := w.readEnd(ctx, timeout); end != nil && take(len(end.Output)) {
			return Result{Ended, end.Status, end.Output, end.Error}
		}
		if reason != "" {
			return w.unended(reason)
		}
		next.Reset(pause)
		pause = min(2*pause, maxLook)
	}
}

func (w *Wait) unended(why Reason) Result {
	status := execution.Queued
	if w.running {
		status = execution.Running
	}
	return Result{Reason: why, Status: status}
}

// note reads a report, and reports whether it calls for a reading of the stream. msg is nil for a
// signal that is not a report.
func (w *Wait) note(msg *nats.Msg) bool {
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
	return event.Progress.Status.Final()
}

// readEnd reads the stream, and returns the report of the end if there is one.
func (w *Wait) readEnd(ctx context.Context, timeout time.Duration) *execution.Progress {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case w.waits.looks <- struct{}{}:
		defer func() { <-w.waits.looks }()
	case <-ctx.Done():
		return nil
	}
	for _, at := range w.places {
		// After an error it is read again.
		found, _ := at.FirstEnd(ctx, w.waits.nc, at.queue, w.execution.WorkflowID, w.execution.ID)
		switch {
		case found == nil:
		case found.Status.Final():
			return found
		default:
			w.running = true
		}
	}
	return nil
}
