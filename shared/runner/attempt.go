package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// maxErrorBytes is the maximum number of bytes of the error in a report. Longer errors are cut off.
const maxErrorBytes = 4000

// maxEndedGroups is the maximum number of names in a report's list of the other groups that have
// already ended the execution.
const maxEndedGroups = 100

// reportOverheadBytes is the number of bytes that are reserved in a report for everything but the
// output.
const reportOverheadBytes = 16 << 10

// beginAttempt begins an attempt at the execution in msg, and does not wait for the handler, which
// runs in a separate goroutine. The caller must have taken a concurrency slot. The slot is freed
// when the handler has returned or has been abandoned. state is that of a message with an order
// key, and nil for all other messages.
func (r *runner) beginAttempt(msg jetstream.Msg, state *laneMessageState) {
	began := time.Now()
	event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
	meta, metaErr := msg.Metadata()
	if err = errors.Join(err, metaErr); err != nil {
		// A retry would not help. The executor lists the message as a dead letter.
		r.observeAndLogAttempt(nil, 0, began, Unreadable, failureOutcome(err))
		_ = msg.TermWithReason(err.Error())
		r.freeSlot()
		r.markDone(&message{laneState: state})
		return
	}
	m := &message{
		messageKey:    messageKey{meta.Sequence.Stream, event.Start.ID},
		Msg:           msg,
		lastHeartbeat: began,
		layout:        layoutOf(msg),
		start:         event.Start,
		attempt:       int(min(meta.NumDelivered, 1<<30)),
		receivedAt:    began,
		laneState:     state,
	}
	if !r.inFlight.add(m) {
		r.freeSlot()
		r.markDone(m)
		return
	}
	if state != nil {
		go r.runOrdered(r.startSpan(m, msg.Subject()), m)
		return
	}
	if m.attempt > r.Attempts {
		go r.reportAttemptsExhausted(m)
		return
	}
	go r.runUnlessCanceled(r.startSpan(m, msg.Subject()), m)
}

// freeSlot frees a concurrency slot.
func (r *runner) freeSlot() { r.freeSlots <- struct{}{} }

// reportAttemptsExhausted reports an execution as failed because no runner has finished it within
// the allowed number of attempts.
func (r *runner) reportAttemptsExhausted(m *message) {
	m.attempt = r.Attempts // the last attempt in which a handler may have been called
	err := fmt.Errorf("no runner finished it in %d attempts: each died, was cut off, or did not "+
		"return in time", r.Attempts)
	r.reportFinal(m, execution.Progress{Status: execution.Failed}, failureOutcome(err))
	r.freeSlot()
}

// runOrdered makes an attempt at an execution that has an order key. It does not call the handler
// if the execution has already ended or has been canceled, or if another member of the group may be
// running it.
func (r *runner) runOrdered(ctx context.Context, m *message) {
	//nolint:contextcheck // the context of all handlers, which outlives the attempt's
	held, ended, canceled, err := r.claimOrdered(r.handlersCtx, m)
	switch {
	case err != nil: // the runner is stopping, or could not take the lease
		if r.handlersCtx.Err() == nil {
			r.logLaneFailure(ctx, m.laneState.lane, err)
		}
		r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, HandedBack, failureOutcome(err))
		r.handBack(m, 0)
	case !held:
		r.dropLostMessage(m, outcome{})
	case ended:
		r.inFlight.remove(m)
		_ = m.Ack()
		r.markDone(m)
	case m.attempt > r.Attempts:
		r.endSpan(ctx, failureOutcome(errHandlerNotCalled))
		r.reportAttemptsExhausted(m)
		return
	case canceled:
		r.reportCanceled(ctx, m)
		return
	default:
		//nolint:contextcheck // the heartbeat is sent after ctx has ended, too
		again := time.AfterFunc(secondHeartbeatDelay, func() { r.inFlight.renewLease(m) })
		defer again.Stop()
		r.runHandler(ctx, m)
		return
	}
	r.endSpan(ctx, failureOutcome(errHandlerNotCalled))
	r.freeSlot()
}

// claimOrdered takes the lease of a message, and then determines whether its execution has ended or
// has been canceled. If that has taken so long that less than half of AckWait is left of the lease,
// claimOrdered begins again, so that a handler never starts with a lease that is about to expire.
// held is false if another member of the group may be running the execution. The error is not nil
// if ctx ends, or if the lease cannot be taken within AckWait.
func (r *runner) claimOrdered(ctx context.Context, m *message) (
	held, ended, canceled bool, err error,
) {
	for {
		if held, err = r.inFlight.takeLease(ctx, m); err != nil || !held {
			return held, false, false, err
		}
		if ended, err = r.hasEndedInGroup(ctx, m); err != nil || ended {
			return held, ended, false, err
		}
		canceled, err = r.cancellations.isCanceled(ctx, m.start.ID)
		if err != nil || canceled || r.inFlight.hasFreshLease(m) {
			return held, ended, canceled, err
		}
	}
}

// errHandlerNotCalled is the error recorded in the span of an attempt in which the handler was not
// called.
var errHandlerNotCalled = errors.New(
	"the handler was not called: the execution has ended, or another " +
		"member may have it",
)

// runHandler calls the handler, for at most Options.Timeout. When the handler returns, runHandler
// finishes the attempt, unless the handler has already been abandoned. ctx contains the attempt's
// span.
func (r *runner) runHandler(ctx context.Context, m *message) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	m.cancelHandler = stop
	m.handlerCalledAt = time.Now()
	if r.ReportRunningAfter < 0 {
		r.reportRunning(m)
	}
	r.inFlight.watchHandler(ctx, m)
	o := callHandler(ctx, r.handler, Execution{
		Start:   *m.start,
		Input:   m.start.Payload.WorkflowInput(),
		Attempt: m.attempt,
	})
	if r.inFlight.unwatchHandler(m) {
		r.finishAttempt(ctx, m, o)
	}
}

// finishAbandonedAttempt finishes an attempt whose handler was abandoned because it did not return
// in time.
func (r *runner) finishAbandonedAttempt(ctx context.Context, m *message) {
	err := fmt.Errorf("the handler did not return within %s", r.Timeout)
	if r.handlersCtx.Err() != nil {
		err = errors.New("the handler did not return before the runner stopped")
	}
	r.finishAttempt(ctx, m, failureOutcome(err))
}

// finishAttempt ends an attempt according to its outcome: it reports a final state, or hands the
// message back for another attempt, or drops the message if its lease has expired. Then it frees
// the concurrency slot.
func (r *runner) finishAttempt(ctx context.Context, m *message, o outcome) {
	defer r.freeSlot()
	if most := MaxOutput(r.nc); int64(len(o.output)) > most {
		// The NATS server would refuse the report every time, so the execution fails.
		o = failureOutcome(Permanent(fmt.Errorf("the output has %d bytes, but a report takes at "+
			"most %d: store it elsewhere and return a reference", len(o.output), most)))
	}
	r.endSpan(ctx, o)

	switch {
	case !r.inFlight.hasLease(m):
		r.dropLostMessage(m, o)
	case o.err == nil:
		r.reportFinal(m, execution.Progress{
			Status:    execution.Succeeded,
			StartedAt: m.handlerCalledAt,
			Output:    o.output,
		}, o)
	case errors.Is(context.Cause(ctx), ErrCanceled):
		r.reportFinal(m, execution.Progress{
			Status:    execution.Canceled,
			StartedAt: m.handlerCalledAt,
		}, o)
	case r.handlersCtx.Err() != nil:
		r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, HandedBack, o)
		r.handBack(m, 0)
	case o.permanent, m.attempt == r.Attempts:
		r.reportFinal(m, execution.Progress{Status: execution.Failed, StartedAt: m.handlerCalledAt},
			o)
	default:
		r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, TriedAgain, o)
		r.handBack(m, r.retryDelay(m.attempt, o))
	}
}

// retryDelay returns the delay before the next attempt. attempt is the number of the attempt that
// has failed, from 1.
func (r *runner) retryDelay(attempt int, o outcome) (wait time.Duration) {
	if o.retryAfter > 0 {
		return o.retryAfter
	}
	wait = defaultBackoff(attempt) //nolint:wastedassign // the result if Backoff panics
	defer r.recoverOptionPanic("Backoff")
	return r.Backoff(attempt)
}

// reportFinal reports the final state in p. It takes the error text of the report from o, the
// outcome of the attempt. It acknowledges the message once the stream has confirmed the report;
// without a confirmation, the execution runs again.
func (r *runner) reportFinal(m *message, p execution.Progress, o outcome) {
	p.Error = o.errText
	p.Attempt = m.attempt
	p.At = time.Now()
	report, err := r.progressMessage(m, p)
	if err != nil {
		r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, NotReported, failureOutcome(err))
		r.handBack(m, time.Second)
		return
	}
	m.finalProgress = p
	r.unconfirmedReports <- struct{}{}
	r.inFlight.publishReport(m, report, func(err error) {
		<-r.unconfirmedReports
		if err != nil {
			r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, NotReported,
				failureOutcome(err))
			r.handBack(m, time.Second)
			return
		}
		r.observeAndLogAttempt(m.start, m.attempt, m.receivedAt, Result(p.Status), o)
		if r.inFlight.hasLease(m) {
			_ = m.Ack()
		}
		r.markDone(m)
	})
}

// handBack returns the message to the group. The server redelivers it to any member once the given
// delay has passed.
func (r *runner) handBack(m *message, after time.Duration) {
	r.inFlight.remove(m)
	if r.inFlight.hasLease(m) {
		_ = m.NakWithDelay(after)
	}
	r.markDone(m)
}

// reportRunning publishes a report that the execution is running. It does not wait for a
// confirmation: if this report is lost, the final one still follows. A report that arrives after
// the final one has no effect. If the execution is ordered and another group has reported on it
// since the runner read the last report, the stream refuses this report.
func (r *runner) reportRunning(m *message) {
	if msg, err := r.progressMessage(m, execution.Progress{
		Status:  execution.Running,
		At:      m.handlerCalledAt,
		Attempt: m.attempt,
	}); err == nil {
		_ = r.nc.PublishMsg(msg)
	}
}

// layoutOf returns the Layout of the stream in which a message is stored.
func layoutOf(msg jetstream.Msg) stream.Layout {
	layout, _ := stream.LayoutOf(msg.Subject())
	return layout
}

// progressMessage encodes a report as a message. If the execution's start message is in the queue's
// own stream, the message is for the queue's own stream of reports, otherwise for the shared one.
// If the execution is ordered and the runner has read the last report on it, the message contains
// the sequence number of that report. The stream refuses the message if it has stored a later
// report on the execution.
func (r *runner) progressMessage(m *message, p execution.Progress) (*nats.Msg, error) {
	start := m.start
	p.ID, p.Group = start.ID, r.Group
	if p.At.IsZero() {
		p.At = time.Now()
	}
	if len(p.Error) > maxErrorBytes {
		p.Error = p.Error[:maxErrorBytes] + " …"
	}
	p.Error = strings.ToValidUTF8(p.Error, "\uFFFD")
	last := r.inFlight.lastReport(m)
	if last != nil {
		p.EndedGroups = last.OtherEndedGroups[:min(len(last.OtherEndedGroups), maxEndedGroups)]
	}
	msg, err := m.layout.ProgressMessage(start.Queue, start.WorkflowID, start.NodeID, start.Trace,
		p)
	if last != nil && err == nil {
		msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader,
			strconv.FormatUint(last.Sequence, 10))
	}
	return msg, err
}

// observeAndLogAttempt passes an attempt to Observe and logs it. start is nil if the message could
// not be decoded. attempt is the number of the attempt, and began is when its message arrived.
func (r *runner) observeAndLogAttempt(
	start *execution.Start, attempt int, began time.Time, what Result, o outcome,
) {
	took := time.Since(began)
	r.observe(Attempt{Execution: start, Result: what, Number: attempt, Took: took, Err: o.err})
	level := slog.LevelWarn
	if what == Succeeded || what == HandedBack {
		level = slog.LevelInfo
	}
	r.log(level, "run", func() []slog.Attr {
		attrs := []slog.Attr{
			slog.String("result", string(what)), slog.Int("attempt", attempt),
			slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		}
		if start != nil {
			attrs = append(attrs,
				slog.String("execution_id", start.ID), slog.String("workflow_id", start.WorkflowID))
		}
		if o.err != nil {
			attrs = append(attrs, slog.String("error", o.errText))
		}
		return attrs
	})
}

// logWaitingReport logs a warning that a report waits because the storage of NATS is full. err is
// the error with which the stream refused the report.
func (r *runner) logWaitingReport(m *message, err error) {
	r.log(slog.LevelWarn, "the report cannot be stored yet", func() []slog.Attr {
		return []slog.Attr{
			slog.Int("attempt", m.attempt), slog.String("execution_id", m.start.ID),
			slog.String("workflow_id", m.start.WorkflowID), slog.String("error", err.Error()),
		}
	})
}

// log writes a log line. It calls attrs only if the line is written. It ignores a panic of the
// logger, because that cannot be logged.
func (r *runner) log(level slog.Level, message string, attrs func() []slog.Attr) {
	defer func() { _ = recover() }()
	ctx, log := r.handlersCtx, r.Log
	if log == nil {
		if level < slog.LevelWarn {
			return
		}
		log = slog.Default()
	}
	if log.Enabled(ctx, level) {
		log.LogAttrs(ctx, level, message, attrs()...)
	}
}

func (r *runner) observe(a Attempt) {
	if r.Observe == nil {
		return
	}
	defer r.recoverOptionPanic("Observe")
	r.Observe(a)
}

// recoverOptionPanic must be deferred where the runner calls a function from Options. If that
// function panics, recoverOptionPanic logs the panic. option is the name of the function.
func (r *runner) recoverOptionPanic(option string) {
	if p := recover(); p != nil {
		r.log(slog.LevelError, "panic in the options of the runner", func() []slog.Attr {
			return []slog.Attr{
				slog.String("option", option), slog.String("panic", safeText(p)),
				slog.String("stack", string(debug.Stack())),
			}
		})
	}
}
