package ingress

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/await"
	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/ingress/internal/storage"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/probe"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// handler is the HTTP handler of the webhook endpoint.
type handler struct {
	dependencies

	publicURL string // without a trailing slash; "" means unknown
	// priorityIDHeaders holds the headers that are searched first for the delivery ID, in canonical
	// form and in order of precedence.
	priorityIDHeaders   []string
	configuredIDHeaders []string // headers that are searched last for the delivery ID
	maxBody             int64
	bodyTimeout         time.Duration
	minBodyRate         int64 // bytes per second; 0 means no minimum
	bodyRateGracePeriod time.Duration
	responseTimeout     time.Duration
	limiter             *fairShareLimiter
}

// dependencies holds the parts of the process that a handler uses.
type dependencies struct {
	admission  *admission.Admission
	lease      registryLease
	publisher  deliveryPublisher
	space      *storage.StreamSpace
	duplicates *report.DuplicateCounter
	refusals   refusalCounter
	senders    senderObserver
	filtered   filteredRequestCounter
	waits      *await.Waits
	// queuesWithOwnStreams returns the names of the queues that have their own streams.
	queuesWithOwnStreams func() []string
	probes               *probe.Responder
	metrics              *requestMetrics
	tracer               trace.Tracer // nil means that tracing is off
	log                  *logrus.Logger
	// sealer encrypts a secret that the provider of a trigger node has sent.
	sealer func(workflowID, nodeID, secret string) ([]byte, error)
}

// registryLease is a lease that is valid while this process's copy of the registry is current. It
// is implemented by *consistency.Lease.
type registryLease interface {
	IsValid(now time.Time) bool
	IsValidSince(start, now time.Time) bool
	AwaitValid(now time.Time) bool
}

// refusalCounter counts refusals by workflow. It is implemented by *report.RefusalCounter.
type refusalCounter interface {
	Count(workflowID, code string, request stream.RefusedRequest)
}

// filteredRequestCounter counts requests that did not match their node's filter. It is implemented
// by *report.FilteredRequestCounter.
type filteredRequestCounter interface {
	Count(workflowID, nodeID string, request stream.FilteredRequest)
}

// senderObserver collects observations about senders, for example that a request was verified or
// refused. observed is false if the observation was discarded. It is implemented by
// *report.SenderObserver.
type senderObserver interface {
	Observe(workflowID, nodeID, preset string, seen report.SenderObservation) (observed bool)
}

// newHandler returns a handler with the settings in c and the dependencies in d.
func newHandler(c Config, d dependencies) *handler {
	return &handler{
		dependencies:        d,
		publicURL:           strings.TrimSuffix(c.PublicURL, "/"),
		priorityIDHeaders:   canonicalNames(webhook.PriorityDeliveryIDHeaders()),
		configuredIDHeaders: canonicalNames(c.DeliveryIDHeaders),
		maxBody:             c.MaxBodyBytes,
		bodyTimeout:         c.BodyTimeout,
		minBodyRate:         c.MinBodyRate,
		bodyRateGracePeriod: bodyRateGracePeriod,
		responseTimeout:     responseTimeout,
		limiter:             newFairShareLimiter(c.MaxInFlight, c.MaxBufferedBytes),
	}
}

func canonicalNames(headers []string) []string {
	names := make([]string, len(headers))
	for i, name := range headers {
		names[i] = http.CanonicalHeaderKey(name)
	}
	return names
}

// webhookPathPrefix is the beginning of a webhook's path, before the workflow ID.
const webhookPathPrefix = "/webhooks/"

// router returns the routes of the endpoint. The router never redirects: it responds with 404 to
// any path that is not exactly a webhook's.
func (h *handler) router() http.Handler {
	router := &httprouter.Router{HandleMethodNotAllowed: true}
	router.POST(webhookPathPrefix+":workflowId", func(
		w http.ResponseWriter, r *http.Request, p httprouter.Params,
	) {
		h.serve(w, r, p.ByName("workflowId"))
	})
	missing := func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		h.serve(w, r, "")
	}
	router.POST("/webhooks", missing)
	router.POST(webhookPathPrefix, missing)
	for _, method := range [...]string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		router.Handle(method, webhookPathPrefix+":workflowId", func(
			w http.ResponseWriter, r *http.Request, p httprouter.Params,
		) {
			h.serveNonPOST(w, r, p.ByName("workflowId"))
		})
	}
	router.NotFound = h.refusingHandler(webhook.CodeNotFound)
	notAllowed := h.refusingHandler(webhook.CodeMethodNotAllowed)
	router.MethodNotAllowed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "*" { // the router would match it against every path
			w.Header().Del("Allow")
			router.NotFound.ServeHTTP(w, r)
			return
		}
		notAllowed.ServeHTTP(w, r)
	})
	return router
}

// serve handles a POST request. runSteps runs the checks in steps.go and publishes the start
// message, respond writes the response, and finishRequest records the metrics and the log line.
// Before the message is published, no step makes a remote call.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, workflowID string) {
	d := acquireDelivery(w, r)
	defer d.release()
	h.beginRequest(d, webhookRoute)
	defer h.finishRequest(d)
	h.respond(d, h.runSteps(d, workflowID))
	d.reservation.release() // not later, because finishRequest may have to drain a long body
}

// serveNonPOST responds to a request with a method other than POST. If the sender of the node
// uses the method for handshakes, it responds to the handshake. Otherwise, it responds with 405.
func (h *handler) serveNonPOST(w http.ResponseWriter, r *http.Request, workflowID string) {
	d := acquireDelivery(w, r)
	defer d.release()
	h.beginRequest(d, "")
	defer h.finishRequest(d)
	h.respond(d, h.nonPOSTOutcome(d, workflowID))
	d.reservation.release()
}

func (h *handler) nonPOSTOutcome(d *delivery, workflowID string) outcome {
	notAllowed := outcome{refusal: &admission.Refusal{Code: webhook.CodeMethodNotAllowed}}
	if h.parseHead(d, workflowID) != nil || !execution.ValidName(workflowID) {
		return notAllowed
	}
	// If the copy of the registry is stale, the workflow with the handshake may be missing from it.
	// Until the copy is current, respond with a temporary error, so that the sender retries.
	if sender.IsNonPOSTHandshake(&sender.Request{
		Method: d.r.Method, Header: d.r.Header, Host: d.r.Host, Query: d.r.URL.RawQuery,
	}) && !h.lease.AwaitValid(d.event.start) {
		return *refusalOutcome(webhook.CodeUnavailable, retryAfterUnavailable)
	}
	found, refusal := h.admission.Find(workflowID, d.token, time.Now())
	if refusal != nil || found.Node.Sender == nil ||
		!slices.Contains(found.Node.Sender.NonPOSTHandshakeMethods(), d.r.Method) {
		return notAllowed
	}
	if out := h.findTrigger(d); out != nil {
		return *out
	}
	if out := h.respondToHandshake(d); out != nil {
		return *out
	}
	return notAllowed
}
