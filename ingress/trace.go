package ingress

import (
	"net/http"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/tracing"
)

// webhookRoute replaces the path of every webhook in spans, which never contain the path itself.
const webhookRoute = "/webhooks/{workflowId}"

// spans holds the spans of one request: the request's own span and, as its child, the span of
// publishing a message. A nil *spans means that nothing is traced. Its methods may still be called.
type spans struct {
	tracer  trace.Tracer
	request trace.Span
	publish trace.Span // nil before startPublishSpan and after endPublishSpan
}

// startRequestSpan starts the request's span. If trusted is true, the span becomes part of the
// sender's trace, and the sender decides whether it is sampled. Otherwise it starts a new trace
// with a link to the sender's span, because an unauthenticated client must not decide which
// requests are traced.
func (h *handler) startRequestSpan(d *delivery, trusted bool) {
	if h.tracer == nil || d.spans != nil {
		return
	}
	r, e := d.r, &d.event
	ctx, options := r.Context(), make([]trace.SpanStartOption, 0, 5)
	if given := r.Header["Traceparent"]; len(given) == 1 {
		parent := tracing.WithParent(ctx, given[0])
		if trusted {
			ctx = parent
		} else if link := trace.LinkFromContext(parent); link.SpanContext.IsValid() {
			options = append(options, trace.WithLinks(link))
		}
	}
	method := semconv.HTTPRequestMethodOther
	switch r.Method {
	case http.MethodPost:
		method = semconv.HTTPRequestMethodPost
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		method = semconv.HTTPRequestMethodKey.String(r.Method)
	}
	name := method.Value.AsString()
	if method == semconv.HTTPRequestMethodOther {
		name = "HTTP"
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	options = append(options,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(e.start),
		trace.WithAttributes(method, semconv.URLScheme(scheme)),
	)
	if e.route != "" {
		name += " " + e.route
		options = append(options, trace.WithAttributes(semconv.HTTPRoute(e.route)))
	}
	_, span := h.tracer.Start(ctx, name, options...)
	d.spans = &spans{tracer: h.tracer, request: span}
}

// startPublishSpan starts the span of publishing a message, as a child of the request's span, and
// returns the traceparent for the message. The span contains the message's subject, which the
// function subject returns. If s is nil, startPublishSpan starts no span and only returns a
// traceparent.
func (s *spans) startPublishSpan(
	r *http.Request, subject func(queue, workflowID, nodeID string) string, t admission.Trigger,
	executionID string,
) (traceparent string) {
	if s == nil {
		return newTraceparent(r.Header)
	}
	ctx, span := tracing.StartSendSpan(trace.ContextWithSpan(r.Context(), s.request),
		s.tracer, subject(t.Workflow.Queue, t.Workflow.ID, t.NodeID), executionID)
	s.publish = span
	return tracing.Traceparent(ctx)
}

// endPublishSpan ends the publish span, and records in it whether the message was a repeat or why
// it was not stored.
func (s *spans) endPublishSpan(duplicate bool, err error) {
	if s == nil || s.publish == nil {
		return
	}
	span := s.publish
	s.publish = nil
	if duplicate {
		span.SetAttributes(tracing.DeduplicatedKey.Bool(true))
	}
	if err != nil {
		tracing.Fail(span, "not_stored", err.Error())
	}
	span.End()
}

// end ends the spans that are still open, and adds the data of the request's event to the request's
// span.
func (s *spans) end(e *requestEvent) {
	if s == nil {
		return
	}
	if s.publish != nil { // the message was not published
		tracing.Fail(s.publish, "not_sent", "")
		s.endPublishSpan(false, nil)
	}
	span := s.request
	span.SetAttributes(semconv.HTTPResponseStatusCode(e.status))
	if e.workflowID != "" {
		span.SetAttributes(tracing.WorkflowIDKey.String(e.workflowID),
			tracing.NodeIDKey.String(e.nodeID))
	}
	if e.executionID != "" {
		span.SetAttributes(tracing.ExecutionIDKey.String(e.executionID))
	}
	if e.duplicate {
		span.SetAttributes(tracing.DeduplicatedKey.Bool(true))
	}
	if e.code != "" {
		span.SetAttributes(tracing.RefusalCodeKey.String(string(e.code)))
	}
	if e.status >= http.StatusInternalServerError {
		// Only a 5xx is a failure of this service; a 4xx is the client's error.
		tracing.Fail(span, string(e.code), problemsByCode[e.code].title)
	}
	span.End()
}
