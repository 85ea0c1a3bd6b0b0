// Package tracing is the form of hookstart's spans, and how a span travels in a message: in its header traceparent. It links
// OpenTelemetry's API only; shared/otlp sends spans.
//
// # What a span says
//
// Names and attributes are those of OpenTelemetry's semantic conventions; others begin with hookstart. Span names are as many as kinds
// of messages and methods. No span has what a stranger chose or what is secret: no URL, path or query (the token is there), no
// header, no body, no output. IDs of workflows and executions are attributes once they are known to be such.
package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// The attributes of our own.
const (
	WorkflowID   = attribute.Key("hookstart.workflow.id")
	NodeID       = attribute.Key("hookstart.node.id")
	ExecutionID  = attribute.Key("hookstart.execution.id")
	Code         = attribute.Key("hookstart.code")         // of a refusal
	Deduplicated = attribute.Key("hookstart.deduplicated") // the delivery came before
	Attempt      = attribute.Key("hookstart.attempt")
)

// system is where messages are.
var system = semconv.MessagingSystemKey.String("nats")

// Tracer is that of one of our packages, or nil when there is no provider: tracing is off.
func Tracer(provider trace.TracerProvider, folder string) trace.Tracer {
	if provider == nil {
		return nil
	}
	return provider.Tracer("github.com/hookstart/hookstart/"+folder, trace.WithSchemaURL(semconv.SchemaURL))
}

// traceparent carries a span for OpenTelemetry's propagator: the header of that name, and no other.
type traceparent string

func (t *traceparent) Get(name string) string {
	if name == "traceparent" {
		return string(*t)
	}
	return ""
}

func (t *traceparent) Set(name, value string) {
	if name == "traceparent" {
		*t = traceparent(value)
	}
}

func (t *traceparent) Keys() []string { return []string{"traceparent"} }

// WithParent puts the span of a traceparent into ctx, as another process's. An invalid traceparent changes nothing.
func WithParent(ctx context.Context, text string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, (*traceparent)(&text))
}

// Traceparent names the span of ctx for another process; "" when there is none.
func Traceparent(ctx context.Context) string {
	var carrier traceparent
	propagation.TraceContext{}.Inject(ctx, &carrier)
	return string(carrier)
}

// StartSend begins the span of putting a message into the stream. The message carries it.
func StartSend(ctx context.Context, tracer trace.Tracer, subject, executionID string) (context.Context, trace.Span) {
	return tracer.Start(ctx, "publish "+template(subject), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		system, semconv.MessagingOperationName("publish"), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(subject), semconv.MessagingDestinationTemplate(template(subject)),
		semconv.MessagingMessageID(executionID),
	))
}

// StartProcess begins the span of processing a message, below the message's. The span's name begins with operation.
func StartProcess(ctx context.Context, tracer trace.Tracer, operation, consumer, parent, subject, executionID string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return tracer.Start(WithParent(ctx, parent), operation+" "+template(subject), append(options,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			system, semconv.MessagingOperationName(operation), semconv.MessagingOperationTypeProcess,
			semconv.MessagingDestinationName(subject), semconv.MessagingDestinationTemplate(template(subject)),
			semconv.MessagingConsumerGroupName(consumer), semconv.MessagingMessageID(executionID),
		))...)
}

// StartBatch begins the span of processing many messages, in no message's trace; links names their spans.
func StartBatch(ctx context.Context, tracer trace.Tracer, operation, stream, consumer string, messages int, links []trace.Link, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return tracer.Start(ctx, operation+" "+stream, append(options, trace.WithNewRoot(), trace.WithLinks(links...),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			system, semconv.MessagingOperationName(operation), semconv.MessagingOperationTypeProcess,
			semconv.MessagingDestinationName(stream), semconv.MessagingConsumerGroupName(consumer),
			semconv.MessagingBatchMessageCount(messages),
		))...)
}

// Fail marks a span as failed. kind is one of few; why is for people, cut to its first line, without a panic's stack.
func Fail(span trace.Span, kind, why string) {
	why, _, _ = strings.Cut(why, "\n")
	span.SetStatus(codes.Error, why)
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// template is a subject with names for its IDs: executions.start.{queue}.{workflowId}.{nodeId}.
func template(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	kind, _, _ := strings.Cut(rest, ".")
	switch kind {
	case "start":
		return "executions.start.{queue}.{workflowId}.{nodeId}"
	case "rejected":
		return "executions.rejected.{queue}.{workflowId}.{nodeId}"
	case "progress":
		return "executions.progress.{queue}.{workflowId}.{executionId}"
	default:
		return "_OTHER"
	}
}
