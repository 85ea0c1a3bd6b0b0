package ingress

import (
	"net/http"
	"strings"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// parse checks for the workflow ID and the token, and the declared length of the body against the
// maximum, and stores the workflow ID and the token in d. It does not read the body.
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

// admit looks up the workflow and the trigger node by the ID in the path and the token.
func (h *handler) admit(d *delivery) *outcome {
	if !execution.ValidName(d.workflowID) {
		return newRefusal(webhook.WorkflowNotFound, 0)
	}
	// While the copy of the registry is stale, accept and refuse nothing: a sender does not retry
	// after a 404 or 403, and this copy may be missing the workflow.
	if !h.lease.AwaitValid(d.e.start) {
		return newRefusal(webhook.Unavailable, retryUnavailable)
	}
	found, refusal := h.admission.Find(d.workflowID, d.token, time.Now())
	if refusal != nil {
		return &outcome{refusal: refusal}
	}
	d.caller = found
	h.noteAdmitted(d.r, d.e, found)
	if err := found.Node.Unusable; err != nil {
		// The secrets of the node cannot be decrypted, so no request can be verified.
		d.e.err = err
		return newRefusal(webhook.Unavailable, retryUnavailable)
	}
	if s := found.Node.Sender; s != nil || found.Node.Filter != nil || found.Node.OrderKey != nil {
		d.request = sender.Request{Method: d.r.Method, Header: d.r.Header, Query: d.r.URL.RawQuery}
		if s != nil && s.NeedsURL() && h.publicURL != "" {
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

// checkPlan checks that the account's plan permits webhooks for this workflow.
func (h *handler) checkPlan(d *delivery) *outcome {
	if refusal := d.caller.CheckPlan(); refusal != nil {
		return &outcome{refusal: refusal}
	}
	return nil
}
