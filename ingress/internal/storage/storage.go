// Package storage shares the space of a stream among accounts: once the stream is nine tenths
// full, the accounts that hold the most are refused first, and one that holds less than an equal
// share finds room.
//
// # The rule
//
// The equal share is the stream's size divided by the number of accounts that hold something, and
// one more, for an account that comes; but not by more than there are accounts. While less than
// nine tenths are used, nothing is refused. From then on an account is refused if it holds its
// share or more. In the last twentieth the share becomes smaller, in proportion to what is free:
// so accounts below their share cannot use up the room of accounts that hold even less. In an
// installation with one account, only the stream itself refuses.
//
// # Where the figures come from
//
// NATS knows how much a stream holds, but not for whom. Every ingress counts what it takes for
// each account, and tells the others ten times a second, and each time that it has taken a 256th
// of the stream. That is enough for as long as the ingress has run, up to the stream's age, after
// which messages expire. What an ingress cannot know, because it was stored before its start or
// because an announcement was lost, comes from an executor: while the stream is eight tenths full
// or more, one executor reads the headers of all its messages, adds up their sizes by account, and
// sends the sums every second. They replace what the ingress has counted, except for the latest.
//
// The alternatives are worse. Sums over the records in the database know the size of the body
// only, and none while the database is away. Counts that ingresses store lose what a killed
// process has not written. Neither notices messages that an operator has purged.
//
// # How exact they are
//
// The sums are one or two seconds old. What this ingress has counted since the last but one of
// them is added, so up to two seconds of an account's messages count twice, and none is missing,
// unless the executor lags by more than a second. What another ingress takes is known after a
// tenth of a second, or a 256th of the stream: until then, each of them may accept messages of an
// account that has reached its share. Messages expire in the sums in steps of one 256th of the
// stream, and in the own counts in steps of an eighth of the stream's age. What an executor
// publishes itself (reruns, replays, operator events) is in the sums only, and is not refused.
//
// While no executor runs, the last sums stay in force, and expired messages count on. An ingress
// that starts then, or before the first sums arrive, does not know who holds what. If more than a
// tenth of the content is unknown, each account may store no more than a part of what is free
// until sums arrive.
//
// # What it costs
//
// A stream without a size limit costs one atomic load for each message. With one, a message costs
// one lookup in a map, whether the stream is full or not: see BenchmarkTake. Nothing here waits
// for another process.
package storage

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// The parts of the stream's size, in twentieths, at which something changes.
const (
	// From nearFrom on, the ingress counts the bytes that the sums do not contain yet. Below it,
	// sums are forgotten.
	nearFrom    = 14
	sharedFrom  = 18 // accounts with more than their share are refused from here on
	scarceFrom  = 19 // the share becomes smaller from here on
	twentieths  = 20
	knownEnough = 10 // a tenth of the content may be unknown
)

// announceAfter is the share of the stream's maximum size after whose use the other ingresses are
// informed at once.
const announceAfter = 256

// ages is the number of steps in which own counts expire.
const ages = 8

// Space is the space of one stream. It is safe for concurrent use.
type Space struct {
	accounts func() int // number of accounts of the installation

	limit   atomic.Int64 // size limit in bytes; 0 means none, and that nothing is counted
	used    atomic.Int64 // content in bytes
	holders atomic.Int64 // number of accounts that hold something
	counted atomic.Int64 // sum of what is counted here, in bytes
	// untold is the approximate number of bytes that the other ingresses do not know of yet.
	untold atomic.Int64
	near   atomic.Bool // the stream is so full that executors may send sums
	summed atomic.Bool // an executor's sums are in force

	// Crossed receives a value with each message while the stream is nine tenths full: then a new
	// SetUsage is worthwhile.
	Crossed chan struct{}
	// Announce receives a value when this ingress has taken so much that the others should be told
	// at once.
	Announce chan struct{}

	seed   maphash.Seed
	shards [64]shard

	mu     sync.Mutex // held by SetUsage and SetSums
	turned time.Time  // when the age of the counts last changed
}

type shard struct {
	mu       sync.Mutex
	accounts map[string]*holding
	age      int // index of the counts that are being made
}

// holding is the space that the messages of one account take in the stream, in bytes.
type holding struct {
	counts   [ages]int64 // bytes that this process has counted, by age
	sum      int64       // bytes of the account in an executor's last sum
	previous int64       // counted between the last two sums
	latest   int64       // counted since the last sums, or since near was set
	untold   int64       // the part of counts that was not announced to the other ingresses yet
}

func (h *holding) counted() (n int64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// New returns the space of a stream whose size is not known yet. accounts returns the number of
// accounts of the installation.
func New(accounts func() int) *Space {
	s := &Space{
		accounts: accounts,
		Crossed:  make(chan struct{}, 1),
		Announce: make(chan struct{}, 1),
		seed:     maphash.MakeSeed(),
	}
	for i := range s.shards {
		s.shards[i].accounts = map[string]*holding{}
	}
	return s
}

// Take takes space for a message of an account. It returns false if the account must not have it.
// Return gives it back if the message was not stored.
func (s *Space) Take(accountID string, bytes int64) bool {
	limit := s.limit.Load()
	if limit == 0 {
		return true
	}
	free := limit - s.used.Load()
	sh := s.shard(accountID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := s.holding(sh, accountID)
	if free <= limit/twentieths*(twentieths-sharedFrom) {
		signal(s.Crossed)
		if !s.fits(h, limit, free) {
			return false
		}
	}
	s.count(sh, h, bytes, bytes)
	return true
}

// IsLimited reports whether the stream has a size limit. Without one, Take always returns true.
func (s *Space) IsLimited() bool { return s.limit.Load() != 0 }

// Return gives back the space of a message that was not stored.
func (s *Space) Return(accountID string, bytes int64) { s.change(accountID, -bytes, -bytes) }

// Receive counts what another ingress has taken, or returned if it is negative.
func (s *Space) Receive(accountID string, bytes int64) { s.change(accountID, bytes, 0) }

// change counts space that was taken or returned. untold is the part of it that the other
// ingresses do not know.
func (s *Space) change(accountID string, bytes, untold int64) {
	if s.limit.Load() == 0 {
		return
	}
	sh := s.shard(accountID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.count(sh, s.holding(sh, accountID), bytes, untold)
}

// TakeUnsent returns what this ingress has taken for each account, and not returned, since the last
// call.
func (s *Space) TakeUnsent() map[string]int64 {
	taken := map[string]int64{}
	if s.limit.Load() == 0 {
		return taken
	}
	s.untold.Store(0)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for id, h := range sh.accounts {
			if h.untold != 0 {
				taken[id], h.untold = h.untold, 0
			}
		}
		sh.mu.Unlock()
	}
	return taken
}

// fits reports whether an account may store more. Its shard is locked.
func (s *Space) fits(h *holding, limit, free int64) bool {
	accounts := int64(s.accounts())
	if accounts <= 1 {
		return true
	}
	holders := min(s.holders.Load()+1, accounts)
	share := limit / holders
	if scarce := limit / twentieths * (twentieths - scarceFrom); free < scarce {
		share = int64(float64(share) * float64(max(free, 0)) / float64(scarce))
	}
	if s.summed.Load() {
		return h.sum+h.previous+h.latest < share
	}
	if used := limit - free; used-s.counted.Load() > used/knownEnough {
		share = min(share, free/(2*holders))
	}
	return h.counted() < share
}

// count counts bytes of an account whose shard is locked.
func (s *Space) count(sh *shard, h *holding, bytes, untold int64) {
	h.counts[sh.age] += bytes
	if s.near.Load() {
		h.latest += bytes
	}
	h.untold += untold
	s.used.Add(bytes)
	s.counted.Add(bytes)
	if untold > 0 && s.untold.Add(untold) >= s.limit.Load()/announceAfter {
		signal(s.Announce)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Space) shard(accountID string) *shard {
	return &s.shards[maphash.String(s.seed, accountID)%uint64(len(s.shards))]
}

// SetUsage sets what NATS says of the stream: its size limit (0 means none), the bytes that it
// holds, and its age, after which messages expire.
func (s *Space) SetUsage(limit, used int64, maxAge time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit <= 0 {
		s.limit.Store(0)
		s.near.Store(false)
		s.summed.Store(false)
		s.forEach(func(sh *shard) {
			for _, h := range sh.accounts {
				s.counted.Add(-h.counted())
			}
			s.holders.Add(-int64(len(sh.accounts)))
			clear(sh.accounts)
		})
		return
	}
	s.used.Store(used)
	s.limit.Store(limit)
	near := used >= limit/twentieths*nearFrom
	if s.near.Swap(near) && !near {
		s.summed.Store(false)
		s.forEach(func(sh *shard) {
			for _, h := range sh.accounts {
				h.sum, h.previous, h.latest = 0, 0, 0
			}
			s.prune(sh)
		})
	}
	if s.turned.IsZero() {
		s.turned = now
	}
	if maxAge > 0 && now.Sub(s.turned) >= maxAge/ages {
		s.turned = now
		s.rotate()
	}
}

// rotate begins the counts of another age, in place of the oldest ones.
func (s *Space) rotate() {
	s.forEach(func(sh *shard) {
		sh.age = (sh.age + 1) % ages
		for _, h := range sh.accounts {
			s.counted.Add(-h.counts[sh.age])
			h.counts[sh.age] = 0
		}
		s.prune(sh)
	})
}

// SetSums sets what an executor says that each account holds.
func (s *Space) SetSums(sums map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit.Load() == 0 {
		return
	}
	for id := range sums {
		sh := s.shard(id)
		sh.mu.Lock()
		s.holding(sh, id)
		sh.mu.Unlock()
	}
	s.forEach(func(sh *shard) {
		for id, h := range sh.accounts {
			h.sum, h.previous, h.latest = sums[id], h.latest, 0
		}
		s.prune(sh)
	})
	s.summed.Store(true)
}

// holding returns the holding of an account. The caller holds the lock of its shard.
func (s *Space) holding(sh *shard, accountID string) *holding {
	h := sh.accounts[accountID]
	if h == nil {
		h = &holding{}
		sh.accounts[accountID] = h
		s.holders.Add(1)
	}
	return h
}

// prune removes the accounts of a shard, which is locked, that hold nothing.
func (s *Space) prune(sh *shard) {
	for id, h := range sh.accounts {
		if *h == (holding{}) {
			delete(sh.accounts, id)
			s.holders.Add(-1)
		}
	}
}

// forEach calls f for each shard, which is locked meanwhile.
func (s *Space) forEach(f func(*shard)) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		f(sh)
		sh.mu.Unlock()
	}
}
