// Package storage shares the space of a stream among accounts. Once the stream is nine tenths full,
// messages are refused for the accounts that hold the most, while an account that holds less than
// an equal share can still store messages.
//
// # The rule
//
// The equal share is the stream's size divided by one more than the number of accounts that hold
// something. The extra share is for the next account that stores a message. The divisor is never
// more than the number of all accounts. While less than nine tenths of the stream is used, nothing
// is refused. From then on, an account's messages are refused if it holds its share or more. In the
// last twentieth, the share shrinks in proportion to the free space, so that accounts below their
// share cannot use up the room of accounts that hold even less. In an installation with one
// account, only the stream itself refuses messages.
//
// # Where the figures come from
//
// NATS reports how much a stream holds, but not for which account. Every ingress therefore counts
// the space that it uses for each account. It announces its counts to the other ingresses ten times
// a second, and whenever it has used another 256th of the stream. The counts are accurate for
// messages that were stored since the ingress started, and messages expire at the latest after the
// stream's maximum age. They lack messages that were stored before the start, and messages whose
// announcement was lost. An executor supplies the missing figures: once the stream is eight tenths
// full, and until it is less than seven tenths full, one executor reads the headers of all
// messages, adds up the sizes of the messages of each account, and sends the sums every second. The
// sums replace the ingress's counts, except for the most recent ones.
//
// The alternatives are worse. Sums over the execution records in the database would include only
// the sizes of bodies, and would be missing while the database is down. Counts stored by ingresses
// would lose whatever a killed process has not written. Neither would notice that an operator has
// purged messages.
//
// # How exact they are
//
// When they arrive, the sums are one or two seconds old. The ingress therefore adds to them
// everything that it has counted since the previous sums arrived. So up to two seconds of an
// account's messages count twice, but none is missing unless the executor lags by more than a
// second. Other ingresses announce their usage after a tenth of a second, or after a 256th of the
// stream. Until then, each ingress may accept messages of an account that has reached its share.
// Expired messages leave the sums in steps of one 256th of the stream, and an ingress's counts in
// steps of an eighth of the stream's maximum age. Messages that an executor publishes itself
// (reruns, replays, operator events) are only in the sums, and are never refused.
//
// While no executor runs, the last sums remain in use, and expired messages keep counting. An
// ingress that starts at such a time, or before the first sums arrive, does not know how much each
// account holds. If more than a tenth of the content is unknown, each account may store no more
// than a fraction of the free space until sums arrive.
//
// # What it costs
//
// A stream without a size limit costs one atomic load per message. With a limit, a message costs
// one map lookup, whether or not the stream is full: see BenchmarkTake. Nothing here waits for
// another process.
package storage

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/sharded"
)

// Thresholds, in twentieths of the stream's size.
const (
	// From nearFullThreshold on, executors may send sums, and the ingress keeps separate counts of
	// the bytes that the sums do not include yet. Below it, the ingress discards the sums and
	// these counts.
	nearFullThreshold       = 14
	equalShareThreshold     = 18 // from here on, accounts that hold their equal share are refused
	shrinkingShareThreshold = 19 // from here on, the equal share shrinks
	thresholdDenominator    = 20
	unknownContentDivisor   = 10 // at most 1/unknownContentDivisor of the content may be unknown
)

// announceThresholdDivisor determines when an ingress announces its usage immediately: once the
// unannounced usage exceeds 1/announceThresholdDivisor of the stream's maximum size.
const announceThresholdDivisor = 256

// numCountGenerations is the number of generations into which an ingress divides its counts by age.
// A new generation starts after each 1/numCountGenerations of the stream's maximum age, and
// replaces the oldest one.
const numCountGenerations = 8

// StreamSpace tracks the space of one stream, and shares it among accounts. It is safe for
// concurrent use.
type StreamSpace struct {
	countAccounts func() int // returns the number of accounts in the installation

	limit                atomic.Int64 // limit in bytes; 0 means none, so nothing is counted
	used                 atomic.Int64 // content in bytes
	numAccountsWithUsage atomic.Int64 // number of accounts that hold something
	counted              atomic.Int64 // sum of all counts, in bytes
	// unannounced is the approximate number of bytes that have not been announced to the other
	// ingresses yet.
	unannounced atomic.Int64
	// nearFull means that the stream has reached nearFullThreshold, so executors may send sums.
	nearFull         atomic.Bool
	usesExecutorSums atomic.Bool // an executor's sums are used instead of this ingress's counts

	// RefreshUsage receives a value when a message arrives while the stream is nine tenths full.
	// The receiver should then read the stream's usage and call SetUsage.
	RefreshUsage chan struct{}
	// Announce receives a value once this ingress has used so much space that it should announce
	// the usage to the other ingresses immediately.
	Announce chan struct{}

	shards *sharded.Shards[shard]

	mu           sync.Mutex // held by SetUsage and SetAccountSums
	lastRotation time.Time  // when the last generation of counts started
}

// shard is one shard of a StreamSpace: the usage of the accounts whose IDs belong to it.
type shard struct {
	accounts   map[string]*accountUsage
	generation int // index of the current generation
}

// accountUsage is the space, in bytes, that the messages of one account occupy in the stream.
type accountUsage struct {
	countedByGeneration [numCountGenerations]int64 // bytes counted by this process, by generation
	executorSum         int64                      // bytes in the last sums from an executor
	countedBetweenSums  int64                      // bytes counted between the last two sums
	// countedSinceSums is the number of bytes counted since the last sums or, if there are none,
	// since nearFull was set.
	countedSinceSums int64
	// unannounced is how many of the bytes counted by this process have not been announced to the
	// other ingresses yet.
	unannounced int64
}

func (h *accountUsage) countedBytes() (n int64) {
	for _, c := range h.countedByGeneration {
		n += c
	}
	return n
}

// New returns the space of a stream whose size is not known yet. accountCount returns the number of
// accounts in the installation.
func New(accountCount func() int) *StreamSpace {
	return &StreamSpace{
		countAccounts: accountCount,
		RefreshUsage:  make(chan struct{}, 1),
		Announce:      make(chan struct{}, 1),
		shards: sharded.New(func() shard {
			return shard{accounts: map[string]*accountUsage{}}
		}),
	}
}

// Reserve reserves space for a message of an account, and reports whether the account may store the
// message now. If the message is not stored after Reserve has returned true, the caller must call
// Release.
func (s *StreamSpace) Reserve(accountID string, bytes int64) bool {
	limit := s.limit.Load()
	if limit == 0 {
		return true
	}
	free := limit - s.used.Load()
	locked := s.shards.ShardFor(accountID)
	locked.Lock()
	defer locked.Unlock()
	sh := &locked.State
	h := s.ensureUsage(sh, accountID)
	if free <= limit/thresholdDenominator*(thresholdDenominator-equalShareThreshold) {
		trySignal(s.RefreshUsage)
		if !s.mayStoreMore(h, limit, free) {
			return false
		}
	}
	s.addUsageLocked(sh, h, bytes, bytes)
	return true
}

// IsLimited reports whether the stream has a size limit. Without one, Reserve always returns true.
func (s *StreamSpace) IsLimited() bool { return s.limit.Load() != 0 }

// Release releases the space that Reserve has reserved for a message that was not stored.
func (s *StreamSpace) Release(accountID string, bytes int64) {
	s.changeUsage(accountID, -bytes, -bytes)
}

// AddRemoteUsage counts bytes that another ingress has reserved, or released if bytes is negative.
func (s *StreamSpace) AddRemoteUsage(
	accountID string,
	bytes int64,
) {
	s.changeUsage(accountID, bytes, 0)
}

// changeUsage adds bytes to the usage of an account. bytes is negative if space was released. The
// parameter unannounced equals bytes if this ingress must announce the change to the others, and is
// 0 if another ingress has announced it.
func (s *StreamSpace) changeUsage(accountID string, bytes, unannounced int64) {
	if s.limit.Load() == 0 {
		return
	}
	locked := s.shards.ShardFor(accountID)
	locked.Lock()
	defer locked.Unlock()
	s.addUsageLocked(&locked.State, s.ensureUsage(&locked.State, accountID), bytes, unannounced)
}

// DrainUnannounced returns, by account ID, the bytes that this ingress has reserved since the last
// call minus the bytes that it has released. Accounts with no change are omitted.
func (s *StreamSpace) DrainUnannounced() map[string]int64 {
	taken := map[string]int64{}
	if s.limit.Load() == 0 {
		return taken
	}
	s.unannounced.Store(0)
	s.shards.ForEach(func(sh *shard) {
		for id, h := range sh.accounts {
			if h.unannounced != 0 {
				taken[id], h.unannounced = h.unannounced, 0
			}
		}
	})
	return taken
}

// mayStoreMore reports whether an account may store more messages in a nearly full stream. limit is
// the stream's maximum size in bytes, and free is the unused part of it. The caller must hold the
// shard's lock.
func (s *StreamSpace) mayStoreMore(h *accountUsage, limit, free int64) bool {
	accounts := int64(s.countAccounts())
	if accounts <= 1 {
		return true
	}
	holders := min(s.numAccountsWithUsage.Load()+1, accounts)
	share := limit / holders
	scarce := limit / thresholdDenominator * (thresholdDenominator - shrinkingShareThreshold)
	if free < scarce {
		share = int64(float64(share) * float64(max(free, 0)) / float64(scarce))
	}
	if s.usesExecutorSums.Load() {
		return h.executorSum+h.countedBetweenSums+h.countedSinceSums < share
	}
	if used := limit - free; used-s.counted.Load() > used/unknownContentDivisor {
		share = min(share, free/(2*holders))
	}
	return h.countedBytes() < share
}

// addUsageLocked adds bytes, which may be negative, to the usage of an account. unannounced has the
// same meaning as for changeUsage. The caller must hold the shard's lock.
func (s *StreamSpace) addUsageLocked(sh *shard, h *accountUsage, bytes, unannounced int64) {
	h.countedByGeneration[sh.generation] += bytes
	if s.nearFull.Load() {
		h.countedSinceSums += bytes
	}
	h.unannounced += unannounced
	s.used.Add(bytes)
	s.counted.Add(bytes)
	if unannounced > 0 &&
		s.unannounced.Add(unannounced) >= s.limit.Load()/announceThresholdDivisor {
		trySignal(s.Announce)
	}
}

func trySignal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// SetUsage sets the figures that NATS reports for the stream: its size limit (0 means none), the
// number of bytes that it holds, and the maximum age of its messages.
func (s *StreamSpace) SetUsage(limit, used int64, maxAge time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit <= 0 {
		s.limit.Store(0)
		s.nearFull.Store(false)
		s.usesExecutorSums.Store(false)
		s.shards.ForEach(func(sh *shard) {
			for _, h := range sh.accounts {
				s.counted.Add(-h.countedBytes())
			}
			s.numAccountsWithUsage.Add(-int64(len(sh.accounts)))
			clear(sh.accounts)
		})
		return
	}
	s.used.Store(used)
	s.limit.Store(limit)
	near := used >= limit/thresholdDenominator*nearFullThreshold
	if s.nearFull.Swap(near) && !near {
		s.usesExecutorSums.Store(false)
		s.shards.ForEach(func(sh *shard) {
			for _, h := range sh.accounts {
				h.executorSum, h.countedBetweenSums, h.countedSinceSums = 0, 0, 0
			}
			s.dropIdleAccounts(sh)
		})
	}
	if s.lastRotation.IsZero() {
		s.lastRotation = now
	}
	if maxAge > 0 && now.Sub(s.lastRotation) >= maxAge/numCountGenerations {
		s.lastRotation = now
		s.rotateGenerations()
	}
}

// rotateGenerations starts a new generation of counts, which replaces the oldest one.
func (s *StreamSpace) rotateGenerations() {
	s.shards.ForEach(func(sh *shard) {
		sh.generation = (sh.generation + 1) % numCountGenerations
		for _, h := range sh.accounts {
			s.counted.Add(-h.countedByGeneration[sh.generation])
			h.countedByGeneration[sh.generation] = 0
		}
		s.dropIdleAccounts(sh)
	})
}

// SetAccountSums sets the bytes that each account holds, as summed by an executor.
func (s *StreamSpace) SetAccountSums(sums map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit.Load() == 0 {
		return
	}
	for id := range sums {
		locked := s.shards.ShardFor(id)
		locked.Lock()
		s.ensureUsage(&locked.State, id)
		locked.Unlock()
	}
	s.shards.ForEach(func(sh *shard) {
		for id, h := range sh.accounts {
			h.executorSum = sums[id]
			h.countedBetweenSums, h.countedSinceSums = h.countedSinceSums, 0
		}
		s.dropIdleAccounts(sh)
	})
	s.usesExecutorSums.Store(true)
}

// ensureUsage returns the usage of an account, and creates an entry if there is none. The caller
// must hold the shard's lock.
func (s *StreamSpace) ensureUsage(sh *shard, accountID string) *accountUsage {
	h := sh.accounts[accountID]
	if h == nil {
		h = &accountUsage{}
		sh.accounts[accountID] = h
		s.numAccountsWithUsage.Add(1)
	}
	return h
}

// dropIdleAccounts removes the accounts that hold nothing. The caller must hold the shard's
// lock.
func (s *StreamSpace) dropIdleAccounts(sh *shard) {
	for id, h := range sh.accounts {
		if *h == (accountUsage{}) {
			delete(sh.accounts, id)
			s.numAccountsWithUsage.Add(-1)
		}
	}
}
