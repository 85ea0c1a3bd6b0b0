package ingress

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/agree"
	"github.com/hookstart/hookstart/shared/webhook"
)

// event is what one request leaves in the log and in the metrics. Nothing in it comes
// from a stranger as it is: no path, no header, no token; a workflow's ID only once
// it is known to be one.
type event struct {
	start       time.Time
	route       string // the pattern of its path, or empty
	workflowID  string
	nodeID      string
	status      int
	code        webhook.Code
	executionID string
	duplicate   bool
	bodyBytes   int
	probe       bool // an executor's, to see where the public URL leads
	unread      bool // there is a body, and nobody has read it
	publish     time.Duration
	err         error
	spans       *spans // nil while tracing is off
}

// admitted notes whose request it is, once its token was found right.
func (h *handler) admitted(r *http.Request, e *event, a admission.Admitted) {
	if a.Workflow != nil {
		e.workflowID, e.nodeID = a.Workflow.ID, a.NodeID
		h.startSpans(r, e, true)
	}
}

// begin begins a request's event. route is the pattern of its path, or empty.
func (h *handler) begin(r *http.Request, route string) *event {
	h.metrics.active.Inc()
	return &event{start: time.Now(), route: route, unread: r.ContentLength != 0}
}

// end writes the request's one log line, and clears the connection of what nobody has
// read. It also catches what panicked.
func (h *handler) end(w http.ResponseWriter, r *http.Request, e *event) {
	if p := recover(); p != nil {
		e.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		h.refuse(w, r, e, &admission.Refusal{Code: webhook.Internal})
	}
	h.startSpans(r, e, false) // of a request whose token nobody has found right
	took := time.Since(e.start)
	h.metrics.observe(e, took)
	h.countRefusal(r, e)
	h.logEvent(e, took)
	e.endSpans()
	if e.unread {
		h.discardBody(w, r)
	}
}

func (h *handler) logEvent(e *event, took time.Duration) {
	level := logrus.InfoLevel
	if e.status >= http.StatusInternalServerError {
		level = logrus.WarnLevel
	}
	members := append(make([]ops.Member, 0, 11), ops.Number("status", e.status), ops.Number("duration_ms", milliseconds(took)))
	put := func(name, value string) {
		if value != "" {
			members = append(members, ops.Text(name, value))
		}
	}
	put("workflow_id", e.workflowID)
	put("node_id", e.nodeID)
	put("execution_id", e.executionID)
	put("code", string(e.code))
	if e.duplicate {
		members = append(members, ops.True("deduplicated"))
	}
	if e.probe {
		members = append(members, ops.True("probe"))
	}
	if e.bodyBytes > 0 {
		members = append(members, ops.Number("body_bytes", e.bodyBytes))
	}
	if e.publish > 0 {
		members = append(members, ops.Number("publish_ms", milliseconds(e.publish)))
	}
	if e.err != nil {
		put("error", e.err.Error())
	}
	ops.Event(h.log, level, e.start.Add(took), "webhook", members)
}

// refuseAll answers every request with one code.
func (h *handler) refuseAll(code webhook.Code) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := h.begin(r, "")
		defer h.end(w, r, e)
		h.refuse(w, r, e, &admission.Refusal{Code: code})
	})
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

// requestMetrics are the ingress's metrics. No label has more values than there are
// codes.
type requestMetrics struct {
	requests   map[webhook.Code]prometheus.Counter // "": accepted
	duplicates prometheus.Counter
	bodyBytes  prometheus.Counter
	duration   prometheus.Histogram
	publish    prometheus.Histogram
	active     prometheus.Gauge
}

// registerState shows what the ingress works with.
func registerState(r prometheus.Registerer, snapshot *registry.Snapshot, follower *agree.Follower, lease *agree.Lease) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_ingress_registry_revision", Help: "The registry revision that is in force here.",
		}, func() float64 { return float64(follower.Revision()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_ingress_registry_lag_seconds", Help: "How long ago all that the registry held was in force here; past 2 every webhook is answered 503.",
		}, func() float64 { return lease.Age(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_ingress_workflows", Help: "Workflows that are known here.",
		}, func() float64 { return float64(snapshot.Len()) }),
	)
}

func newRequestMetrics(r *prometheus.Registry) *requestMetrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(ops.Histogram(name, help, ops.Seconds))
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_ingress_requests_total", Help: "Requests by status and by the refusal's code (empty: accepted).",
	}, []string{"status", "code"})
	m := &requestMetrics{
		requests: map[webhook.Code]prometheus.Counter{"": requests.WithLabelValues("200", "")},
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_ingress_deduplicated_total", Help: "Repeated deliveries that started nothing.",
		}),
		bodyBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_ingress_body_bytes_total", Help: "Bytes of the bodies that were read.",
		}),
		duration: histogram("hookstart_ingress_request_duration_seconds", "From the headers to the answer."),
		publish:  histogram("hookstart_ingress_publish_duration_seconds", "From sending a message to the stream's confirmation."),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hookstart_ingress_requests_in_flight", Help: "Requests being answered.",
		}),
	}
	for code, p := range problems { // looked up once, not for each request
		m.requests[code] = requests.WithLabelValues(strconv.Itoa(p.status), string(code))
	}
	r.MustRegister(requests, m.duplicates, m.bodyBytes, m.duration, m.publish, m.active)
	return m
}

func (m *requestMetrics) observe(e *event, took time.Duration) {
	m.active.Dec()
	if !e.probe {
		m.requests[e.code].Inc()
	}
	m.duration.Observe(took.Seconds())
	m.bodyBytes.Add(float64(e.bodyBytes))
	if e.publish > 0 {
		m.publish.Observe(e.publish.Seconds())
	}
	if e.duplicate {
		m.duplicates.Inc()
	}
}
