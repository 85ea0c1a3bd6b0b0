package ingress

import (
	"strings"

	"github.com/hookstart/hookstart/ingress/internal/redact"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// countRefusal counts a refused request for its workflow, and records the request's time, declared
// length and User-Agent, so that operators can see why a sender's requests fail. It takes the
// workflow's ID from the path, because many requests are refused before the workflow is looked up.
func (h *handler) countRefusal(d *delivery) {
	e := &d.event
	if e.code == "" || e.code == webhook.CodeRunFailed || e.probe {
		return
	}
	workflowID := ""
	if id, ok := strings.CutPrefix(d.r.URL.Path, webhookPathPrefix); ok && execution.ValidName(id) {
		workflowID = h.admission.InternedWorkflowID(id)
	}
	h.refusals.Count(workflowID, string(e.code), stream.RefusedRequest{
		At:        e.start,
		BodyBytes: d.r.ContentLength,
		UserAgent: stream.SanitizeUserAgent(redact.UserAgent(d.r)),
	})
}
