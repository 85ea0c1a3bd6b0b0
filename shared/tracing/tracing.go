// Package tracing defines the form of Hookstart's spans, and how a span is propagated in a
// message's traceparent header. It imports only OpenTelemetry's API; shared/otlp sends spans.
//
// # The content of a span
//
// Names and attributes follow OpenTelemetry's semantic conventions; other attributes begin with
// "hookstart.". Span names contain no IDs, so there are only a few different names. A span never
// contains secrets or anything that a stranger chose: no URL, path or query (which contains the
// token), no header, no body and no output. IDs of workflows and executions become attributes only
// once they have been validated.
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

// Attributes that the semantic conventions do not define.
const (
	WorkflowIDKey   = attribute.Key("hookstart.workflow.id")
	NodeIDKey       = attribute.Key("hookstart.node.id")
	ExecutionIDKey  = attribute.Key("hookstart.execution.id")
	RefusalCodeKey  = attribute.Key("hookstart.code")         // code of a refusal
	DeduplicatedKey = attribute.Key("hookstart.deduplicated") // whether the request was a repeat
	AttemptKey      = attribute.Key("hookstart.attempt")
)

// messagingSystem is the attribute that names the messaging system.
var messagingSystem = semconv.MessagingSystemKey.String("nats")

// Tracer returns the tracer for one of Hookstart's packages; folder is the package's path in the
// repository. If provider is nil, tracing is off and Tracer returns nil.
func Tracer(provider trace.TracerProvider, folder string) trace.Tracer {
	if provider == nil {
		return nil
	}
	return provider.Tracer("github.com/hookstart/hookstart/"+folder,
		trace.WithSchemaURL(semconv.SchemaURL))
}

// traceparentCarrier is a carrier for OpenTelemetry's propagator. It holds only the traceparent
// header.
type traceparentCarrier string

func (t *traceparentCarrier) Get(name string) string {
	if name == "traceparent" {
		return string(*t)
	}
	return ""
}

func (t *traceparentCarrier) Set(name, value string) {
	if name == "traceparent" {
		*t = traceparentCarrier(value)
	}
}

func (t *traceparentCarrier) Keys() []string { return []string{"traceparent"} }

// WithParent returns a context with the span of a traceparent as its remote parent. It returns ctx
// if the traceparent is invalid.
func WithParent(ctx context.Context, text string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, (*traceparentCarrier)(&text))
}

// Traceparent returns the traceparent of the span in ctx, or "" if there is none.
func Traceparent(ctx context.Context) string {
	var carrier traceparentCarrier
	propagation.TraceContext{}.Inject(ctx, &carrier)
	return string(carrier)
}

// StartSendSpan begins the span of publishing a message to a stream. The caller must put the span's
// traceparent into the message.
func StartSendSpan(
	ctx context.Context, tracer trace.Tracer, subject, executionID string,
) (context.Context, trace.Span) {
	return tracer.Start(ctx, "publish "+subjectTemplate(subject),
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			messagingSystem,
			semconv.MessagingOperationName("publish"),
			semconv.MessagingOperationTypeSend,
			semconv.MessagingDestinationName(subject),
			semconv.MessagingDestinationTemplate(subjectTemplate(subject)),
			semconv.MessagingMessageID(executionID),
		))
}

// StartProcessSpan begins the span of processing a message, as a child of parent, the span that the
// message carries. The span's name begins with operation.
func StartProcessSpan(
	ctx context.Context, tracer trace.Tracer,
	operation, consumer, parent, subject, executionID string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	return tracer.Start(
		WithParent(ctx, parent),
		operation+" "+subjectTemplate(subject),
		append(options,
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(messagingSystem,
				semconv.MessagingOperationName(operation), semconv.MessagingOperationTypeProcess,
				semconv.MessagingDestinationName(subject),
				semconv.MessagingDestinationTemplate(subjectTemplate(subject)),
				semconv.MessagingConsumerGroupName(consumer),
				semconv.MessagingMessageID(executionID)))...)
}

// StartBatchSpan begins the span of processing several messages at once. messages is their number.
// The span is the root of a new trace, because the messages belong to different traces; links refer
// to the messages' spans.
func StartBatchSpan(
	ctx context.Context, tracer trace.Tracer, operation, stream, consumer string, messages int,
	links []trace.Link, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	return tracer.Start(ctx, operation+" "+stream,
		append(options, trace.WithNewRoot(), trace.WithLinks(links...),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
				messagingSystem, semconv.MessagingOperationName(operation),
				semconv.MessagingOperationTypeProcess,
				semconv.MessagingDestinationName(stream),
				semconv.MessagingConsumerGroupName(consumer),
				semconv.MessagingBatchMessageCount(messages),
			))...)
}

// Fail marks a span as failed. kind becomes the attribute error.type and must be one of a small set
// of values. why is for people; only its first line is used, which omits the stack trace of a
// panic.
func Fail(span trace.Span, kind, why string) {
	why, _, _ = strings.Cut(why, "\n")
	span.SetStatus(codes.Error, why)
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// subjectTemplate returns a subject with placeholders instead of IDs:
// executions.start.{queue}.{workflowId}.{nodeId}. It returns "_OTHER" for an unknown subject.
func subjectTemplate(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	kind, rest, _ := strings.Cut(rest, ".")
	if kind == "queue" { // a subject of a queue's own stream
		_, rest, _ = strings.Cut(rest, ".")
		kind, _, _ = strings.Cut(rest, ".")
		kind = "queue." + kind
	}
	switch kind {
	case "start":
		return "executions.start.{queue}.{workflowId}.{nodeId}"
	case "ordered":
		return "executions.ordered.{queue}.{lane}.{workflowId}.{nodeId}"
	case "rejected":
		return "executions.rejected.{queue}.{workflowId}.{nodeId}"
	case "progress":
		return "executions.progress.{queue}.{workflowId}.{executionId}"
	case "queue.start":
		return "executions.queue.{queue}.start.{workflowId}.{nodeId}"
	case "queue.ordered":
		return "executions.queue.{queue}.ordered.{lane}.{workflowId}.{nodeId}"
	case "queue.rejected":
		return "executions.queue.{queue}.rejected.{workflowId}.{nodeId}"
	case "reports":
		return "executions.reports.{queue}.{workflowId}.{executionId}"
	default:
		return "_OTHER"
	}
}
