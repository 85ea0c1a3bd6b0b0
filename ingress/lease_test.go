package ingress

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

type neverValid struct{}

func (neverValid) Valid(time.Time) bool { return false }

// What a process that was frozen knows may be past: the workflow may be switched off.
func TestNothingIsAcceptedWithoutALease(t *testing.T) {
	for want, l := range map[int]lease{http.StatusOK: alwaysValid{}, http.StatusServiceUnavailable: neverValid{}} {
		h, token, messages, _, _ := tryHandler(t, l)
		answer := httptest.NewRecorder()
		h.router().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/webhooks/wf?token="+token, nil))
		if stored := messages.last != nil; answer.Code != want || stored != (want == http.StatusOK) {
			t.Errorf("%d, stored: %t, want %d", answer.Code, stored, want)
		}
	}
}
