package ingress

import (
	"net/http"

	"github.com/hookstart/hookstart/shared/probe"
)

// answerProbe tells an executor that asks that this ingress was reached. The request gets
// the answer that it would get anyway, so nobody else learns that there is such a thing.
func (h *handler) answerProbe(w http.ResponseWriter, r *http.Request, e *event) {
	if answer := h.probes.Answer(r.Header.Get(probe.Header)); answer != "" {
		w.Header().Set(probe.Header, answer)
		e.probe = true
	}
}
