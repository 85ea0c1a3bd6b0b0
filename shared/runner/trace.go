package runner

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

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
func (r *runner) startSpan(m *message, subject string) context.Context {
	ctx, _ := tracing.StartProcess(r.working, r.spans, "process", r.consumer(), m.start.Trace, subject, m.start.ID,
		trace.WithAttributes(tracing.WorkflowID.String(m.start.WorkflowID), tracing.NodeID.String(m.start.NodeID), tracing.Attempt.Int(m.attempt)))
	if own := tracing.Traceparent(ctx); own != "" {
		m.start.Trace = own
	}
	return ctx
}

// endSpan ends the context's with what the handler returned.
func endSpan(ctx context.Context, err error) {
	span := trace.SpanFromContext(ctx)
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
