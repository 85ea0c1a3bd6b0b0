package admission

import (
	"maps"
	"math/bits"
	"time"

	"github.com/hookstart/hookstart/shared/registry"
)

// day is the window of a plan's limit on bytes per day.
const day = 24 * time.Hour

// byteLimit returns a plan's limit on bytes in the form of a rate limit, in which each byte counts
// as one request.
func byteLimit(perDay int64) registry.RateLimit {
	return registry.RateLimit{Requests: perDay, Window: day}
}

// costOfBytes returns the part of the 24-hour window that n bytes use up, n/perDay of a day. The
// result is at most two days, which already exceeds every limit. The cap keeps the division from
// overflowing.
func costOfBytes(n, perDay int64) time.Duration {
	if n >= 2*perDay {
		return 2 * day
	}
	high, low := bits.Mul64(uint64(n), uint64(day)) //nolint:gosec // neither is negative
	//nolint:gosec // more than n/2, so it cannot overflow
	cost, _ := bits.Div64(high, low, uint64(perDay))
	return time.Duration(cost) //nolint:gosec // at most two days
}

// waitTimeForBytes returns how long an account must wait before a body of n bytes may be read; 0
// means no wait. It counts nothing: AddBytes counts the bytes after they have been read. perDay is
// the account's daily limit. A body of unknown length (n < 0) may be read if at least one byte of
// the limit is left. A body longer than the whole limit may be read only if none of the limit is
// used.
func (l *Limiter) waitTimeForBytes(accountID string, perDay, n int64, at time.Time) time.Duration {
	now := at.Sub(l.origin)
	locked := l.accounts.ShardFor(accountID)
	locked.Lock()
	d := locked.State.states[accountID]
	locked.Unlock()
	if n < 0 {
		n = 1
	}
	used := max(d.forLimit(byteLimit(perDay)).theoreticalArrival-now, 0)
	return max(used+min(costOfBytes(n, perDay), day)-day, 0)
}

// AddBytes counts bytes of a body that this ingress has read against the account's daily limit,
// perDay. If perDay is 0, there is no limit and nothing is counted.
func (l *Limiter) AddBytes(accountID string, perDay, n int64, at time.Time) {
	l.addBytes(accountID, perDay, n, at, true)
}

// AddRemoteBytes is like AddBytes, but for bytes that another ingress has read and announced.
func (l *Limiter) AddRemoteBytes(accountID string, perDay, n int64, at time.Time) {
	l.addBytes(accountID, perDay, n, at, false)
}

func (l *Limiter) addBytes(accountID string, perDay, n int64, at time.Time, local bool) {
	if perDay <= 0 || n <= 0 { // unlimited, or nothing was read
		return
	}
	now := at.Sub(l.origin)
	locked := l.accounts.ShardFor(accountID)
	locked.Lock()
	defer locked.Unlock()
	s := &locked.State
	s.removeIdle(now)
	s.states[accountID] = addIncurredCost(s.states[accountID].forLimit(byteLimit(perDay)),
		now, costOfBytes(n, perDay), day)
	if local {
		s.admitted[accountID] += n
	}
}

// DrainBytes returns the bytes that this ingress has read since the last call, keyed by account ID.
func (l *Limiter) DrainBytes() map[string]int64 {
	used := map[string]int64{}
	l.accounts.ForEach(func(s *usageShard[int64]) {
		maps.Copy(used, s.admitted)
		clear(s.admitted)
	})
	return used
}
