package ingress

import (
	"strings"

	"github.com/hookstart/hookstart/ingress/internal/redact"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// countRefusal counts a refused request for its workflow, so that operators can see why a sender's
// requests fail. It records the time, the declared length and the User-Agent. It takes the
// workflow's ID from the path, because most requests, for example with a wrong token, are refused
// before the workflow is known.
func (h *handler) countRefusal(d *delivery) {
	e := &d.event
	if e.code == "" || e.code == webhook.CodeRunFailed || e.probe {
		return
	}
	workflowID := ""
	if id, ok := strings.CutPrefix(d.r.URL.Path, webhookPath); ok && execution.ValidName(id) {
		workflowID = h.admission.InternedID(id)
	}
	h.refused.Count(workflowID, string(e.code), stream.RefusedRequest{
		At:        e.start,
		BodyBytes: d.r.ContentLength,
		UserAgent: stream.SanitizeUserAgent(redact.UserAgent(d.r)),
	})
}
