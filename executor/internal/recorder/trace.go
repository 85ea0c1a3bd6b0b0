package recorder

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

// trace leaves a span for a batch that is committed, and one for each of its messages
// whose trace is sampled, in that trace. The two are linked: one transaction belongs to
// many traces. The batch's links are bounded by the SDK, a message's one link is not.
func (r *Recorder) trace(ctx context.Context, messages []jetstream.Msg, b *batch, began time.Time) {
	if r.tracer == nil {
		return
	}
	var (
		sampled []jetstream.Msg
		links   []trace.Link
	)
	for _, msg := range messages {
		parent := trace.SpanContextFromContext(tracing.WithParent(ctx, msg.Headers().Get(stream.HeaderTrace)))
		if parent.IsSampled() {
			sampled = append(sampled, msg)
			links = append(links, trace.Link{SpanContext: parent})
		}
	}
	if len(sampled) == 0 {
		return
	}
	ended := trace.WithTimestamp(time.Now())
	inBatch, whole := tracing.StartBatch(ctx, r.tracer, "record", stream.Name, Durable, len(messages), links, trace.WithTimestamp(began))
	defer whole.End(ended)
	ofBatch := trace.LinkFromContext(inBatch)
	for _, msg := range sampled {
		_, span := tracing.StartProcess(ctx, r.tracer, "record", Durable,
			msg.Headers().Get(stream.HeaderTrace), msg.Subject(), msg.Headers().Get(stream.HeaderExecutionID),
			trace.WithLinks(ofBatch), trace.WithTimestamp(began))
		if b.unreadable[msg] != "" {
			tracing.Fail(span, "unreadable", "")
		}
		span.End(ended)
	}
}
