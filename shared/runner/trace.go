package runner

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/tracing"
)

// tracer makes the spans of attempts.
func (o Options) tracer() trace.Tracer {
	provider := o.Traces
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return tracing.Tracer(provider, "shared/runner")
}

// startSpan begins an attempt's span, below the message's. The spans of the handler and of the reports are below this one.
func (r *runner) startSpan(msg jetstream.Msg, start *execution.Start, attempt int) (context.Context, trace.Span) {
	ctx, span := tracing.StartProcess(r.working, r.tracer(), "process", r.consumer(), start.Trace, msg.Subject(), start.ID,
		trace.WithAttributes(tracing.WorkflowID.String(start.WorkflowID), tracing.NodeID.String(start.NodeID), tracing.Attempt.Int(attempt)))
	if own := tracing.Traceparent(ctx); own != "" {
		start.Trace = own
	}
	return ctx, span
}

// endSpan ends it with what the handler returned.
func endSpan(span trace.Span, err error) {
	var permanent *permanentError
	switch {
	case err == nil:
	case errors.As(err, &permanent):
		tracing.Fail(span, "permanent", err.Error())
	default:
		tracing.Fail(span, "error", err.Error())
	}
	span.End()
}
