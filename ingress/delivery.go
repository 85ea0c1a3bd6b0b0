package ingress

import (
	"net/http"
	"sync"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/redact"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// delivery is the state of one request, in which each step stores its results for the later steps.
// Only one goroutine may use it. Deliveries are pooled, so nothing may keep a reference to their
// contents.
type delivery struct {
	w     http.ResponseWriter
	r     *http.Request
	event requestEvent
	// spans is nil if tracing is off or no span has been started yet.
	spans             *spans
	executionIDHeader [1]string // the execution ID as the value of the response header
	responseBuffer    [128]byte // space for the response body

	workflowID string // the ID in the path, not validated
	token      string
	redactor   redact.Redactor // removes the token from what leaves the ingress; set by parseHead

	trigger admission.Trigger    // the workflow and its node; zero until findTrigger
	permit  registry.StorePermit // held from chooseStream until the stream has answered
	layout  stream.Layout        // the stream for the start message or the rejection
	choice  streamChoice         // how layout was chosen
	request sender.Request       // input for the node's sender, filter and order key

	buffers
	bodyUnread        bool // the request has a body that was not read
	reservation       bodyReservation
	bodyReadAttempted bool // readBodyOnce was called
	// bodyRefusal is the refusal of a body that could not be read. nil means that the body was
	// read.
	bodyRefusal  *admission.Refusal
	limitsPassed bool              // applyLimits accepted the request, so its body must be counted
	payload      execution.Payload // set once the body has been read
	notJSON      bool              // Content-Type declares JSON, but the body is not valid JSON
	verified     bool
	verdict      sender.Verdict // the result of verifying the request

	id      admission.DeliveryID // the delivery ID, once idKnown is true
	idKnown bool                 // id is known; its ID may be ""
}

// outcome is the result of a request. It determines the response.
type outcome struct {
	refusal     *admission.Refusal
	response    *sender.Response // replaces the default response; nil means the default is sent
	executionID string
	duplicate   bool
	handshake   bool
	filtered    bool // the request does not match the node's filter
	// waitResult is the result of waiting for the execution. nil means that the response did not
	// wait for it.
	waitResult *waitResult
}

var deliveryPool = sync.Pool{New: func() any {
	return &delivery{buffers: newBuffers()}
}}

func acquireDelivery(w http.ResponseWriter, r *http.Request) *delivery {
	d, ok := deliveryPool.Get().(*delivery)
	if !ok {
		panic("the pool holds deliveries only")
	}
	d.w, d.r, d.bodyUnread = w, r, r.ContentLength != 0
	d.reservation = bodyReservation{reserved: -1}
	return d
}

// release frees the slot and the memory that are reserved for the request's body, and returns the
// delivery to the pool. The delivery must not be used afterwards.
func (d *delivery) release() {
	d.reservation.release()
	kept := d.buffers
	kept.reset()
	*d = delivery{buffers: kept}
	deliveryPool.Put(d)
}

// sender returns the node's sender, or nil if the node has none.
func (d *delivery) sender() *sender.Sender {
	if d.trigger.Node == nil {
		return nil
	}
	return d.trigger.Node.Sender
}

// senderPreset returns the preset of the node's sender, or "" if the node has no sender.
func (d *delivery) senderPreset() string {
	if s := d.sender(); s != nil {
		return s.Preset()
	}
	return ""
}

// senderSecretHeaders returns the headers that carry the sender's secret and must not be forwarded.
func (d *delivery) senderSecretHeaders() []string {
	if s := d.sender(); s != nil {
		return s.SecretHeaders()
	}
	return nil
}

func refusalOutcome(code webhook.Code, retryAfter time.Duration) *outcome {
	return &outcome{refusal: &admission.Refusal{Code: code, RetryAfter: retryAfter}}
}
