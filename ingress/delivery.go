package ingress

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// delivery is one request while it is handled. It holds the results of each step for the later
// steps. One goroutine uses it. It is reused for later requests, so nothing may keep a reference to
// what it holds.
type delivery struct {
	w     http.ResponseWriter
	r     *http.Request
	e     *event // event
	event event
	idOut [1]string // the execution ID as the value of the answer's header
	out   [128]byte // the answer's body

	workflowID string // from the path; not validated
	token      string

	caller  admission.Admitted
	pass    registry.Pass  // counts the request among those that store in its place
	place   stream.Place   // where the start or the rejection is stored
	request sender.Request // the request as the sender sees it, if the node has a sender

	buffers
	reading reading
	isRead  bool // read was called
	// The reason why the body could not be read; nil means that it was read.
	unread   *admission.Refusal
	counted  bool              // the body is counted in the account's bytes of the day
	payload  execution.Payload // the payload, once the body was read
	notJSON  bool              // Content-Type says JSON, but the body is not valid JSON
	verified bool
	verdict  sender.Verdict // the result for a verified request

	id         admission.Delivery // the delivery ID that is used
	identified bool               // id is set; its value may be empty
}

// outcome is the way in which a request ends.
type outcome struct {
	refusal     *admission.Refusal
	answer      *sender.Answer // replaces the ordinary answer; nil means the ordinary one
	executionID string
	duplicate   bool
	handshake   bool
	filtered    bool // the request does not meet the node's filter
	// The end of the execution, which the answer waited for; nil means that it did not wait.
	waited *waited
}

var spareDeliveries = sync.Pool{New: func() any {
	return &delivery{buffers: newBuffers()}
}}

func acquireDelivery(w http.ResponseWriter, r *http.Request) *delivery {
	d, ok := spareDeliveries.Get().(*delivery)
	if !ok {
		panic("the pool holds deliveries only")
	}
	d.w, d.r, d.e, d.reading = w, r, &d.event, reading{reserved: -1}
	return d
}

// release returns a delivery to the pool, and releases what its body occupies of the limits. The
// delivery must not be used afterwards.
func (d *delivery) release() {
	d.reading.release()
	kept := d.buffers
	kept.trim()
	*d = delivery{buffers: kept}
	spareDeliveries.Put(d)
}

// sender returns the node's sender, or nil if the node has none.
func (d *delivery) sender() *sender.Sender {
	if d.caller.Node == nil {
		return nil
	}
	return d.caller.Node.Sender
}

// preset returns the preset of the node's sender, or "" if the node has no sender.
func (d *delivery) preset() string {
	if s := d.sender(); s != nil {
		return s.Preset()
	}
	return ""
}

// dropped returns the headers that hold the sender's secret and must not be forwarded.
func (d *delivery) dropped() []string {
	if s := d.sender(); s != nil {
		return s.Drop()
	}
	return nil
}

// parse reads the request line and the declared length of the body.
func (h *handler) parse(d *delivery, workflowID string) *admission.Refusal {
	if workflowID == "" {
		return &admission.Refusal{Code: webhook.WorkflowIDMissing}
	}
	token := findToken(d.r.URL.RawQuery, d.r.Header)
	if token == "" {
		h.answerProbe(d.w, d.r, d.e)
		return &admission.Refusal{Code: webhook.TokenMissing}
	}
	if d.r.ContentLength > h.maxBody {
		return &admission.Refusal{Code: webhook.BodyTooLarge}
	}
	d.workflowID, d.token = workflowID, token
	return nil
}

// admit finds the workflow and the node by the path and the token.
func (h *handler) admit(d *delivery) *outcome {
	if !execution.ValidName(d.workflowID) {
		return refused(webhook.WorkflowNotFound, 0)
	}
	// With a stale copy of the registry nothing is accepted or refused, because a sender does not
	// retry after 404 or 403.
	if !h.lease.Valid(d.e.start) {
		return refused(webhook.Unavailable, retryUnavailable)
	}
	found, refusal := h.admission.Find(d.workflowID, d.token, time.Now())
	if refusal != nil {
		return &outcome{refusal: refusal}
	}
	d.caller = found
	h.admitted(d.r, d.e, found)
	if err := found.Node.Unusable; err != nil {
		// The secrets of the node cannot be decrypted, so no request can be verified.
		d.e.err = err
		return refused(webhook.Unavailable, retryUnavailable)
	}
	if s := found.Node.Sender; s != nil || found.Node.Filter != nil || found.Node.OrderKey != nil {
		d.request = sender.Request{Method: d.r.Method, Header: d.r.Header, Query: d.r.URL.RawQuery}
		if s != nil && s.NeedsURL() && h.publicURL != "" {
			d.request.URL = h.publicURL + pathAndQuery(d.r)
		}
	}
	return nil
}

// pathAndQuery returns the path and the query as they were received.
func pathAndQuery(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI() // for a request line with a whole URL
}

// plan checks the plan of the account.
func (h *handler) plan(d *delivery) *outcome {
	if refusal := d.caller.Plan(); refusal != nil {
		return &outcome{refusal: refusal}
	}
	return nil
}

// limit counts the request against the limits. It uses the current time and not the time when the
// request began: the rate limit needs monotonic times, and the request may have waited for the
// lease or for its body.
func (h *handler) limit(d *delivery) *outcome {
	length := d.r.ContentLength
	if d.isRead {
		length = int64(d.reading.read)
	}
	if refusal := h.admission.Limit(d.caller, length, time.Now()); refusal != nil {
		return &outcome{refusal: refusal}
	}
	d.counted = true
	if d.isRead {
		h.admission.CountBody(d.caller, d.reading.read, time.Now())
	}
	return nil
}

// complete makes the last checks, 11 to 13, of a request that may start an execution.
func (h *handler) complete(d *delivery) *outcome {
	if out := h.whole(d); out != nil {
		return out
	}
	if d.notJSON {
		return refused(webhook.JSONInvalid, 0)
	}
	return nil
}

// whole reads the body and finds the delivery ID. If the ID may be covered by a signature, it is
// looked for only after the request was verified.
func (h *handler) whole(d *delivery) *outcome {
	unknown := d.signsID() && !d.verified
	if !d.isRead && !unknown && !h.idInBody(d) {
		if out := h.checkID(d); out != nil {
			return out
		}
	}
	if refusal := h.read(d); refusal != nil {
		return &outcome{refusal: refusal}
	}
	if unknown {
		return nil
	}
	return h.checkID(d)
}

// checkID finds the delivery ID and refuses one that is too long.
func (h *handler) checkID(d *delivery) *outcome {
	h.identify(d)
	if d.tooLong() {
		return refused(webhook.DeliveryIDInvalid, 0)
	}
	return nil
}

// signsID reports whether the delivery ID may be covered by the sender's signature.
func (d *delivery) signsID() bool {
	s := d.sender()
	return s != nil && s.SignsDelivery()
}

// filter ends a request that does not meet the node's filter. Such a request starts nothing, leaves
// no record, and uses up no delivery ID.
func (h *handler) filter(d *delivery) *outcome {
	f := d.caller.Node.Filter
	if f == nil {
		return nil
	}
	place, ok := f.Match(&d.request)
	if ok {
		return nil
	}
	tokens := newRedactor(d.r.URL.RawQuery, d.r.Header, shortestRedacted)
	h.filtered.Count(d.caller.Workflow.ID, d.caller.NodeID, stream.FilteredRequest{
		At:         d.e.start,
		DeliveryID: tokens.redact(headerText(d.id.ID)),
		Place:      place,
	})
	out := &outcome{filtered: true}
	if s := d.sender(); s != nil {
		out.answer = s.Reply(&d.request)
	}
	return out
}

// read reads the body, once, and parses it. It returns a refusal if the body could not be read.
func (h *handler) read(d *delivery) *admission.Refusal {
	if d.isRead {
		return d.unread
	}
	d.isRead = true
	var body []byte
	body, d.reading, d.unread = h.readBody(d.w, d.r, d.e, &d.buffers, d.caller.Workflow.AccountID)
	if d.counted {
		h.admission.CountBody(d.caller, d.reading.read, time.Now())
	}
	if d.unread != nil {
		return d.unread
	}
	d.e.bodyBytes, d.request.Body = len(body), body
	payload, err := execution.NewPayload(headerText(d.r.Header.Get("Content-Type")), body)
	if d.notJSON = err != nil; d.notJSON {
		payload.Body = body
	}
	d.payload = payload
	d.request.IsJSON = payload.Kind == execution.JSON
	return nil
}

// idInBody reports whether the delivery ID may come from the body.
func (h *handler) idInBody(d *delivery) bool {
	s := d.sender()
	return s != nil && s.DeliveryInBody() && d.firstOf(h.firstIDHeaders) == ""
}

// identify determines the delivery ID. In order of preference it uses the ID that the signature
// covers, the ID of the first headers, the ID of the sender's own sources, and the ID of the other
// headers.
func (h *handler) identify(d *delivery) {
	if d.identified {
		return
	}
	d.identified = true
	s := d.sender()
	if s != nil && d.verified {
		if signed := s.SignedDelivery(&d.request, d.verdict); signed.ID != "" {
			d.id = admission.Delivery(signed)
			return
		}
	}
	d.id.ID = d.firstOf(h.firstIDHeaders)
	if s != nil && d.id.ID == "" {
		d.id = admission.Delivery(s.Delivery(&d.request, d.verdict))
	}
	if d.id.ID == "" {
		d.id.ID = d.firstOf(h.otherIDHeaders)
	}
}

// tooLong reports whether the delivery ID is too long. An ID from the sender's own sources never
// is, because long ones are hashed.
func (d *delivery) tooLong() bool { return len(d.id.ID) > execution.MaxDeliveryID }

// firstOf returns the first value that is not empty among the headers, which are named in canonical
// form. It skips headers that hold a secret, because delivery IDs are recorded and shown.
func (d *delivery) firstOf(names []string) string {
	for _, name := range names {
		for _, value := range d.r.Header[name] {
			if value != "" && !slices.Contains(secretHeaders, name) &&
				!slices.Contains(d.dropped(), name) {
				return value
			}
		}
	}
	return ""
}

func refused(code webhook.Code, retryAfter time.Duration) *outcome {
	return &outcome{refusal: &admission.Refusal{Code: code, RetryAfter: retryAfter}}
}
