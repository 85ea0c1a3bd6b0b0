package admission

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/webhook"
)

func TestByteCost(t *testing.T) {
	for _, c := range []struct {
		n, perDay int64
		want      time.Duration
	}{
		{1, 1, day},
		{1, 86_400, time.Second},
		{102_400, 1_000_000_000, 8_847_360_000},
		{500_000_000_000_000, edit.MaxBytesPerDay, day / 2},
		{1, 2, day / 2},
		{1 << 62, 1, 2 * day},
		{0, 1, 0},
	} {
		if got := costOfBytes(c.n, c.perDay); got != c.want {
			t.Errorf("%d of %d: %d, want %d", c.n, c.perDay, got, c.want)
		}
	}
}

// bytesOf is a registry whose workflows all belong to one account. The account's plan allows 86,400
// bytes per day: one per second.
type bytesOf struct{ plan registry.Plan }

func (b *bytesOf) Lookup(id string) (registry.WorkflowView, bool) {
	return registry.WorkflowView{
		Workflow: &registry.CompiledWorkflow{
			ID:        id,
			AccountID: "account",
			Active:    id != "inactive",
			RateLimit: registry.RateLimit{Requests: 20, Window: time.Minute},
			Nodes: []registry.TriggerNode{
				{ID: "node", Tokens: []registry.HashedToken{{Hash: registry.HashToken("token")}}},
			},
		},
		WithinPlan: true, Plan: &b.plan,
	}, true
}

func TestBytesPerDay(t *testing.T) {
	limiter := NewLimiter()
	a := New(&bytesOf{registry.Plan{WebhookTriggers: true, BytesPerDay: 86_400}}, limiter)
	now := limiter.origin.Add(time.Hour)
	send := func(workflow string, declared int64, read int) time.Duration {
		t.Helper()
		trigger, refusal := admit(a, workflow, "token", declared, now)
		if refusal != nil {
			if refusal.Code != webhook.CodeRateLimited {
				t.Fatalf("%+v", refusal)
			}
			return refusal.RetryAfter
		}
		a.CountBody(trigger, read, now)
		return 0
	}
	expect := func(what string, got, want time.Duration) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("one that is announced and does not come costs nothing", send("one", 86_400, 0), 0)
	expect("half of a day's", send("one", 43_200, 43_200), 0)
	expect("the other half, at another workflow", send("two", 43_200, 43_200), 0)
	for range 30 { // more than the rate limit
		expect("one byte more", send("two", 1, 1), time.Second)
	}
	expect("without a body", send("two", 0, 0), 0)
	now = now.Add(10 * time.Second)
	expect("ten bytes after ten seconds", send("two", 10, 10), 0)
	expect("of unknown length", send("two", -1, 0), time.Second)
	now = now.Add(time.Second)
	expect("of unknown length, a second later", send("two", -1, 100), 0)
	expect("which was longer than there was room for", send("two", 1, 1), 100*time.Second)
	now = now.Add(day + 100*time.Second)
	expect("longer than all of a day's, from idle", send("two", 100_000, 100_000), 0)
	expect("which is made up for", send("two", 1, 1), (100_000-86_400+1)*time.Second)
}

// If a request exceeds both the rate limit and the limit on bytes, the time to wait is the longer
// of the two waits.
func TestBothLimitsExceeded(t *testing.T) {
	limiter := NewLimiter()
	a := New(&bytesOf{registry.Plan{WebhookTriggers: true, BytesPerDay: 86_400}}, limiter)
	now := limiter.origin.Add(time.Hour)
	expect := func(declared int64, want time.Duration) {
		t.Helper()
		for range 30 { // a refused request is not counted
			_, refusal := admit(a, "one", "token", declared, now)
			if refusal == nil || refusal.RetryAfter != want {
				t.Fatalf("%d bytes: %+v, want %v", declared, refusal, want)
			}
		}
	}
	for range 20 {
		trigger, refusal := admit(a, "one", "token", 4_320, now)
		if refusal != nil {
			t.Fatalf("%+v", refusal)
		}
		a.CountBody(trigger, 4_320, now)
	}
	expect(1, 3*time.Second) // 20 requests per minute; the byte alone would wait for a second
	expect(100, 100*time.Second)
	now = now.Add(3 * time.Second)
	if _, refusal := admit(a, "one", "token", 1, now); refusal != nil {
		t.Errorf("after the wait: %+v", refusal)
	}
}

// Ingresses tell each other how many bytes they have read. Each one computes from the account's
// current plan how much of the limit these bytes use up.
func TestIngressesKeepOneLimitOfBytes(t *testing.T) {
	here, there := NewLimiter(), NewLimiter()
	at := here.origin.Add(time.Minute)
	there.origin = here.origin
	here.AddBytes("account", 86_400, 80_000, at)
	here.AddBytes("unlimited", registry.Unlimited, 80_000, at)
	told := here.DrainBytes()
	if len(told) != 1 || told["account"] != 80_000 || len(here.DrainBytes()) != 0 {
		t.Errorf("told %v", told)
	}
	there.AddRemoteBytes("account", 86_400, told["account"], at)
	if wait := there.waitTimeForBytes("account", 86_400, 6_401, at); wait != time.Second {
		t.Errorf("waits %v", wait)
	}
	if wait := there.waitTimeForBytes("account", 86_400, 6_400, at); wait != 0 {
		t.Errorf("waits %v", wait)
	}
	if len(there.DrainBytes()) != 0 {
		t.Error("what was heard is told again")
	}
	if wait := there.waitTimeForBytes("account", 100_000, 100_000, at); wait != 0 {
		t.Errorf("another plan begins from idle, not after %v", wait)
	}
}
