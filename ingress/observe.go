package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/await"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// requestEvent holds the data that one request adds to the log, the metrics and the attributes of
// its span. It contains no unvalidated input: no path, no header, no token, and a workflow ID only
// once the workflow has been found.
type requestEvent struct {
	start            time.Time
	route            string // the pattern of the path, or ""
	workflowID       string
	nodeID           string
	status           int
	code             webhook.Code
	executionID      string
	duplicate        bool
	handshake        bool // the request is a sender's handshake, which starts nothing
	filtered         bool // the request does not match the node's filter
	statusFromOutput bool // the execution's output set the status
	// waitEndReason is the reason why the response stopped waiting for its execution. "" means that
	// it did not wait.
	waitEndReason   await.Reason
	waitDuration    time.Duration // how long the response waited
	bodyBytes       int
	probe           bool // the request was an executor's check of the public URL
	publishDuration time.Duration
	err             error
}

// recordTriggerAndStartSpan records the workflow and the node of a request with a valid token, and
// starts the request's spans, which become part of the sender's trace.
func (h *handler) recordTriggerAndStartSpan(d *delivery) {
	d.event.workflowID, d.event.nodeID = d.trigger.Workflow.ID, d.trigger.NodeID
	h.startRequestSpan(d, true)
}

// beginRequest starts the event of a request. route is the pattern that the path matches, or "" if
// the request has no route.
func (h *handler) beginRequest(d *delivery, route string) {
	h.metrics.inFlight.Inc()
	d.event = requestEvent{start: time.Now(), route: route}
}

// finishRequest records the request's metrics, log line and spans, drains the rest of the body to
// keep the connection, and recovers from panics.
func (h *handler) finishRequest(d *delivery) {
	e := &d.event
	if p := recover(); p != nil {
		e.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		h.refuse(d, &admission.Refusal{Code: webhook.CodeInternal}, nil)
	}
	h.startRequestSpan(d, false) // has no effect if recordTriggerAndStartSpan has started the spans
	took := time.Since(e.start)
	h.metrics.observe(e, took)
	h.countRefusal(d)
	h.logEvent(e, took)
	d.spans.end(e)
	if d.bodyUnread {
		h.discardBody(d.w, d.r)
	}
}

func (h *handler) logEvent(e *requestEvent, took time.Duration) {
	level := logrus.InfoLevel
	if e.status >= http.StatusInternalServerError && !e.statusFromOutput &&
		e.code != webhook.CodeRunFailed {
		level = logrus.WarnLevel
	}
	members := make([]ops.Field, 0, 12)
	put := func(name, value string) {
		if value != "" {
			members = append(members, ops.Text(name, value))
		}
	}
	// Add the fields in alphabetical order, the order in which they are logged, so that they need
	// not be sorted for each request.
	put("answer", string(e.waitEndReason))
	if e.bodyBytes > 0 {
		members = append(members, ops.Number("body_bytes", e.bodyBytes))
	}
	put("code", string(e.code))
	if e.duplicate {
		members = append(members, ops.True("deduplicated"))
	}
	members = append(members, ops.Number("duration_ms", milliseconds(took)))
	if e.err != nil {
		put("error", e.err.Error())
	}
	put("execution_id", e.executionID)
	if e.filtered {
		members = append(members, ops.True("filtered"))
	}
	if e.handshake {
		members = append(members, ops.True("handshake"))
	}
	put("node_id", e.nodeID)
	if e.probe {
		members = append(members, ops.True("probe"))
	}
	if e.publishDuration > 0 {
		members = append(members, ops.Number("publish_ms", milliseconds(e.publishDuration)))
	}
	members = append(members, ops.Number("status", e.status))
	if e.waitEndReason != "" {
		members = append(members, ops.Number("wait_ms", milliseconds(e.waitDuration)))
	}
	put("workflow_id", e.workflowID)
	ops.LogEvent(h.log, level, e.start.Add(took), "webhook", members)
}

// refusingHandler returns a handler that refuses every request with the given code.
func (h *handler) refusingHandler(code webhook.Code) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := acquireDelivery(w, r)
		defer d.release()
		h.beginRequest(d, "")
		defer h.finishRequest(d) //nolint:contextcheck // d has the request, and so its context
		h.refuse(d, &admission.Refusal{Code: code}, nil)
	})
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

// signatureRefusalLabels holds the label values of the counter for requests that were refused
// because of their signature.
type signatureRefusalLabels struct {
	preset string
	code   webhook.Code
}

// responseLabels holds the label values of the counter for requests.
type responseLabels struct {
	// status is the HTTP status, or customStatusLabel if an execution's output set the status.
	status int
	code   webhook.Code // "" means accepted, filtered, or a handshake
}

// customStatusLabel is the label value for all statuses that executions set in their outputs. These
// statuses are not used as label values themselves, so that the number of label values stays small.
const customStatusLabel = 0

// requestMetrics holds the metrics of the requests. Label values are only codes, statuses, reasons
// and presets of senders, so their number is bounded.
type requestMetrics struct {
	requests         map[responseLabels]prometheus.Counter
	verified         map[string]prometheus.Counter // counters of verified requests, by preset
	handshakes       map[string]prometheus.Counter // counters of handshakes, by preset
	unverified       map[signatureRefusalLabels]prometheus.Counter
	duplicates       prometheus.Counter
	filtered         prometheus.Counter
	overStorageShare prometheus.Counter
	waitsByReason    map[await.Reason]prometheus.Counter
	waitDuration     prometheus.Histogram
	bodyBytes        prometheus.Counter
	duration         prometheus.Histogram
	publish          prometheus.Histogram
	inFlight         prometheus.Gauge
}

// registerStateMetrics registers gauges for the state of the ingress: the registry's revision and
// lag, the workflows, and the responses that are waiting.
func registerStateMetrics(
	r prometheus.Registerer, snapshot *registry.Snapshot, follower *consistency.Follower,
	lease *consistency.Lease, waits *await.Waits,
) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_ingress_registry_revision",
			Help: "The registry revision that is in force here.",
		}, func() float64 { return float64(follower.Revision()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_ingress_registry_lag_seconds",
			Help: "How long ago all that the registry held was in force here; past 2 every " +
				"webhook is answered 503.",
		}, func() float64 { return lease.SinceCaughtUp(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_ingress_workflows", Help: "Workflows that are known here.",
		}, func() float64 { return float64(snapshot.WorkflowCount()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_ingress_answers_waiting",
			Help: "Requests whose answers wait for the ends of their executions.",
		}, func() float64 { return float64(waits.Waiting()) }),
	)
}

func newRequestMetrics(r *prometheus.Registry) *requestMetrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(ops.HistogramOpts(name, help, ops.SecondsBuckets))
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_ingress_requests_total",
		Help: "Requests by status (output: one that the output of the execution chose) and by " +
			"the refusal's code (empty: accepted, filtered, or a sender's handshake).",
	}, []string{"status", "code"})
	verified := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_ingress_senders_verified_total",
		Help: "Requests that were verified as their sender's, by preset.",
	}, []string{"preset"})
	handshakes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_ingress_senders_handshakes_total",
		Help: "Handshakes of senders that were answered, by preset.",
	}, []string{"preset"})
	unverified := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_ingress_senders_refused_total",
		Help: "Requests that were refused by their signature, by preset and code.",
	}, []string{"preset", "code"})
	waits := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_ingress_answers_total",
		Help: "Requests to nodes whose answers wait for the end of the execution, by the reason " +
			"why they waited no longer.",
	}, []string{"reason"})
	m := &requestMetrics{
		waitsByReason: map[await.Reason]prometheus.Counter{},
		waitDuration: histogram("hookstart_ingress_answer_wait_seconds",
			"How long an answer waited for the end of its execution."),
		requests:   map[responseLabels]prometheus.Counter{},
		verified:   map[string]prometheus.Counter{},
		handshakes: map[string]prometheus.Counter{},
		unverified: map[signatureRefusalLabels]prometheus.Counter{},
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_ingress_deduplicated_total",
			Help: "Repeated deliveries that started nothing.",
		}),
		filtered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_ingress_filtered_total",
			Help: "Requests that did not meet the filter of their trigger node, and started " +
				"nothing.",
		}),
		overStorageShare: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_ingress_storage_share_refused_total",
			Help: "Requests that were refused because the stream is nine tenths full, and their " +
				"account holds its share of it or more.",
		}),
		bodyBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_ingress_body_bytes_total", Help: "Bytes of the bodies that were read.",
		}),
		duration: histogram("hookstart_ingress_request_duration_seconds",
			"From the headers to the answer, without the time that it waited for the end of an "+
				"execution."),
		publish: histogram("hookstart_ingress_publish_duration_seconds",
			"From sending a message to the stream's confirmation."),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hookstart_ingress_requests_in_flight", Help: "Requests being answered.",
		}),
	}
	for _, reason := range await.Reasons() {
		m.waitsByReason[reason] = waits.WithLabelValues(string(reason))
	}
	responses := []responseLabels{
		{http.StatusOK, ""}, {http.StatusAccepted, ""}, {http.StatusNoContent, ""}, {
			temporaryRefusalStatus, webhook.CodeRateLimited,
		}, {temporaryRefusalStatus, webhook.CodeWorkflowInactive},
	}
	for code, p := range problemsByCode {
		responses = append(responses, responseLabels{p.status, code})
	}
	for _, a := range responses { // looked up once instead of for each request
		m.requests[a] = requests.WithLabelValues(strconv.Itoa(a.status), string(a.code))
	}
	m.requests[responseLabels{status: customStatusLabel}] = requests.WithLabelValues("output", "")
	m.addSenderCounters(verified, handshakes, unverified)
	r.MustRegister(requests, verified, handshakes, unverified, m.duplicates, m.filtered,
		m.overStorageShare, waits, m.waitDuration, m.bodyBytes, m.duration, m.publish, m.inFlight)
	return m
}

// addSenderCounters looks up the counters of all presets in advance, so that they need not be
// looked up for each request.
func (m *requestMetrics) addSenderCounters(
	verified, handshakes, unverified *prometheus.CounterVec,
) {
	for _, p := range sender.Presets() {
		if len(p.Handshakes) > 0 {
			m.handshakes[p.ID] = handshakes.WithLabelValues(p.ID)
		}
		if !p.Verifies {
			continue
		}
		m.verified[p.ID] = verified.WithLabelValues(p.ID)
		for _, code := range webhook.Codes() {
			if code.IsSignatureRefusal() {
				m.unverified[signatureRefusalLabels{p.ID, code}] = unverified.WithLabelValues(p.ID,
					string(code))
			}
		}
	}
}

func (m *requestMetrics) observe(e *requestEvent, took time.Duration) {
	m.inFlight.Dec()
	switch {
	case e.probe:
	case e.statusFromOutput:
		m.requests[responseLabels{status: customStatusLabel}].Inc()
	default:
		m.requests[responseLabels{e.status, e.code}].Inc()
	}
	m.duration.Observe((took - e.waitDuration).Seconds())
	if e.waitEndReason != "" {
		m.waitsByReason[e.waitEndReason].Inc()
		m.waitDuration.Observe(e.waitDuration.Seconds())
	}
	m.bodyBytes.Add(float64(e.bodyBytes))
	if e.publishDuration > 0 {
		m.publish.Observe(e.publishDuration.Seconds())
	}
	if e.duplicate {
		m.duplicates.Inc()
	}
	if e.filtered {
		m.filtered.Inc()
	}
	if errors.Is(e.err, errOverStorageShare) {
		m.overStorageShare.Inc()
	}
}
