package ingress

import (
	"errors"
	"net/http"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/probe"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// handler answers the webhook endpoint's requests.
type handler struct {
	admission  *admission.Admission
	lease      lease
	publisher  publisher
	duplicates *report.Duplicates
	refused    refusalCounter
	probes     *probe.Answerer
	metrics    *requestMetrics
	tracer     trace.Tracer // nil: tracing is off
	log        *logrus.Logger

	deliveryIDHeaders []string // in canonical form, in order
	maxBody           int64
	bodyTimeout       time.Duration
	minBodyRate       int64 // bytes a second; 0: any
	rateGrace         time.Duration
	answerTimeout     time.Duration
	shares            *shares
}

// publisher stores messages: *publish.Publisher.
type publisher interface {
	Publish(msg *nats.Msg) (publish.Ack, error)
}

// lease says whether the registry can be relied on: *agree.Lease.
type lease interface {
	Valid(now time.Time) bool
}

// refusalCounter counts refusals by workflow: *report.Refusals.
type refusalCounter interface {
	Count(workflowID, code string, request stream.RefusedRequest)
}

func newHandler(c Config, a *admission.Admission, l lease, p publisher, d *report.Duplicates, refused refusalCounter, probes *probe.Answerer, m *requestMetrics, log *logrus.Logger) *handler {
	h := &handler{
		admission: a, lease: l, publisher: p, duplicates: d, refused: refused, probes: probes, metrics: m, log: log,
		maxBody: c.MaxBodyBytes, bodyTimeout: c.BodyTimeout,
		minBodyRate: c.MinBodyRate, rateGrace: rateGrace, answerTimeout: answerTimeout, shares: newShares(c.MaxInFlight, c.MaxBufferedBytes),
	}
	for _, name := range c.allDeliveryIDHeaders() {
		h.deliveryIDHeaders = append(h.deliveryIDHeaders, http.CanonicalHeaderKey(name))
	}
	return h
}

// webhookPath is what the path of a webhook begins with; the workflow's ID follows.
const webhookPath = "/webhooks/"

// router never redirects and never guesses: what is not a webhook path is not found.
func (h *handler) router() http.Handler {
	router := &httprouter.Router{HandleMethodNotAllowed: true}
	router.POST(webhookPath+":workflowId", func(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
		h.serve(w, r, p.ByName("workflowId"))
	})
	missing := func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) { h.serve(w, r, "") }
	router.POST("/webhooks", missing)
	router.POST(webhookPath, missing)
	router.NotFound = h.refuseAll(webhook.NotFound)
	notAllowed := h.refuseAll(webhook.MethodNotAllowed)
	router.MethodNotAllowed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "*" { // which to the router is every path
			w.Header().Del("Allow")
			router.NotFound.ServeHTTP(w, r)
			return
		}
		notAllowed.ServeHTTP(w, r)
	})
	return router
}

// serve is the path of a request. No step goes back to an earlier one, and nothing
// remote is asked before the publish.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, workflowID string) {
	e := h.begin(r, webhookRoute)
	defer h.end(w, r, e)

	if workflowID == "" {
		h.refuse(w, r, e, &admission.Refusal{Code: webhook.WorkflowIDMissing})
		return
	}
	token := findToken(r.URL.RawQuery)
	if token == "" {
		h.answerProbe(w, r, e)
		h.refuse(w, r, e, &admission.Refusal{Code: webhook.TokenMissing})
		return
	}
	if r.ContentLength > h.maxBody {
		h.refuse(w, r, e, &admission.Refusal{Code: webhook.BodyTooLarge})
		return
	}

	if !execution.ValidName(workflowID) {
		h.refuse(w, r, e, &admission.Refusal{Code: webhook.WorkflowNotFound})
		return
	}
	// A process that was frozen, or cut off from NATS, must neither accept nor refuse from its
	// old copy of the registry: a sender does not retry after 404 or 403.
	if !h.lease.Valid(e.start) {
		h.refuse(w, r, e, &admission.Refusal{Code: webhook.Unavailable, RetryAfter: retryUnavailable})
		return
	}
	deliveryID := h.deliveryID(r.Header)
	// The time after the wait for the lease: the rate limit needs requests in the order of
	// their times.
	admitted, refusal := h.admission.Admit(admission.Request{
		WorkflowID: workflowID, Token: token, DeliveryID: deliveryID, BodyBytes: r.ContentLength, At: time.Now(),
	})
	h.admitted(r, e, admitted)
	if refusal != nil && refusal.Code == webhook.WorkflowInactive {
		refusal = h.recordRejection(r, e, admitted, refusal, deliveryID)
	}
	if refusal != nil {
		h.refuse(w, r, e, refusal)
		return
	}

	buffers := takeBuffers()
	defer buffers.give()
	body, read, refusal := h.readBody(w, r, e, buffers, admitted.Workflow.AccountID)
	defer read.release()
	h.admission.CountBody(admitted, read.read, time.Now())
	if refusal != nil {
		h.refuse(w, r, e, refusal)
		return
	}
	e.bodyBytes = len(body)
	tokens := newHider(r.URL.RawQuery, shortestHidden)
	payload, err := execution.NewPayload(tokens.hide(headerText(r.Header.Get("Content-Type"))), body)
	if err != nil {
		h.refuse(w, r, e, &admission.Refusal{Code: webhook.JSONInvalid})
		return
	}

	executionID := admitted.ExecutionID(deliveryID)
	start := execution.Start{
		ID:         executionID,
		WorkflowID: admitted.Workflow.ID,
		NodeID:     admitted.NodeID,
		AccountID:  admitted.Workflow.AccountID,
		Queue:      admitted.Workflow.Queue,
		Source:     execution.Webhook,
		DeliveryID: tokens.hide(headerText(deliveryID)),
		AcceptedAt: e.start.UTC().Truncate(time.Microsecond),
		Payload:    payload,
		Trace:      e.startPublish(r, stream.StartSubject, admitted, executionID),
		Headers:    tokens.forwardedHeaders(r),
		Query:      tokens.forwardedQuery(r.URL.RawQuery),
		TokenID:    admitted.TokenID,
	}
	msg, err := stream.StartMessageIn(buffers.message, start)
	if err == nil {
		buffers.message = msg.Data // perhaps a larger one
	}
	ack, refusal := h.publish(e, msg, err)
	if refusal != nil {
		h.refuse(w, r, e, refusal)
		return
	}
	if ack.Duplicate {
		h.duplicates.Count(start.ID)
	}
	h.accept(w, e, start.ID, ack.Duplicate)
}

// recordRejection stores that an inactive workflow was called, so that the ID in the
// answer can be looked up; without that, the honest answer is that of the stream.
func (h *handler) recordRejection(r *http.Request, e *event, a admission.Admitted, why *admission.Refusal, deliveryID string) *admission.Refusal {
	tokens := newHider(r.URL.RawQuery, shortestHidden)
	rejection := execution.Rejection{
		ID:           why.ExecutionID,
		WorkflowID:   a.Workflow.ID,
		NodeID:       a.NodeID,
		AccountID:    a.Workflow.AccountID,
		Queue:        a.Workflow.Queue,
		At:           e.start.UTC().Truncate(time.Microsecond),
		Payload:      execution.Payload{ContentType: tokens.hide(headerText(r.Header.Get("Content-Type")))},
		DeclaredSize: max(r.ContentLength, 0),
		Headers:      tokens.forwardedHeaders(r),
		Query:        tokens.forwardedQuery(r.URL.RawQuery),
		Code:         string(why.Code),
		TokenID:      a.TokenID,
		Trace:        e.startPublish(r, stream.RejectedSubject, a, why.ExecutionID),
	}
	if len(deliveryID) <= execution.MaxDeliveryID {
		rejection.DeliveryID = tokens.hide(headerText(deliveryID))
	}
	e.executionID = rejection.ID
	msg, err := stream.RejectedMessage(rejection)
	_, refusal := h.publish(e, msg, err)
	if refusal != nil {
		return refusal
	}
	return why
}

// retryUnavailable is when a sender may find the stream back: a server that restarts, or a
// new leader.
const retryUnavailable = 2 * time.Second

// publish stores a message, unless it could not be encoded, and turns the stream's refusal
// into the sender's.
func (h *handler) publish(e *event, msg *nats.Msg, unencoded error) (publish.Ack, *admission.Refusal) {
	if unencoded != nil {
		e.err = unencoded
		return publish.Ack{}, &admission.Refusal{Code: webhook.Internal}
	}
	began := time.Now()
	ack, err := h.publisher.Publish(msg)
	e.publish = time.Since(began)
	e.endPublish(ack.Duplicate, err)
	if err == nil {
		return ack, nil
	}
	e.err = err
	switch {
	case errors.Is(err, publish.ErrStorageFull):
		return ack, &admission.Refusal{Code: webhook.StorageFull, RetryAfter: 30 * time.Second}
	case errors.Is(err, publish.ErrTooLong): // with all its headers and parameters
		return ack, &admission.Refusal{Code: webhook.BodyTooLarge}
	case errors.Is(err, publish.ErrOverloaded):
		return ack, &admission.Refusal{Code: webhook.Overloaded, RetryAfter: time.Second}
	default:
		return ack, &admission.Refusal{Code: webhook.Unavailable, RetryAfter: retryUnavailable}
	}
}
