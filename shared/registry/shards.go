package registry

import (
	"hash/maphash"
	"slices"
	"sync/atomic"
)

const shardCount = 4096

// keyed is a pointer to a value that contains its own key.
type keyed interface {
	comparable
	key() string
}

// shards is a hash table for one writer and many readers, which take no lock. With a million values
// it takes 33 bytes for each, while a map of them takes 57: it stores no keys. A change copies one
// shard, which is 8 KB in a table of that size.
type shards[V keyed] struct {
	seed maphash.Seed
	// whether the table is complete: before that, the writer fills the shards in place, and readers
	// find nothing
	published atomic.Bool
	shard     [shardCount]atomic.Pointer[shard[V]]
}

// shard is a part of the table, with open addressing and linear probing. At least one slot is free.
type shard[V keyed] struct {
	slots []slot[V] // the length is a power of two
	used  int
}

// slot is one place of a shard. It is free if its value is nil.
type slot[V keyed] struct {
	hash  uint64
	value V
}

func (s *shards[V]) init() {
	s.seed = maphash.MakeSeed()
	empty := &shard[V]{slots: make([]slot[V], 1)}
	for i := range s.shard {
		s.shard[i].Store(empty)
	}
}

func (s *shards[V]) of(hash uint64) *atomic.Pointer[shard[V]] { return &s.shard[hash%shardCount] }

func (s *shards[V]) get(key string) (v V, found bool) {
	if !s.published.Load() {
		return v, false
	}
	return s.last(key)
}

// last returns the writer's value, published or not.
func (s *shards[V]) last(key string) (V, bool) {
	hash := maphash.String(s.seed, key)
	at := s.of(hash).Load().find(hash, key)
	return at.value, at.value != *new(V)
}

func (s *shards[V]) set(v V) {
	key := v.key()
	hash := maphash.String(s.seed, key)
	where := s.of(hash)
	in := where.Load()
	isNew := in.find(hash, key).value == *new(V)
	switch {
	case isNew && 4*(in.used+1) > 3*len(in.slots):
		in = in.without(*new(V), max(8, 2*len(in.slots)))
	case s.published.Load():
		in = &shard[V]{slices.Clone(in.slots), in.used}
	}
	*in.find(hash, key) = slot[V]{hash, v}
	if isNew {
		in.used++
	}
	where.Store(in)
}

func (s *shards[V]) remove(key string) {
	hash := maphash.String(s.seed, key)
	where := s.of(hash)
	in := where.Load()
	if at := in.find(hash, key); at.value != *new(V) {
		where.Store(in.without(at.value, len(in.slots)))
	}
}

func (s *shards[V]) publish() { s.published.Store(true) }

func (s *shards[V]) len() int {
	n := 0
	if !s.published.Load() {
		return n
	}
	for i := range s.shard {
		n += s.shard[i].Load().used
	}
	return n
}

// find returns the slot of a key, or the free slot where the key belongs.
func (s *shard[V]) find(hash uint64, key string) *slot[V] {
	mask := uint64(len(s.slots)) - 1
	for i := hash / shardCount; ; i++ {
		at := &s.slots[i&mask]
		if at.value == *new(V) || at.hash == hash && at.value.key() == key {
			return at
		}
	}
}

// without returns a copy that has the given number of slots and lacks one of the values.
func (s *shard[V]) without(v V, slots int) *shard[V] {
	other := &shard[V]{slots: make([]slot[V], slots)}
	for _, old := range s.slots {
		if old.value != *new(V) && old.value != v {
			*other.find(old.hash, old.value.key()) = old
			other.used++
		}
	}
	return other
}
