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

// maxError bounds the reason in a report.
const maxError = 4000

// reportOverhead is room in a report for all but the output.
const reportOverhead = 16 << 10

// begin handles one message. Its handler gets a goroutine of its own, and a place until it has returned or was abandoned.
func (r *runner) begin(msg jetstream.Msg) {
	began := time.Now()
	event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
	meta, metaErr := msg.Metadata()
	if err = errors.Join(err, metaErr); err != nil {
		// The executor lists it as a dead letter; another attempt would not help.
		r.note(nil, 0, began, Unreadable, err)
		_ = msg.TermWithReason(err.Error())
		r.leave()
		r.unacknowledged.Done()
		return
	}
	m := &message{
		key: key{meta.Sequence.Stream, event.Start.ID}, Msg: msg, heartbeat: began,
		start: event.Start, attempt: int(min(meta.NumDelivered, 1<<30)), began: began,
	}
	if !r.underway.add(m) {
		r.leave()
		r.unacknowledged.Done()
		return
	}
	if m.attempt > r.Attempts {
		go r.giveUp(m)
		return
	}
	go r.run(r.startSpan(m, msg.Subject()), m)
}

// leave frees a place.
func (r *runner) leave() { r.places <- struct{}{} }

// giveUp ends an execution that has killed whoever ran it.
func (r *runner) giveUp(m *message) {
	m.attempt = r.Attempts // the last one that a handler may have seen
	err := fmt.Errorf("no runner finished it in %d attempts: each died, was cut off, or did not return in time", r.Attempts)
	r.end(m, execution.Progress{Status: execution.Failed, Error: err.Error()}, err)
	r.leave()
}

// run makes an attempt, in the context of its span.
func (r *runner) run(ctx context.Context, m *message) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	m.called = time.Now()
	if r.ReportRunningAfter < 0 {
		r.reportRunning(m)
	}
	r.underway.called(ctx, m)
	output, err := protect(ctx, r.handler, Execution{Start: *m.start, Input: m.start.Payload.Input(), Attempt: m.attempt})
	if r.underway.returned(m) {
		r.finish(ctx, m, output, err)
	}
}

// abandon finishes an attempt whose handler did not return in time.
func (r *runner) abandon(ctx context.Context, m *message) {
	r.finish(ctx, m, nil, fmt.Errorf("the handler did not return within %s", r.Timeout))
}

// finish reports how an attempt ended, and frees its place.
func (r *runner) finish(ctx context.Context, m *message, output []byte, err error) {
	defer r.leave()
	if most := MaxOutput(r.nc); err == nil && int64(len(output)) > most {
		// The NATS server would refuse the report each time.
		output, err = nil, Permanent(fmt.Errorf("the output has %d bytes, but a report takes at most %d: store it elsewhere and return a reference", len(output), most))
	}
	endSpan(ctx, err)

	var permanent *permanentError
	switch {
	case err == nil:
		r.end(m, execution.Progress{Status: execution.Succeeded, StartedAt: m.called, Output: output}, nil)
	case r.working.Err() != nil:
		r.note(m.start, m.attempt, m.began, HandedBack, err)
		r.handBack(m, 0)
	case errors.As(err, &permanent), m.attempt == r.Attempts:
		r.end(m, execution.Progress{Status: execution.Failed, StartedAt: m.called, Error: err.Error()}, err)
	default:
		r.note(m.start, m.attempt, m.began, TriedAgain, err)
		r.handBack(m, r.pause(m.attempt, err))
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
func (r *runner) end(m *message, p execution.Progress, reason error) {
	p.Attempt = m.attempt
	report, err := r.progress(m.start, p)
	if err != nil {
		r.note(m.start, m.attempt, m.began, NotReported, err)
		r.handBack(m, time.Second)
		return
	}
	r.unconfirmed <- struct{}{}
	r.underway.publish(m, report, func(err error) {
		<-r.unconfirmed
		if err != nil {
			r.note(m.start, m.attempt, m.began, NotReported, err)
			r.handBack(m, time.Second)
			return
		}
		r.note(m.start, m.attempt, m.began, Result(p.Status), reason)
		_ = m.Ack()
		r.unacknowledged.Done()
	})
}

// handBack returns the message to the group: any member gets it after the delay.
func (r *runner) handBack(m *message, after time.Duration) {
	r.underway.remove(m)
	_ = m.NakWithDelay(after)
	r.unacknowledged.Done()
}

// reportRunning publishes that a handler works. Nothing confirms it: the final report makes up for a lost one. One that comes
// after the final report changes nothing.
func (r *runner) reportRunning(m *message) {
	if msg, err := r.progress(m.start, execution.Progress{Status: execution.Running, At: m.called, Attempt: m.attempt}); err == nil {
		_ = r.nc.PublishMsg(msg)
	}
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
