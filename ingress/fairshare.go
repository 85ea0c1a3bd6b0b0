package ingress

import (
	"sync/atomic"

	"github.com/hookstart/hookstart/ingress/internal/sharded"
)

// fairShareLimiter limits the requests in flight and the bytes of bodies in memory, and divides
// both among accounts. An account may not hold more than what is still free for others. So a single
// account gets at most half, two accounts get a third each, and there is always room for one more
// account. An account that has no other request in flight may use everything that is free, because
// otherwise a body nearly as long as the limit would never be accepted.
//
// fairShareLimiter is safe for concurrent use. For a moment, a new request may be counted in one
// limit and not yet in the other, but neither limit is ever exceeded.
type fairShareLimiter struct {
	maxInFlight, maxBytes int64
	inFlight, bytes       atomic.Int64

	// accounts holds each account's requests and bytes. An account without requests has no entry.
	accounts *sharded.Shards[map[string]accountUsage]
}

// accountUsage counts one account's requests in flight and the bytes of their bodies.
type accountUsage struct{ inFlight, bytes int64 }

func newFairShareLimiter(maxInFlight, maxBytes int64) *fairShareLimiter {
	return &fairShareLimiter{
		maxInFlight: maxInFlight, maxBytes: maxBytes,
		accounts: sharded.New(func() map[string]accountUsage { return map[string]accountUsage{} }),
	}
}

// reserveSlot reserves a slot for a request and bytes for its body, or neither if one of them is
// not available. It reports whether it has reserved them.
func (s *fairShareLimiter) reserveSlot(accountID string, bytes int64) bool {
	return s.acquire(accountID, 1, bytes)
}

// reserveMoreBytes reserves further bytes for a request that has a slot, and reports whether they
// were available.
func (s *fairShareLimiter) reserveMoreBytes(accountID string, bytes int64) bool {
	return s.acquire(accountID, 0, bytes)
}

func (s *fairShareLimiter) acquire(accountID string, requests, bytes int64) bool {
	inFlight, total := s.inFlight.Add(requests), s.bytes.Add(bytes)
	if inFlight <= s.maxInFlight && total <= s.maxBytes {
		shard := s.accounts.ShardFor(accountID)
		shard.Lock()
		held := shard.State[accountID]
		held.inFlight, held.bytes = held.inFlight+requests, held.bytes+bytes
		fits := held.inFlight == 1 ||
			(requests == 0 || held.inFlight <= s.maxInFlight-inFlight+requests) &&
				(bytes == 0 || held.bytes <= s.maxBytes-total+bytes)
		if fits {
			shard.State[accountID] = held
		}
		shard.Unlock()
		if fits {
			return true
		}
	}
	s.inFlight.Add(-requests)
	s.bytes.Add(-bytes)
	return false
}

// release frees the slot of a request and the bytes that were reserved for its body.
func (s *fairShareLimiter) release(accountID string, bytes int64) {
	shard := s.accounts.ShardFor(accountID)
	shard.Lock()
	held := shard.State[accountID]
	held.inFlight, held.bytes = held.inFlight-1, held.bytes-bytes
	if held.inFlight == 0 {
		delete(shard.State, accountID)
	} else {
		shard.State[accountID] = held
	}
	shard.Unlock()
	s.inFlight.Add(-1)
	s.bytes.Add(-bytes)
}
