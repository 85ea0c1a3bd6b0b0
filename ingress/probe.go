package ingress

import "github.com/hookstart/hookstart/shared/probe"

// respondToProbe answers an executor's check of the public URL in a response header. Apart from
// that header, the request gets its usual response, so other clients cannot tell that probes exist.
func (h *handler) respondToProbe(d *delivery) {
	if answer := h.probes.Respond(d.r.Header.Get(probe.Header)); answer != "" {
		d.w.Header().Set(probe.Header, answer)
		d.event.probe = true
	}
}
