package admission

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
)

// debt is a workflow's state in GCRA, the generic cell rate algorithm.
type debt struct {
	// tat is the theoretical arrival time: when the workflow is idle again if nothing more
	// comes, on the clock of now.
	tat time.Duration
	// interval is that of the limit under which tat came about.
	interval time.Duration
}

// take asks for one request. From idle, l.Requests requests are accepted at once; after
// that, one every l.Window/l.Requests. It returns the new state; or, when the request
// comes too early, how long to wait. A request that is refused changes nothing.
func take(d debt, now time.Duration, l registry.RateLimit) (next debt, wait time.Duration) {
	interval := l.Window / time.Duration(l.Requests)
	burst := interval * time.Duration(l.Requests)
	if d.interval != interval {
		// The limit was changed. The debt of the old one must not lock the workflow out for
		// longer than the new one could.
		d = debt{min(d.tat, now+burst), interval}
	}
	d.tat = max(d.tat, now)
	if early := d.tat + interval - now - burst; early > 0 {
		return d, early
	}
	d.tat += interval
	return d, 0
}

// add counts what other ingresses admitted. It may go beyond what the limit allows: then
// nothing is accepted until that is made up for, so that all ingresses together keep the
// limit. One burst more is the bound, whatever the others say.
func add(d debt, now, cost time.Duration, burst time.Duration) debt {
	d.tat = max(d.tat, now)
	d.tat = max(d.tat, min(d.tat+cost, now+2*burst))
	return d
}

// sweepEvery is how often idle workflows are forgotten.
const sweepEvery = time.Minute

// Limits knows how much each workflow that was busy lately has used of its rate limit,
// here and, as far as they have told, at the other ingresses.
type Limits struct {
	origin time.Time
	seed   maphash.Seed
	shards [64]limitShard
}

type limitShard struct {
	mu       sync.Mutex
	debts    map[string]debt
	admitted map[string]time.Duration // cost since the last TakeUsage
	swept    time.Duration
}

// NewLimits begins with every workflow idle.
func NewLimits() *Limits {
	l := &Limits{origin: time.Now(), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].debts = map[string]debt{}
		l.shards[i].admitted = map[string]time.Duration{}
	}
	return l
}

func (l *Limits) shard(workflowID string) *limitShard {
	return &l.shards[maphash.String(l.seed, workflowID)%uint64(len(l.shards))]
}

// take counts a request of a workflow, and returns 0, or how long the workflow has to
// wait until one more is accepted.
func (l *Limits) take(workflowID string, limit registry.RateLimit, at time.Time) time.Duration {
	now := at.Sub(l.origin)
	s := l.shard(workflowID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	next, wait := take(s.debts[workflowID], now, limit)
	if wait == 0 {
		s.debts[workflowID] = next
		s.admitted[workflowID] += next.interval
	}
	return wait
}

// TakeUsage returns, by workflow, the cost of what was admitted here since it was last
// called.
func (l *Limits) TakeUsage() map[string]time.Duration {
	usage := map[string]time.Duration{}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		maps.Copy(usage, s.admitted)
		clear(s.admitted)
		s.mu.Unlock()
	}
	return usage
}

// AddUsage counts what another ingress admitted of a workflow under the given limit.
func (l *Limits) AddUsage(workflowID string, cost time.Duration, limit registry.RateLimit, at time.Time) {
	if cost <= 0 {
		return
	}
	now := at.Sub(l.origin)
	s := l.shard(workflowID)
	s.mu.Lock()
	defer s.mu.Unlock()
	interval := limit.Window / time.Duration(limit.Requests)
	d, known := s.debts[workflowID]
	if !known {
		d.interval = interval
	}
	s.debts[workflowID] = add(d, now, cost, interval*time.Duration(limit.Requests))
}

// sweep forgets the workflows that are idle: for them the past makes no difference. Those
// that are not move to a new map, because one never gives memory back.
func (s *limitShard) sweep(now time.Duration) {
	if now-s.swept < sweepEvery {
		return
	}
	busy := map[string]debt{}
	for id, d := range s.debts {
		if d.tat > now {
			busy[id] = d
		}
	}
	s.debts = busy
	if len(s.admitted) == 0 {
		s.admitted = map[string]time.Duration{}
	}
	s.swept = now
}
