package ingress

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

type neverValid struct{}

func (neverValid) IsValid(time.Time) bool    { return false }
func (neverValid) AwaitValid(time.Time) bool { return false }

// expiring is a lease that expires after it was asked once.
type expiring struct{ asked atomic.Bool }

func (e *expiring) IsValid(time.Time) bool    { return !e.asked.Load() }
func (e *expiring) AwaitValid(time.Time) bool { return !e.asked.Swap(true) }

// An ingress that was suspended, or that is cut off from NATS, refuses nothing permanently, because
// its copy of the registry may be stale: the workflow may have been created, deactivated or given
// another token in the meantime.
func TestNothingIsRefusedForGoodWithoutALease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path          string
		with, without int
	}{
		{"/webhooks/wf?token=right", http.StatusOK, http.StatusServiceUnavailable},
		{"/webhooks/wf?token=wrong", http.StatusForbidden, http.StatusServiceUnavailable},
		{"/webhooks/unknown?token=right", http.StatusNotFound, http.StatusServiceUnavailable},
		{"/webhooks/no.name?token=right", http.StatusNotFound, http.StatusNotFound},
		{"/webhooks/wf", http.StatusBadRequest, http.StatusBadRequest},
		{"/webhooks/?token=right", http.StatusBadRequest, http.StatusBadRequest},
		{"/elsewhere", http.StatusNotFound, http.StatusNotFound},
	} {
		for l, want := range map[registryLease]int{
			alwaysValid{}: tt.with,
			neverValid{}:  tt.without,
		} {
			h, token, _, _, _ := tryHandler(t, l)
			response := httptest.NewRecorder()
			path := strings.Replace(tt.path, "right", token, 1)
			h.router().ServeHTTP(response, httptest.NewRequest(http.MethodPost, path, nil))
			if response.Code != want {
				t.Errorf("%s with %T: %d, want %d", tt.path, l, response.Code, want)
			}
			if retryAfter := response.Header().Get("Retry-After"); (retryAfter != "") !=
				(want == http.StatusServiceUnavailable) {
				t.Errorf("%s with %T: Retry-After %q", tt.path, l, retryAfter)
			}
		}
	}
}

// An ingress that was suspended accepts nothing, because its copy of the registry may be stale and
// the workflow may have been deactivated.
func TestNothingIsAcceptedWithoutALease(t *testing.T) {
	t.Parallel()
	for l, want := range map[registryLease]int{
		alwaysValid{}: http.StatusOK,
		neverValid{}:  http.StatusServiceUnavailable,
		&expiring{}:   http.StatusServiceUnavailable, // while the request is read
	} {
		h, token, messages, _, _ := tryHandler(t, l)
		response := httptest.NewRecorder()
		h.router().ServeHTTP(response,
			httptest.NewRequest(http.MethodPost, "/webhooks/wf?token="+token, nil))
		if stored := messages.last != nil; response.Code != want ||
			stored != (want == http.StatusOK) {
			t.Errorf("%d, stored: %t, want %d", response.Code, stored, want)
		}
	}
}
