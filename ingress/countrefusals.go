package ingress

import (
	"net/http"
	"strings"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// countRefusal counts a refused request for its workflow, so that operators can see why a sender's
// requests fail. It records the time, the declared length and the User-Agent.
func (h *handler) countRefusal(r *http.Request, e *event) {
	if e.code == "" || e.code == webhook.RunFailed || e.probe {
		return
	}
	workflowID := ""
	if id, ok := strings.CutPrefix(r.URL.Path, webhookPath); ok && execution.ValidName(id) {
		workflowID = h.admission.ExistingID(id)
	}
	h.refused.Count(workflowID, string(e.code), stream.RefusedRequest{
		At:        e.start,
		BodyBytes: r.ContentLength,
		UserAgent: userAgent(r),
	})
}

// userAgent returns the User-Agent with every token, valid or not, redacted.
func userAgent(r *http.Request) string {
	text := r.Header.Get("User-Agent")
	if text == "" {
		return ""
	}
	// Bound the result: replacing a token of one letter makes the text longer.
	text = text[:min(len(text), 1<<10)]
	text = newRedactor(r.URL.RawQuery, r.Header, 1).redact(text)
	if hasTokenPrefix(text) {
		text = redactedToken // it contains a token that is not this request's
	}
	return stream.UserAgent(text)
}

// hasTokenPrefix reports whether a text contains the prefix of tokens.
func hasTokenPrefix(text string) bool {
	for at := range len(text) {
		if matchToken(text, at, 0) > 0 {
			return true
		}
	}
	return false
}
