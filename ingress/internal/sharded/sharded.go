// Package sharded holds state that every request changes. It divides the state into shards, by the
// ID of an account or a workflow, and each shard has a separate lock. With a single lock, requests
// would wait for each other even if they belong to different accounts. A sync.Map cannot replace
// the shards: it cannot change two related values together, and an entry could be removed as idle
// just before another request uses it.
package sharded

import (
	"hash/maphash"
	"sync"
)

// shardCount is the number of shards. It is several times the number of processors, so that two
// requests rarely need the same shard.
const shardCount = 64

// Shards holds the state of all IDs. It is safe for concurrent use.
type Shards[T any] struct {
	seed   maphash.Seed
	shards [shardCount]Shard[T]
}

// Shard holds the state of the IDs that share a lock. The lock must be held while State is used.
type Shard[T any] struct {
	sync.Mutex
	State T
}

// New returns Shards in which newState provides the initial state of each shard.
func New[T any](newState func() T) *Shards[T] {
	s := &Shards[T]{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].State = newState()
	}
	return s
}

// ShardFor returns the shard of an ID. The caller must lock it before it uses the state.
func (s *Shards[T]) ShardFor(id string) *Shard[T] {
	return &s.shards[maphash.String(s.seed, id)%shardCount]
}

// ForEach calls f with the state of each shard while it holds the shard's lock.
func (s *Shards[T]) ForEach(f func(state *T)) {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.Lock()
		f(&shard.State)
		shard.Unlock()
	}
}
