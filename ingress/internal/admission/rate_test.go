package admission

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/hookstart/hookstart/shared/registry"
)

func TestTake(t *testing.T) {
	limit := registry.RateLimit{Requests: 60, Window: time.Minute}
	now := time.Duration(0)
	var d gcraState
	var wait time.Duration
	for n := range 60 {
		if d, wait = chargeOneRequest(d, now, limit); wait != 0 {
			t.Fatalf("request %d of the burst has to wait %s", n+1, wait)
		}
	}
	for range 5 { // refusals do not extend the wait
		before := d
		if d, wait = chargeOneRequest(d, now, limit); wait != time.Second || d != before {
			t.Fatalf("wait %s", wait)
		}
	}
	now += wait - 1
	if _, wait := chargeOneRequest(d, now, limit); wait != 1 {
		t.Errorf("a nanosecond too early: %s", wait)
	}
	now++
	if d, wait = chargeOneRequest(d, now, limit); wait != 0 {
		t.Errorf("after the wait: %s", wait)
	}
	if _, wait = chargeOneRequest(d, now, limit); wait != time.Second {
		t.Errorf("one more: %s", wait)
	}

	// If the limit of a workflow changes, its state is reset: the workflow may receive a full burst
	// again, even if a request costs the same under both limits.
	for _, old := range []registry.RateLimit{
		{Requests: 24, Window: 24 * time.Hour}, {Requests: 3600, Window: time.Hour},
	} {
		changed := gcraState{now + old.Window, old}
		for n := range 60 {
			if changed, wait = chargeOneRequest(changed, now, limit); wait != 0 {
				t.Fatalf("after %+v, request %d has to wait %s", old, n+1, wait)
			}
		}
		if _, wait = chargeOneRequest(changed, now, limit); wait != time.Second {
			t.Errorf("after %+v: %s", old, wait)
		}
	}
	// Requests that other ingresses have admitted make a sender wait longer. However many there
	// were, the additional wait is at most the time in which one burst refills.
	behind := addIncurredCost(d, now, 5*time.Second, time.Minute)
	if _, wait := chargeOneRequest(behind, now, limit); wait != 6*time.Second {
		t.Errorf("after others admitted five: %s", wait)
	}
	day := addIncurredCost(d, now, 24*time.Hour, time.Minute)
	if _, wait := chargeOneRequest(day, now, limit); wait != time.Minute+time.Second {
		t.Errorf("after others admitted far too many: %s", wait)
	}
}

// In any period, at most one burst plus the requests that the rate allows in that period are
// accepted. A sender that has waited for as long as chargeOneRequest demanded is accepted.
func TestTakeKeepsTheLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		limit := registry.RateLimit{
			Requests: 1 + random.Int64N(100),
			Window:   time.Duration(1+random.Int64N(120)) * time.Second,
		}
		var d gcraState
		var now time.Duration
		accepted := int64(0)
		for range 5_000 {
			now += time.Duration(
				random.ExpFloat64() * float64(limit.Window) / float64(limit.Requests) / 4,
			)
			next, wait := chargeOneRequest(d, now, limit)
			d = next
			if wait == 0 {
				accepted++
				continue
			}
			if _, again := chargeOneRequest(d, now+wait, limit); again != 0 {
				t.Fatalf("%+v: waited %s as told, and has to wait %s more", limit, wait, again)
			}
		}
		if bound := limit.Requests + int64(now/(limit.Window/time.Duration(limit.Requests))) +
			1; accepted > bound {
			t.Errorf("%+v: %d accepted in %s, at most %d may be", limit, accepted, now, bound)
		}
	}
}

// Three ingresses receive 90 %, 5 % and 5 % of a flood, over 20 windows of a clock that the test
// advances. Together they keep the limit, although they exchange usage only every 100 ms. Requests
// are still accepted at the permitted rate after one ingress restarts, and when messages are lost.
func TestThreeIngressesKeepOneLimit(t *testing.T) {
	for name, lost := range map[string]float64{
		"all is heard":               0,
		"one message in ten is lost": 0.1,
	} {
		t.Run(name, func(t *testing.T) { threeIngresses(t, lost) })
	}
}

func threeIngresses(t *testing.T, lost float64) {
	t.Helper()
	const windows = 20
	limit := registry.RateLimit{Requests: 600, Window: 10 * time.Second}
	random := rand.New(rand.NewPCG(3, 4))
	ingresses := []*Limiter{NewLimiter(), NewLimiter(), NewLimiter()}
	origin := ingresses[0].origin
	for _, l := range ingresses {
		l.origin = origin
	}
	step := limit.Window / time.Duration(limit.Requests) / 10 // the flood is ten times the limit
	var accepted [windows + 1]int64
	for elapsed := time.Duration(0); elapsed < (windows+1)*limit.Window; elapsed += step {
		at := origin.Add(elapsed)
		to := 0
		switch p := random.Float64(); {
		case p > 0.95:
			to = 1
		case p > 0.90:
			to = 2
		}
		if ingresses[to].chargeRequest("wf", limit, at) == 0 {
			accepted[elapsed/limit.Window]++
		}
		if elapsed%(100*time.Millisecond) < step {
			for i, from := range ingresses {
				usage := from.DrainUsage()
				for j, other := range ingresses {
					if i != j && random.Float64() >= lost {
						other.AddRemoteUsage("wf", usage["wf"], limit, at)
					}
				}
			}
		}
		if elapsed/step == 50_000 { // one ingress restarts
			ingresses[1] = NewLimiter()
			ingresses[1].origin = origin
		}
	}
	// Skip the first window: it starts idle, so it also accepts the burst. The later windows may
	// exceed the limit slightly, because ingresses learn of each other's requests late, or not at
	// all if messages are lost.
	for w, n := range accepted[1:] {
		if f := float64(n) / float64(limit.Requests); f > 1.1+lost || f < 0.95 {
			t.Errorf("window %d: %d accepted, %.2f of the limit", w+1, n, f)
		}
	}
}

// Usage that another ingress counted under a previous limit does not count against the new limit.
// Usage from an ingress of an earlier version, which does not send CostPerRequest, always counts.
func TestUsageUnderAnotherLimitDoesNotCount(t *testing.T) {
	old, limit := registry.RateLimit{Requests: 1, Window: time.Minute}, registry.RateLimit{
		Requests: 2,
		Window:   time.Second,
	}
	for name, c := range map[string]struct {
		used Usage
		free bool
	}{
		"of the old limit": {Usage{Cost: time.Minute, CostPerRequest: time.Minute}, true},
		"of this limit":    {Usage{Cost: time.Second, CostPerRequest: time.Second / 2}, false},
		"of no known one":  {Usage{Cost: time.Second}, false},
	} {
		limiter := NewLimiter()
		limiter.AddRemoteUsage("wf", c.used, limit, limiter.origin)
		if wait := limiter.chargeRequest("wf", limit, limiter.origin); (wait == 0) != c.free {
			t.Errorf("%s: wait %s", name, wait)
		}
	}

	limiter := NewLimiter()
	limiter.chargeRequest("wf", old, limiter.origin)
	limiter.chargeRequest("wf", limit, limiter.origin)
	if used := limiter.DrainUsage()["wf"]; used != (Usage{
		Cost:           time.Second / 2,
		CostPerRequest: time.Second / 2,
	}) {
		t.Errorf("after the limit changed it tells %+v", used)
	}
}

func TestLimitsForgetIdleWorkflows(t *testing.T) {
	limiter := NewLimiter()
	limit := registry.RateLimit{Requests: 1, Window: time.Second}
	at := limiter.origin
	for n := range 10_000 {
		limiter.chargeRequest(strconv.Itoa(n), limit, at)
	}
	at = at.Add(2 * removeIdleInterval)
	for n := range 1_000 { // enough for every shard to have some
		limiter.chargeRequest("again-"+strconv.Itoa(n), limit, at)
	}
	if kept := limiter.remembered(); kept != 1_000 {
		t.Errorf("%d workflows are remembered", kept)
	}
}

type onlyWorkflow registry.CompiledWorkflow

func (w *onlyWorkflow) Lookup(string) (registry.WorkflowView, bool) {
	return registry.WorkflowView{
		Workflow: (*registry.CompiledWorkflow)(w), WithinPlan: true,
		Plan: &registry.Plan{
			WebhookTriggers: true,
			RateLimit:       registry.RateLimit{Requests: 1, Window: time.Minute},
		},
	}, true
}

// Limiter uses the workflow ID from the registry as its map key, not the one from the request. The
// latter is a part of the request line, and would keep the whole line in memory.
func TestLimitsKeepNothingOfTheRequest(t *testing.T) {
	workflow := &onlyWorkflow{
		ID:     "workflow",
		Active: true,
		Nodes: []registry.TriggerNode{
			{ID: "node", Tokens: []registry.HashedToken{{Hash: registry.HashToken("token")}}},
		},
	}
	limiter := NewLimiter()
	const line = "POST /webhooks/workflow?token=token HTTP/1.1"
	if _, refusal := admit(New(workflow, limiter), line[15:23], "token", 0,
		limiter.origin); refusal != nil {
		t.Fatal(refusal)
	}
	for id := range limiter.DrainUsage() {
		if unsafe.StringData(id) != unsafe.StringData(workflow.ID) {
			t.Error("the limiter's key is the request's")
		}
	}
	for id := range limiter.workflows.ShardFor("workflow").State.states {
		if unsafe.StringData(id) != unsafe.StringData(workflow.ID) {
			t.Error("the limiter's key is the request's")
		}
	}
	if limiter.remembered() != 1 {
		t.Error("no limiter")
	}
}

func (l *Limiter) remembered() (n int) {
	l.workflows.ForEach(func(s *usageShard[Usage]) { n += len(s.states) })
	return n
}

// BenchmarkLimitsMemory reports the memory for 100,000 workflows that are busy at the same time,
// and how much of it is still used after all but 1,000 of them have become idle.
func BenchmarkLimitsMemory(b *testing.B) {
	const busy, afterwards = 100_000, 1_000
	ids := make([]string, busy) // in an ingress, the registry holds these strings anyway
	for n := range ids {
		ids[n] = "workflow-" + strconv.Itoa(n)
	}
	limit := registry.RateLimit{Requests: 60, Window: time.Minute}
	for b.Loop() {
		before := inUse()
		limiter := NewLimiter()
		at := limiter.origin
		use := func(ids []string) {
			for n, id := range ids {
				at = at.Add(10 * time.Microsecond)
				limiter.chargeRequest(id, limit, at)
				if n%10_000 == 9_999 { // usage is announced ten times a second
					limiter.DrainUsage()
				}
			}
			limiter.DrainUsage()
		}
		use(ids)
		if n := limiter.remembered(); n != busy {
			b.Fatalf("%d limiters", n)
		}
		b.ReportMetric((inUse()-before)/busy, "B/limiter")
		at = at.Add(2 * removeIdleInterval)
		use(ids[:afterwards])
		b.ReportMetric(float64(limiter.remembered()), "limiters-after-idling")
		b.ReportMetric((inUse()-before)/1024, "KB-after-idling")
		runtime.KeepAlive(limiter)
	}
	runtime.KeepAlive(ids)
}

// inUse returns the number of bytes of live objects on the heap.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func BenchmarkTake(b *testing.B) {
	limiter := NewLimiter()
	limit := registry.RateLimit{Requests: 1_000_000, Window: time.Second}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			limiter.chargeRequest("workflow", limit, time.Now())
		}
	})
}
