package admission

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
)

func TestTake(t *testing.T) {
	limit := registry.RateLimit{Requests: 60, Window: time.Minute}
	now := time.Duration(0)
	var tat, wait time.Duration
	for n := range 60 {
		if tat, wait = take(tat, now, limit); wait != 0 {
			t.Fatalf("request %d of the burst has to wait %s", n+1, wait)
		}
	}
	for range 5 { // a refusal does not push the wait further
		before := tat
		if tat, wait = take(tat, now, limit); wait != time.Second || tat != before {
			t.Fatalf("wait %s", wait)
		}
	}
	now += wait - 1
	if _, wait := take(tat, now, limit); wait != 1 {
		t.Errorf("a nanosecond too early: %s", wait)
	}
	now++
	if tat, wait = take(tat, now, limit); wait != 0 {
		t.Errorf("after the wait: %s", wait)
	}
	if _, wait = take(tat, now, limit); wait != time.Second {
		t.Errorf("one more: %s", wait)
	}

	// A workflow that is in debt is not locked out for longer than its new limit says.
	if _, wait := take(now+24*time.Hour, now, limit); wait != time.Second {
		t.Errorf("after the limit changed: %s", wait)
	}
}

// In any window, at most the burst and what the rate adds are accepted; and whoever waits
// as told is accepted.
func TestTakeKeepsTheLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		limit := registry.RateLimit{Requests: 1 + random.Int64N(100), Window: time.Duration(1+random.Int64N(120)) * time.Second}
		var tat, now time.Duration
		accepted := int64(0)
		for range 5_000 {
			now += time.Duration(random.ExpFloat64() * float64(limit.Window) / float64(limit.Requests) / 4)
			next, wait := take(tat, now, limit)
			if wait == 0 {
				accepted++
				tat = next
				continue
			}
			if _, again := take(tat, now+wait, limit); again != 0 {
				t.Fatalf("%+v: waited %s as told, and has to wait %s more", limit, wait, again)
			}
		}
		if bound := limit.Requests + int64(now/(limit.Window/time.Duration(limit.Requests))) + 1; accepted > bound {
			t.Errorf("%+v: %d accepted in %s, at most %d may be", limit, accepted, now, bound)
		}
	}
}

func TestLimitsForgetIdleWorkflows(t *testing.T) {
	limits := newLimits()
	limit := registry.RateLimit{Requests: 1, Window: time.Second}
	at := limits.origin
	for n := range 10_000 {
		limits.take(strconv.Itoa(n), limit, at)
	}
	at = at.Add(2 * sweepEvery)
	for n := range 1_000 { // enough to come to every shard
		limits.take("again-"+strconv.Itoa(n), limit, at)
	}
	kept := 0
	for i := range limits.shards {
		kept += len(limits.shards[i].tat)
	}
	if kept != 1_000 {
		t.Errorf("%d workflows are remembered", kept)
	}
}

func BenchmarkTake(b *testing.B) {
	limits := newLimits()
	limit := registry.RateLimit{Requests: 1_000_000, Window: time.Second}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			limits.take("workflow", limit, time.Now())
		}
	})
}
