package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// hangGrace is how long a handler may run after its context has ended. Then it is abandoned, and its execution attempted again.
const hangGrace = time.Second

// maxError bounds the reason in a report.
const maxError = 4000

// reportOverhead is room in a report for all but the output.
const reportOverhead = 16 << 10

// run handles one message, until the handler has returned or was abandoned. done is called when the report is stored and the
// message acknowledged.
func (r *runner) run(msg jetstream.Msg, done func()) {
	began := time.Now()
	event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
	meta, metaErr := msg.Metadata()
	if err = errors.Join(err, metaErr); err != nil {
		// The executor lists it as a dead letter; another attempt would not help.
		r.note(nil, 0, began, Unreadable, err)
		_ = msg.TermWithReason(err.Error())
		done()
		return
	}
	start := event.Start
	m := r.underway.add(msg, key{meta.Sequence.Stream, start.ID})
	if m == nil {
		done()
		return
	}
	attempt := int(min(meta.NumDelivered, 1<<30))
	if attempt > r.Attempts {
		err = fmt.Errorf("no runner finished it in %d attempts: each died, was cut off, or did not return in time", r.Attempts)
		r.end(m, start, attempt, began, execution.Progress{Status: execution.Failed, Error: err.Error()}, err, done)
		return
	}

	ctx, span := r.startSpan(msg, start, attempt)
	called := time.Now()
	stopReport := r.reportRunning(start, called)
	output, err := r.call(ctx, start, attempt)
	stopReport()
	if most := MaxOutput(r.nc); err == nil && int64(len(output)) > most {
		// The NATS server would refuse the report each time.
		output, err = nil, Permanent(fmt.Errorf("the output has %d bytes, but a report takes at most %d: store it elsewhere and return a reference", len(output), most))
	}
	endSpan(span, err)

	var permanent *permanentError
	switch {
	case err == nil:
		r.end(m, start, attempt, began, execution.Progress{Status: execution.Succeeded, StartedAt: called, Output: output}, nil, done)
	case r.working.Err() != nil:
		r.note(start, attempt, began, HandedBack, err)
		r.handBack(m, 0, done)
	case errors.As(err, &permanent), attempt == r.Attempts:
		r.end(m, start, attempt, began, execution.Progress{Status: execution.Failed, StartedAt: called, Error: err.Error()}, err, done)
	default:
		r.note(start, attempt, began, TriedAgain, err)
		r.handBack(m, r.pause(attempt, err), done)
	}
}

// pause is how long to wait before the attempt after this one.
func (r *runner) pause(attempt int, err error) time.Duration {
	var later *retryAfterError
	if errors.As(err, &later) && later.after > 0 {
		return later.after
	}
	return r.Backoff(attempt)
}

// call calls the handler, and returns when the handler returns or its time is over.
func (r *runner) call(ctx context.Context, start *execution.Start, attempt int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	type result struct {
		output []byte
		err    error
	}
	done := make(chan result, 1)
	go func() {
		output, err := protect(ctx, r.handler, Execution{Start: *start, Input: start.Payload.Input(), Attempt: attempt})
		done <- result{output, err}
	}()
	select {
	case got := <-done:
		return got.output, got.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(hangGrace)
	defer grace.Stop()
	select {
	case got := <-done:
		return got.output, got.err
	case <-grace.C:
		return nil, fmt.Errorf("the handler did not return within %s", r.Timeout)
	}
}

// protect calls the handler, and turns a panic or an output that cannot be marshalled into an error.
func protect(ctx context.Context, handler Handler, e Execution) (output []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	value, err := handler(ctx, e)
	if err != nil || value == nil {
		return nil, err
	}
	if output, err = json.Marshal(value); err != nil {
		return nil, Permanent(fmt.Errorf("the output is not valid JSON: %w", err))
	}
	return output, nil
}

// end reports a final state, and acknowledges the message when the report is confirmed. Else the execution runs again.
func (r *runner) end(m *message, start *execution.Start, attempt int, began time.Time, p execution.Progress, reason error, done func()) {
	report, err := r.progress(start, p)
	if err != nil {
		r.note(start, attempt, began, NotReported, err)
		r.handBack(m, time.Second, done)
		return
	}
	r.unconfirmed <- struct{}{}
	r.underway.publish(m, report, func(err error) {
		<-r.unconfirmed
		if err != nil {
			r.note(start, attempt, began, NotReported, err)
			r.handBack(m, time.Second, done)
			return
		}
		r.note(start, attempt, began, Result(p.Status), reason)
		_ = m.Ack()
		done()
	})
}

// handBack returns the message to the group: any member gets it after the delay.
func (r *runner) handBack(m *message, after time.Duration, done func()) {
	r.underway.remove(m)
	_ = m.NakWithDelay(after)
	done()
}

// reportRunning publishes that a handler has worked for ReportRunningAfter, unless stop is called first. Nothing confirms it: the
// final report makes up for a lost one. One that comes after the final report changes nothing.
func (r *runner) reportRunning(start *execution.Start, called time.Time) (stop func()) {
	report := func() {
		if msg, err := r.progress(start, execution.Progress{Status: execution.Running, At: called}); err == nil {
			_ = r.nc.PublishMsg(msg)
		}
	}
	if r.ReportRunningAfter < 0 {
		report()
		return func() {}
	}
	timer := time.AfterFunc(r.ReportRunningAfter, report)
	return func() { timer.Stop() }
}

func (r *runner) progress(start *execution.Start, p execution.Progress) (*nats.Msg, error) {
	p.ID = start.ID
	if p.At.IsZero() {
		p.At = time.Now()
	}
	if len(p.Error) > maxError {
		p.Error = p.Error[:maxError] + " …"
	}
	p.Error = strings.ToValidUTF8(p.Error, "\uFFFD")
	return stream.ProgressMessage(start.Queue, start.WorkflowID, start.NodeID, start.Trace, p)
}

// note reports an attempt to Observe, and writes its log line.
func (r *runner) note(start *execution.Start, attempt int, began time.Time, what Result, err error) {
	took := time.Since(began)
	if r.Observe != nil {
		r.Observe(Attempt{Execution: start, Result: what, Number: attempt, Took: took, Err: err})
	}
	if r.Log == nil {
		return
	}
	fields := logrus.Fields{"result": string(what), "attempt": attempt, "duration_ms": float64(took.Microseconds()) / 1000}
	if start != nil {
		fields["execution_id"], fields["workflow_id"] = start.ID, start.WorkflowID
	}
	if err != nil {
		fields["error"] = err.Error()
	}
	r.Log.WithFields(fields).Info("run")
}
