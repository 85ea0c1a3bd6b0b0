package ingress

import (
	"net/http"
	"strings"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// countRefusal counts a request that was refused, so that operators see why a sender gets
// nowhere. Of the request it keeps when it came, how long it says it is and who says so.
func (h *handler) countRefusal(r *http.Request, e *event) {
	if e.code == "" || e.probe {
		return
	}
	workflowID := ""
	if id, is := strings.CutPrefix(r.URL.Path, webhookPath); is && execution.ValidName(id) {
		workflowID = h.admission.Known(id)
	}
	h.refused.Count(workflowID, string(e.code), stream.RefusedRequest{At: e.start, BodyBytes: r.ContentLength, UserAgent: userAgent(r)})
}

// userAgent is what a request says sent it, without a token, right or wrong.
func userAgent(r *http.Request) string {
	text := r.Header.Get("User-Agent")
	if text == "" {
		return ""
	}
	text = text[:min(len(text), 1<<10)] // so that nobody can make it grow far by a token of one letter
	text = newHider(r.URL.RawQuery, 1).hide(text)
	if hasTokenPrefix(text) {
		text = hiddenToken // of something else
	}
	return stream.UserAgent(text)
}

// hasTokenPrefix says whether what may be a token begins somewhere in a text.
func hasTokenPrefix(text string) bool {
	for at := range len(text) {
		if matchToken(text, at, 0) > 0 {
			return true
		}
	}
	return false
}
