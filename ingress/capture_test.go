package ingress

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/ingress/internal/admission"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// A provider sends its secret only once. The ingress therefore responds with 200 only if it has
// kept the secret, and otherwise with 503.
func TestASecretIsConfirmedOnlyIfItIsKept(t *testing.T) {
	t.Parallel()
	plans, err := edit.ParsePlans(edit.DefaultPlansJSON)
	if err != nil {
		t.Fatal(err)
	}
	for full, want := range map[bool]int{
		false: http.StatusOK,
		true:  http.StatusServiceUnavailable,
	} {
		h, token, _, _, _ := tryHandler(t, alwaysValid{})
		snapshot := registry.NewSnapshot(nil)
		snapshot.Apply(registry.Change{Plans: plans})
		snapshot.Apply(registry.Change{Account: &registry.Account{ID: "a", Plan: "pro"}})
		snapshot.Apply(registry.Change{Workflow: &registry.Workflow{
			ID: "wf", AccountID: "a", Queue: "q", Active: true,
			Triggers: []registry.Trigger{{
				NodeID: "node",
				Tokens: []registry.HashedToken{{Hash: registry.HashToken(token)}},
				Sender: &registry.Sender{Preset: "notion"},
			}},
		}})
		snapshot.FinishLoad()
		h.admission = admission.New(snapshot, admission.NewLimiter())
		h.sealer = func(_, _, secret string) ([]byte, error) { return []byte(secret), nil }
		h.senders = &seenSenders{full: full}
		r := httptest.NewRequest(http.MethodPost, "/webhooks/wf?token="+token,
			strings.NewReader(`{"verification_token":"secret"}`))
		r.Header.Set("Content-Type", "application/json")
		response := deadlineRecorder{httptest.NewRecorder()}
		h.router().ServeHTTP(response, r)
		if response.Code != want {
			t.Errorf("full: %t: %d, want %d: %s", full, response.Code, want, response.Body)
		}
	}
}
