package recorder

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

// traceBatch creates a span for a committed batch, and one span for each of its messages that
// belongs to a sampled trace. A span can have only one parent, so the batch's span has links to the
// messages' traces instead. The SDK limits the number of links.
func (r *Recorder) traceBatch(ctx context.Context, entries []*entry, began time.Time) {
	if r.tracer == nil {
		return
	}
	var (
		sampled []*entry
		links   []trace.Link
	)
	for _, e := range entries {
		parent := trace.SpanContextFromContext(tracing.WithParent(ctx,
			e.msg.Headers().Get(stream.HeaderTrace)))
		if parent.IsSampled() {
			sampled = append(sampled, e)
			links = append(links, trace.Link{SpanContext: parent})
		}
	}
	if len(sampled) == 0 {
		return
	}
	ended := trace.WithTimestamp(time.Now())
	inBatch, whole := tracing.StartBatchSpan(ctx, r.tracer, "record", stream.ExecutionsName,
		stream.RecorderConsumerName, len(entries), links, trace.WithTimestamp(began))
	defer whole.End(ended)
	ofBatch := trace.LinkFromContext(inBatch)
	for _, e := range sampled {
		_, span := tracing.StartProcessSpan(ctx, r.tracer, "record", stream.RecorderConsumerName,
			e.msg.Headers().Get(stream.HeaderTrace), e.msg.Subject(),
			e.msg.Headers().Get(stream.HeaderExecutionID),
			trace.WithLinks(ofBatch), trace.WithTimestamp(began))
		if e.kind == kindUnreadable {
			tracing.Fail(span, "unreadable", "")
		}
		span.End(ended)
	}
}
