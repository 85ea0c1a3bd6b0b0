package ingress

import (
	"net/http"
	"strings"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/ingress/internal/redact"
	"github.com/hookstart/hookstart/ingress/internal/report"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// requestSteps are the checks of a request, in order. A step returns nil to pass the request on to
// the next step, or the outcome with which the request ends. The numbers in the comments are those
// at the beginning of the names of the scripts in testdata/webhook, which test the checks.
var requestSteps = [...]func(*handler, *delivery) *outcome{
	(*handler).findTrigger, // 5, 6
	// A handshake starts nothing, so it gets its response regardless of the plan and of whether the
	// workflow is active.
	(*handler).respondToHandshake,
	(*handler).checkPlan,        // 7, 8
	(*handler).verifySender,     // if the sender verifies requests: 11, 12, and the signature
	(*handler).applyLimits,      // 9
	(*handler).rejectIfInactive, // 10
	(*handler).checkBody,        // 11, 12, 13
	(*handler).checkFilter,      // a request that does not match the node's filter starts nothing
}

// runSteps returns the outcome of a request: it calls parseHead, then each step, then
// startExecution.
func (h *handler) runSteps(d *delivery, workflowID string) outcome {
	if refusal := h.parseHead(d, workflowID); refusal != nil { // 2 to 4
		return outcome{refusal: refusal}
	}
	for _, step := range requestSteps {
		if out := step(h, d); out != nil {
			return *out
		}
	}
	return h.startExecution(d) // 14
}

// parseHead checks, without reading the body, that the request has a workflow ID and a token, and
// that the declared length of the body is within the maximum. It stores the workflow ID, the token
// and the request's redactor in d.
func (h *handler) parseHead(d *delivery, workflowID string) *admission.Refusal {
	if workflowID == "" {
		return &admission.Refusal{Code: webhook.CodeWorkflowIDMissing}
	}
	d.redactor = redact.New(d.r)
	token := d.redactor.Token()
	if token == "" {
		h.respondToProbe(d)
		return &admission.Refusal{Code: webhook.CodeTokenMissing}
	}
	if d.r.ContentLength > h.maxBody {
		return &admission.Refusal{Code: webhook.CodeBodyTooLarge}
	}
	d.workflowID, d.token = workflowID, token
	return nil
}

// findTrigger looks up the workflow by the ID in the path, and the trigger node by the token.
func (h *handler) findTrigger(d *delivery) *outcome {
	if !execution.ValidName(d.workflowID) {
		return refusalOutcome(webhook.CodeWorkflowNotFound, 0)
	}
	// While the copy of the registry is stale, neither start an execution nor answer 404 or 403: a
	// sender does not retry after those, and this copy may just be missing the workflow.
	if !h.lease.AwaitValid(d.event.start) {
		return refusalOutcome(webhook.CodeUnavailable, retryAfterUnavailable)
	}
	found, refusal := h.admission.Find(d.workflowID, d.token, time.Now())
	if refusal != nil {
		return &outcome{refusal: refusal}
	}
	d.trigger = found
	h.recordTriggerAndStartSpan(d)
	if err := found.Node.UnusableReason; err != nil {
		// The secrets of the node cannot be decrypted, so no request can be verified.
		d.event.err = err
		return refusalOutcome(webhook.CodeUnavailable, retryAfterUnavailable)
	}
	if s := found.Node.Sender; s != nil || found.Node.Filter != nil || found.Node.OrderKey != nil {
		d.request = sender.Request{
			Method: d.r.Method, Header: d.r.Header, Host: d.r.Host, Query: d.r.URL.RawQuery,
		}
		if s != nil && s.NeedsPublicURL() && h.publicURL != "" {
			d.request.URL = h.publicURL + pathAndQuery(d.r)
		}
	}
	return nil
}

// pathAndQuery returns the path and query exactly as received.
func pathAndQuery(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI() // the request line holds a whole URL
}

// respondToHandshake returns nil if the request is not a handshake of the node's sender, and
// otherwise the response to the handshake. A handshake starts nothing, leaves no record, and does
// not count against any limit.
func (h *handler) respondToHandshake(d *delivery) *outcome {
	s := d.sender()
	if s == nil {
		return nil
	}
	if d.r.Method == http.MethodPost && s.HandshakeNeedsBody() && h.readBodyOnce(d) != nil {
		// The body cannot be read, so the request is not a handshake. A later step refuses it.
		return nil
	}
	now := time.Now()
	d.request.RateLimitPerMinute = d.trigger.RequestsPerMinute()
	made := s.Handshake(&d.request, now)
	if made == nil {
		return nil
	}
	if !made.Verdict.OK() {
		return h.refuseUnverified(d, made.Verdict, now)
	}
	seen := report.SenderObservation{HandshakeAt: now}
	if made.CapturedSecret != "" {
		sealed, err := h.sealSecret(d.trigger, made.CapturedSecret)
		if err != nil { // there is no key with which to encrypt the secret
			d.event.err = err
			return refusalOutcome(webhook.CodeUnavailable, retryAfterUnavailable)
		}
		seen.CapturedSecret = sealed
	}
	observed := h.senders.Observe(d.trigger.Workflow.ID, d.trigger.NodeID, d.senderPreset(), seen)
	// After a 200, the sender would not send the secret again.
	if !observed && made.CapturedSecret != "" {
		return refusalOutcome(webhook.CodeUnavailable, retryAfterUnavailable)
	}
	h.metrics.handshakes[s.Preset()].Inc()
	return &outcome{response: &made.Response, handshake: true}
}

// checkPlan checks that the account's plan permits webhooks for this workflow.
func (h *handler) checkPlan(d *delivery) *outcome {
	if refusal := d.trigger.CheckPlan(); refusal != nil {
		return &outcome{refusal: refusal}
	}
	return nil
}

// verifySender reads the body and verifies the sender's signature before the request is counted or
// recorded.
func (h *handler) verifySender(d *delivery) *outcome {
	s := d.sender()
	if s == nil || !s.Verifies() {
		return nil
	}
	if out := h.readBodyAndID(d); out != nil {
		return out
	}
	now := time.Now()
	verdict := s.Verify(&d.request, now)
	if !verdict.OK() {
		return h.refuseUnverified(d, verdict, now)
	}
	d.verified, d.verdict = true, verdict
	h.countVerified(d, now)
	return h.checkDeliveryID(d)
}

// applyLimits counts the request against the rate limit and the account's daily bytes. It uses the
// current time, not the time at which the request began: the rate limit needs monotonic times, and
// the request may have waited for the lease or for its body.
func (h *handler) applyLimits(d *delivery) *outcome {
	length := d.r.ContentLength
	if d.bodyReadAttempted {
		length = int64(d.reservation.bytesRead)
	}
	if refusal := h.admission.ApplyLimits(d.trigger, length, time.Now()); refusal != nil {
		return &outcome{refusal: refusal}
	}
	d.limitsPassed = true
	if d.bodyReadAttempted {
		h.admission.CountBody(d.trigger, d.reservation.bytesRead, time.Now())
	}
	return nil
}

// rejectIfInactive returns nil if the workflow is active. Otherwise it records the request, so that
// operators can look up the ID in the response and replay the request, and returns the refusal. The
// record includes the body unless the body cannot be read. If the stream does not store the record,
// rejectIfInactive returns the refusal for that failure instead.
func (h *handler) rejectIfInactive(d *delivery) *outcome {
	if d.trigger.Workflow.Active {
		return nil
	}
	_ = h.readBodyOnce(d)
	h.findDeliveryID(d)
	return &outcome{refusal: h.storeRejection(d, d.trigger.InactiveRefusal(d.id))}
}

// checkBody runs checks 11 to 13 (see requestSteps), which need the body.
func (h *handler) checkBody(d *delivery) *outcome {
	if out := h.readBodyAndID(d); out != nil {
		return out
	}
	if d.notJSON {
		return refusalOutcome(webhook.CodeJSONInvalid, 0)
	}
	return nil
}

// checkFilter ends a request that does not match the node's filter. Such a request starts nothing,
// leaves no record, and uses up no delivery ID.
func (h *handler) checkFilter(d *delivery) *outcome {
	f := d.trigger.Node.Filter
	if f == nil {
		return nil
	}
	place, ok := f.Match(&d.request)
	if ok {
		return nil
	}
	h.filtered.Count(d.trigger.Workflow.ID, d.trigger.NodeID, stream.FilteredRequest{
		At:         d.event.start,
		DeliveryID: d.redactor.RedactHeaderValue(d.id.ID),
		Place:      place,
	})
	out := &outcome{filtered: true}
	if s := d.sender(); s != nil {
		out.response = s.Response(&d.request)
	}
	return out
}
