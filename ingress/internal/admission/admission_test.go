package admission

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/webhook"
)

// A token that has been replaced is valid until it expires, and not a nanosecond longer.
func TestTokensExpire(t *testing.T) {
	limiter := NewLimiter()
	end := limiter.origin.Add(time.Hour)
	workflow := &onlyWorkflow{
		ID:        "workflow",
		Active:    true,
		RateLimit: registry.RateLimit{Requests: 100, Window: time.Minute},
		Nodes: []registry.TriggerNode{
			{ID: "other", Tokens: []registry.HashedToken{{Hash: registry.HashToken("other")}}},
			{ID: "node", Tokens: []registry.HashedToken{
				{Hash: registry.HashToken("new")},
				{Hash: registry.HashToken("old"), ExpiresAt: end.UnixNano()},
			}},
		},
	}
	a := New(workflow, limiter)
	for _, c := range []struct {
		token  string
		at     time.Time
		nodeID string // empty if the token is refused
	}{
		{"old", end.Add(-1), "node"},
		{"old", end, ""},
		{"other", end, "other"},
		{"", end, ""},
		{"ne", end, ""},
		{"old", end.Add(time.Hour), ""},
		{"new", end.Add(time.Hour), "node"},
	} {
		trigger, refusal := admit(a, "workflow", c.token, 0, c.at)
		refused := refusal != nil && refusal.Code == webhook.CodeTokenInvalid
		if trigger.NodeID != c.nodeID || refused != (c.nodeID == "") ||
			refused != (refusal != nil) {
			t.Errorf("%q at %s: %+v, %+v", c.token, c.at, trigger, refusal)
		}
	}
}

// admit checks the token, the plan and the limits. These are the checks that precede the check of
// whether the workflow is active.
func admit(
	a *Admission, workflowID, token string, bodyBytes int64, at time.Time,
) (Trigger, *Refusal) {
	trigger, refusal := a.Find(workflowID, token, at)
	if refusal == nil {
		refusal = trigger.CheckPlan()
	}
	if refusal == nil {
		refusal = a.ApplyLimits(trigger, bodyBytes, at)
	}
	return trigger, refusal
}
