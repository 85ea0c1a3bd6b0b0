package runner

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/hookstart/hookstart/shared/tracing"
)

// tracer returns the tracer for attempts. If the provider panics, it returns a tracer that creates
// no spans.
func (r *runner) tracer() (tracer trace.Tracer) {
	tracer = noop.Tracer{} //nolint:wastedassign // the result if the provider panics
	defer r.recoverOptionPanic("Traces")
	provider := r.Traces
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return tracing.Tracer(provider, "shared/runner")
}

// startSpan begins an attempt's span, as a child of the span in the message, and returns a context
// that contains it. The spans of the handler and of the reports become its children.
func (r *runner) startSpan(m *message, subject string) (ctx context.Context) {
	ctx = r.handlersCtx //nolint:wastedassign // the result if the provider panics
	defer r.recoverOptionPanic("Traces")
	ctx, _ = tracing.StartProcessSpan(r.handlersCtx, r.attemptTracer, "process", r.consumerName(),
		m.start.Trace, subject, m.start.ID,
		trace.WithAttributes(tracing.WorkflowIDKey.String(m.start.WorkflowID),
			tracing.NodeIDKey.String(m.start.NodeID), tracing.AttemptKey.Int(m.attempt)))
	if own := tracing.Traceparent(ctx); own != "" {
		m.start.Trace = own
	}
	return ctx
}

// endSpan ends the span in ctx with the attempt's outcome.
func (r *runner) endSpan(ctx context.Context, o outcome) {
	defer r.recoverOptionPanic("Traces")
	span := trace.SpanFromContext(ctx)
	switch {
	case o.err == nil:
	case o.permanent:
		tracing.Fail(span, "permanent", o.errText)
	default:
		tracing.Fail(span, "error", o.errText)
	}
	span.End()
}
