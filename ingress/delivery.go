package ingress

import (
	"net/http"
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
	e     *event // always &event
	event event
	idOut [1]string // the execution ID as the value of the answer's header
	out   [128]byte // the answer's body

	workflowID string // the ID in the path, not validated
	token      string

	caller  admission.Admitted
	pass    registry.Pass  // counts the request as one that is being stored in its place
	place   stream.Place   // where the start or the rejection is stored
	request sender.Request // the request as the sender sees it, if the node has a sender

	buffers
	reading reading
	isRead  bool // read was called
	// unread is the reason why the body could not be read. nil means that it was read.
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
	// waited is the end of the execution for which the answer waited. nil means that it did not
	// wait.
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
	kept.reset()
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

// senderSecretHeaders returns the headers that hold the sender's secret and must not be forwarded.
func (d *delivery) senderSecretHeaders() []string {
	if s := d.sender(); s != nil {
		return s.SecretHeaders()
	}
	return nil
}

func refused(code webhook.Code, retryAfter time.Duration) *outcome {
	return &outcome{refusal: &admission.Refusal{Code: code, RetryAfter: retryAfter}}
}
