package admission

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
)

// take is GCRA, the generic cell rate algorithm, as a function: tat is the
// theoretical arrival time so far, in the unit and from the origin of now. It
// returns the next one; or, when the request comes too early, how long to wait.
//
// From idle, l.Requests requests are accepted at once; after that, one every
// l.Window/l.Requests. A request that is refused changes nothing.
func take(tat, now time.Duration, l registry.RateLimit) (next, wait time.Duration) {
	interval := l.Window / time.Duration(l.Requests)
	burst := interval * time.Duration(l.Requests)
	// A limit that was made stricter must not lock the workflow out for longer than
	// the new one could; one that was made looser must not keep the debt of the old.
	tat = min(max(tat, now), now+burst)
	next = tat + interval
	if early := next - now - burst; early > 0 {
		return tat, early
	}
	return next, 0
}

// sweepEvery is how often idle workflows are forgotten.
const sweepEvery = time.Minute

// Limits holds the theoretical arrival time of each workflow that was busy lately.
type Limits struct {
	origin time.Time
	seed   maphash.Seed
	shards [64]limitShard
}

type limitShard struct {
	mu    sync.Mutex
	tat   map[string]time.Duration
	swept time.Duration
}

func newLimits() *Limits {
	l := &Limits{origin: time.Now(), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].tat = map[string]time.Duration{}
	}
	return l
}

// take counts a request of a workflow, and returns 0, or how long the workflow has to
// wait until one more is accepted.
func (l *Limits) take(workflowID string, limit registry.RateLimit, at time.Time) time.Duration {
	now := at.Sub(l.origin)
	shard := &l.shards[maphash.String(l.seed, workflowID)%uint64(len(l.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if now-shard.swept > sweepEvery {
		shard.sweep(now)
	}
	next, wait := take(shard.tat[workflowID], now, limit)
	if wait == 0 {
		shard.tat[workflowID] = next
	}
	return wait
}

// sweep forgets the workflows that are idle: for them the past makes no difference.
func (s *limitShard) sweep(now time.Duration) {
	for id, tat := range s.tat {
		if tat <= now {
			delete(s.tat, id)
		}
	}
	s.swept = now
}
