package ingress

import (
	"net/http"

	"github.com/hookstart/hookstart/shared/probe"
)

// respondToProbe responds to an executor's check of the public URL in a response header. The
// request also gets its usual response, so other clients cannot tell that probes exist.
func (h *handler) respondToProbe(w http.ResponseWriter, r *http.Request, e *requestEvent) {
	if answer := h.probes.Answer(r.Header.Get(probe.Header)); answer != "" {
		w.Header().Set(probe.Header, answer)
		e.probe = true
	}
}
