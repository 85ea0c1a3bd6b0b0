package ingress

import (
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/redact"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/webhook"
)

// readBodyAndID reads the body and determines the delivery ID. If the sender's signature may cover
// the ID but has not been verified yet, a later step determines the ID.
func (h *handler) readBodyAndID(d *delivery) *outcome {
	unknown := d.mayHaveSignedID() && !d.verified
	// If the ID cannot be in the body, determine it now, so that a request with an ID that is too
	// long is refused before its body is read.
	if !d.idKnown && !unknown && !h.mayHaveIDInBody(d) {
		if out := h.checkDeliveryID(d); out != nil {
			return out
		}
	}
	if refusal := h.readBodyOnce(d); refusal != nil {
		return &outcome{refusal: refusal}
	}
	if unknown {
		return nil
	}
	return h.checkDeliveryID(d)
}

// checkDeliveryID determines the delivery ID, and refuses the request if the ID is too long.
func (h *handler) checkDeliveryID(d *delivery) *outcome {
	h.findDeliveryID(d)
	if d.idTooLong() {
		return refusalOutcome(webhook.CodeDeliveryIDInvalid, 0)
	}
	return nil
}

// mayHaveSignedID reports whether the delivery ID may be covered by the sender's signature.
func (d *delivery) mayHaveSignedID() bool {
	s := d.sender()
	return s != nil && s.SignsDeliveryID()
}

// readBodyOnce reads and parses the body when it is first called, and returns a refusal if the body
// could not be read. Later calls only return the result of the first one.
func (h *handler) readBodyOnce(d *delivery) *admission.Refusal {
	if d.bodyReadAttempted {
		return d.bodyRefusal
	}
	d.bodyReadAttempted = true
	var body []byte
	body, d.reservation, d.bodyRefusal = h.readBody(d)
	if d.limitsPassed {
		h.admission.CountBody(d.trigger, d.reservation.bytesRead, time.Now())
	}
	if d.bodyRefusal != nil {
		return d.bodyRefusal
	}
	d.event.bodyBytes, d.request.Body = len(body), body
	payload, err := execution.NewPayload(redact.HeaderToUTF8(d.r.Header.Get("Content-Type")), body)
	if d.notJSON = err != nil; d.notJSON {
		payload.Body = body
	}
	d.payload = payload
	d.request.KnownJSON = payload.Kind == execution.BodyJSON
	return nil
}

// mayHaveIDInBody reports whether the delivery ID may have to be read from the body. This is not
// the case if a header in priorityIDHeaders contains it.
func (h *handler) mayHaveIDInBody(d *delivery) bool {
	s := d.sender()
	return s != nil && s.DeliveryIDMayBeInBody() && d.firstHeader(h.priorityIDHeaders) == ""
}

// findDeliveryID sets the delivery ID when it is first called. It uses the first source that
// contains an ID, in this order: the data that the signature covers, priorityIDHeaders, the
// sender's unsigned sources, and configuredIDHeaders.
func (h *handler) findDeliveryID(d *delivery) {
	if d.idKnown {
		return
	}
	d.idKnown = true
	s := d.sender()
	if s != nil && d.verified {
		if signed := s.SignedDeliveryID(&d.request, d.verdict); signed.ID != "" {
			d.id = admission.DeliveryID(signed)
			return
		}
	}
	d.id.ID = d.firstHeader(h.priorityIDHeaders)
	if s != nil && d.id.ID == "" {
		d.id = admission.DeliveryID(s.UnsignedDeliveryID(&d.request, d.verdict))
	}
	if d.id.ID == "" {
		d.id.ID = d.firstHeader(h.configuredIDHeaders)
	}
}

// idTooLong reports whether the delivery ID is too long. Only an ID from priorityIDHeaders or
// configuredIDHeaders can be too long, because a long ID from the sources of the node's sender is
// hashed.
func (d *delivery) idTooLong() bool { return len(d.id.ID) > execution.MaxDeliveryIDBytes }

// firstHeader returns the first non-empty value among the named headers. The names must be
// canonical. Headers that hold a secret are skipped, because delivery IDs are recorded and shown.
func (d *delivery) firstHeader(names []string) string {
	for _, name := range names {
		for _, value := range d.r.Header[name] {
			if value != "" && !redact.IsSecretHeader(name, d.senderSecretHeaders()) {
				return value
			}
		}
	}
	return ""
}
