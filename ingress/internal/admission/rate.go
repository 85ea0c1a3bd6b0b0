package admission

import (
	"maps"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/sharded"
	"github.com/hookstart/hookstart/shared/registry"
)

// gcraState is the state of a workflow or account in GCRA, the generic cell rate algorithm.
type gcraState struct {
	// theoreticalArrival is the theoretical arrival time: the time, measured from Limiter.origin,
	// at which the workflow or account will be idle if no more requests arrive.
	theoreticalArrival time.Duration
	// limit is the rate limit that theoreticalArrival is based on.
	limit registry.RateLimit
}

// forLimit returns d if d was computed for the limit l. Otherwise it returns an idle state,
// because usage under an old limit must not cause a refusal under a new one.
func (d gcraState) forLimit(l registry.RateLimit) gcraState {
	if d.limit == l {
		return d
	}
	return gcraState{limit: l}
}

// costPerRequest returns the cost of one request: the time after which the limit allows another
// request.
func costPerRequest(
	l registry.RateLimit,
) time.Duration {
	return l.Window / time.Duration(l.Requests)
}

// chargeOneRequest charges one request against the limit. From idle, l.Requests are accepted
// immediately, then one every l.Window/l.Requests. If the request is accepted, chargeOneRequest
// returns the new state, and wait is 0. Otherwise, nothing is charged, and wait is the time until
// another request is accepted.
func chargeOneRequest(
	d gcraState, now time.Duration, l registry.RateLimit,
) (next gcraState, wait time.Duration) {
	interval := costPerRequest(l)
	burst := interval * time.Duration(l.Requests)
	d = d.forLimit(l)
	d.theoreticalArrival = max(d.theoreticalArrival, now)
	if early := d.theoreticalArrival + interval - now - burst; early > 0 {
		return d, early
	}
	d.theoreticalArrival += interval
	return d, 0
}

// addIncurredCost adds a cost that can no longer be refused: the cost of requests admitted by other
// ingresses, or of bytes that have already been read. The usage may then exceed the limit. In that
// case, nothing more is accepted until the excess has drained, so that all ingresses together stay
// within the limit. The excess is capped at one burst.
func addIncurredCost(d gcraState, now, cost time.Duration, burst time.Duration) gcraState {
	d.theoreticalArrival = max(d.theoreticalArrival, now)
	d.theoreticalArrival = max(d.theoreticalArrival, min(d.theoreticalArrival+cost, now+2*burst))
	return d
}

// Usage sums up the requests of a workflow that an ingress has admitted since its last
// announcement.
type Usage struct {
	Cost           time.Duration // the number of requests times CostPerRequest
	CostPerRequest time.Duration // the cost of one request when they were admitted; 0 means unknown
}

// removeIdleInterval is the minimum interval between two removals of a shard's idle entries.
const removeIdleInterval = time.Minute

// Limiter tracks usage across all ingresses: how much of its rate limit each busy workflow has
// used, and how many of its daily bytes each busy account has used.
type Limiter struct {
	origin    time.Time // the zero point of the durations in gcraState and usageShard
	workflows *sharded.Shards[usageShard[Usage]]
	accounts  *sharded.Shards[usageShard[int64]] // bytes of bodies
}

// usageShard holds the usage of the workflows or accounts in one shard.
type usageShard[Used any] struct {
	states          map[string]gcraState // by workflow ID or account ID
	admitted        map[string]Used      // admitted since the last call to DrainUsage or DrainBytes
	lastIdleRemoval time.Duration        // last removal of idle entries, since Limiter.origin
}

func newUsageShard[Used any]() usageShard[Used] {
	return usageShard[Used]{states: map[string]gcraState{}, admitted: map[string]Used{}}
}

// NewLimiter returns a Limiter in which every workflow and account is idle.
func NewLimiter() *Limiter {
	return &Limiter{
		origin:    time.Now(),
		workflows: sharded.New(newUsageShard[Usage]),
		accounts:  sharded.New(newUsageShard[int64]),
	}
}

// chargeRequest counts a request of a workflow and returns 0. If the rate limit is exceeded, it
// counts nothing and returns how long to wait until another request is accepted.
func (l *Limiter) chargeRequest(
	workflowID string, limit registry.RateLimit, at time.Time,
) time.Duration {
	now := at.Sub(l.origin)
	locked := l.workflows.ShardFor(workflowID)
	locked.Lock()
	defer locked.Unlock()
	s := &locked.State
	s.removeIdle(now)
	next, wait := chargeOneRequest(s.states[workflowID], now, limit)
	if wait == 0 {
		s.states[workflowID] = next
		used, each := s.admitted[workflowID], costPerRequest(limit)
		if used.CostPerRequest != each { // the earlier usage was under a previous rate limit
			used = Usage{CostPerRequest: each}
		}
		used.Cost += each
		s.admitted[workflowID] = used
	}
	return wait
}

// waitTimeForRequest returns how long to wait until a request of a workflow would be accepted,
// without counting one. 0 means no wait.
func (l *Limiter) waitTimeForRequest(
	workflowID string, limit registry.RateLimit, at time.Time,
) time.Duration {
	locked := l.workflows.ShardFor(workflowID)
	locked.Lock()
	d := locked.State.states[workflowID]
	locked.Unlock()
	_, wait := chargeOneRequest(d, at.Sub(l.origin), limit)
	return wait
}

// DrainUsage returns the requests that this ingress has admitted since the last call, keyed by
// workflow ID.
func (l *Limiter) DrainUsage() map[string]Usage {
	usage := map[string]Usage{}
	l.workflows.ForEach(func(s *usageShard[Usage]) {
		maps.Copy(usage, s.admitted)
		clear(s.admitted)
	})
	return usage
}

// AddRemoteUsage counts the requests that another ingress has admitted for a workflow. limit is the
// workflow's rate limit at this ingress. Requests that the other ingress has counted under a
// different rate are ignored.
func (l *Limiter) AddRemoteUsage(
	workflowID string,
	used Usage,
	limit registry.RateLimit,
	at time.Time,
) {
	interval := costPerRequest(limit)
	if used.Cost <= 0 || (used.CostPerRequest != 0 && used.CostPerRequest != interval) {
		return
	}
	now := at.Sub(l.origin)
	locked := l.workflows.ShardFor(workflowID)
	locked.Lock()
	defer locked.Unlock()
	s := &locked.State
	s.states[workflowID] = addIncurredCost(s.states[workflowID].forLimit(limit), now,
		used.Cost, interval*time.Duration(limit.Requests))
}

// removeIdle removes the entries of idle workflows or accounts, at most once per
// removeIdleInterval. It copies the remaining entries to a new map, because a map does not release
// the memory of deleted entries.
func (s *usageShard[Used]) removeIdle(now time.Duration) {
	if now-s.lastIdleRemoval < removeIdleInterval {
		return
	}
	busy := map[string]gcraState{}
	for id, d := range s.states {
		if d.theoreticalArrival > now {
			busy[id] = d
		}
	}
	s.states = busy
	if len(s.admitted) == 0 {
		s.admitted = map[string]Used{}
	}
	s.lastIdleRemoval = now
}
