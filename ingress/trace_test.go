package ingress

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/stream"
)

// If tracing is off, a request allocates memory only for the traceparent that its message must
// have.
func TestTracingThatIsOffAllocatesNothing(t *testing.T) {
	h := &handler{}
	r := httptest.NewRequest("POST", "/webhooks/wf?token=t", nil)
	d := &delivery{r: r, event: requestEvent{start: time.Now(), status: 200}}
	var trigger admission.Trigger
	var traceparent string
	allocations := testing.AllocsPerRun(100, func() {
		h.startRequestSpan(d, true)
		traceparent = d.spans.startPublishSpan(r, stream.StartSubject, trigger, "id")
		d.spans.endPublishSpan(false, nil)
		d.spans.end(&d.event)
	})
	alone := testing.AllocsPerRun(100, func() { traceparent = newTraceparent(r.Header) })
	if allocations != alone || !isValidTraceparent(traceparent) {
		t.Errorf("%v allocations, a traceparent is %v; %q", allocations, alone, traceparent)
	}
}
