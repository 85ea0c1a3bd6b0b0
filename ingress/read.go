package ingress

import (
	"slices"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// checkLimits counts the request against the rate limit and the account's daily bytes. It uses the
// current time rather than the time at which the request began: the rate limit needs monotonic
// times, and the request may have waited for the lease or for its body.
func (h *handler) checkLimits(d *delivery) *outcome {
	length := d.r.ContentLength
	if d.isRead {
		length = int64(d.reading.read)
	}
	if refusal := h.admission.CheckLimits(d.caller, length, time.Now()); refusal != nil {
		return &outcome{refusal: refusal}
	}
	d.counted = true
	if d.isRead {
		h.admission.CountBody(d.caller, d.reading.read, time.Now())
	}
	return nil
}

// checkBody makes checks 11 to 13, the last ones before a request may start an execution.
func (h *handler) checkBody(d *delivery) *outcome {
	if out := h.readWithID(d); out != nil {
		return out
	}
	if d.notJSON {
		return newRefusal(webhook.JSONInvalid, 0)
	}
	return nil
}

// readWithID reads the body and determines the delivery ID. If a signature may cover the ID, the ID
// is determined only after the request has been verified.
func (h *handler) readWithID(d *delivery) *outcome {
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

// checkID determines the delivery ID, and refuses the request if the ID is too long.
func (h *handler) checkID(d *delivery) *outcome {
	h.findDeliveryID(d)
	if d.idTooLong() {
		return newRefusal(webhook.DeliveryIDInvalid, 0)
	}
	return nil
}

// signsID reports whether the delivery ID may be covered by the sender's signature.
func (d *delivery) signsID() bool {
	s := d.sender()
	return s != nil && s.SignsDelivery()
}

// checkFilter ends a request that does not match the node's filter. Such a request starts nothing,
// leaves no record, and uses up no delivery ID.
func (h *handler) checkFilter(d *delivery) *outcome {
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

// read reads and parses the body. Later calls return the result of the first. It returns a refusal
// if the body could not be read.
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

// idInBody reports whether the delivery ID may have to be taken from the body.
func (h *handler) idInBody(d *delivery) bool {
	s := d.sender()
	return s != nil && s.DeliveryInBody() && d.firstHeader(h.firstIDHeaders) == ""
}

// findDeliveryID determines the delivery ID, once. In order of precedence, it comes from the data
// that the signature covers, the first headers, the sender's sources, and the other headers.
func (h *handler) findDeliveryID(d *delivery) {
	if d.identified {
		return
	}
	d.identified = true
	s := d.sender()
	if s != nil && d.verified {
		if signed := s.SignedDelivery(&d.request, d.verdict); signed.ID != "" {
			d.id = admission.DeliveryID(signed)
			return
		}
	}
	d.id.ID = d.firstHeader(h.firstIDHeaders)
	if s != nil && d.id.ID == "" {
		d.id = admission.DeliveryID(s.UnsignedDelivery(&d.request, d.verdict))
	}
	if d.id.ID == "" {
		d.id.ID = d.firstHeader(h.otherIDHeaders)
	}
}

// idTooLong reports whether the delivery ID is too long. An ID from the sender's sources never is,
// because long ones are hashed.
func (d *delivery) idTooLong() bool { return len(d.id.ID) > execution.MaxDeliveryID }

// firstHeader returns the first non-empty value among the named headers. The names must be
// canonical. Headers that hold a secret are skipped, because delivery IDs are recorded and shown.
func (d *delivery) firstHeader(names []string) string {
	for _, name := range names {
		for _, value := range d.r.Header[name] {
			if value != "" && !slices.Contains(secretHeaders, name) &&
				!slices.Contains(d.senderSecretHeaders(), name) {
				return value
			}
		}
	}
	return ""
}
