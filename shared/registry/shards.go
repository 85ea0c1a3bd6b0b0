package registry

import (
	"hash/maphash"
	"iter"
	"slices"
	"sync/atomic"
)

const shardCount = 4096

// keyedPointer is a pointer to a value that contains its own key.
type keyedPointer interface {
	comparable
	key() string
}

// shardedMap is a hash table for one writer and many readers. Readers take no lock, so a change
// delays no request. A change copies one shard, whose size is 8 KB if the table has a million
// values.
//
// The table takes 30 to 43 bytes per value, depending on how full the shards are, because it does
// not store the keys. A sync.Map, whose readers take no lock either, takes 110 bytes. A map takes
// 33 to 56 bytes, but needs a lock that all requests share, or a copy of everything for a change.
type shardedMap[V keyedPointer] struct {
	seed maphash.Seed
	// published is set once the table is complete. Until then, get finds nothing, and the writer
	// may change shards in place.
	published atomic.Bool
	shards    [shardCount]atomic.Pointer[shard[V]]
}

// shard is one part of the table. It uses open addressing with linear probing, and always has a
// free slot.
type shard[V keyedPointer] struct {
	slots     []slot[V] // the length is a power of two
	usedSlots int
}

// slot is one slot of a shard. It is free if its value is nil.
type slot[V keyedPointer] struct {
	hash  uint64
	value V
}

func (s *shardedMap[V]) init() {
	s.seed = maphash.MakeSeed()
	empty := &shard[V]{slots: make([]slot[V], 1)}
	for i := range s.shards {
		s.shards[i].Store(empty)
	}
}

func (s *shardedMap[V]) shardOf(
	hash uint64,
) *atomic.Pointer[shard[V]] {
	return &s.shards[hash%shardCount]
}

func (s *shardedMap[V]) get(key string) (v V, found bool) {
	if !s.published.Load() {
		return v, false
	}
	return s.getAsWriter(key)
}

// getAsWriter returns the value that the writer last set for key, and whether there is one. It
// finds the value even before the table is published, when get finds nothing.
func (s *shardedMap[V]) getAsWriter(key string) (V, bool) {
	hash := maphash.String(s.seed, key)
	at := s.shardOf(hash).Load().find(hash, key)
	return at.value, at.value != *new(V)
}

func (s *shardedMap[V]) set(v V) {
	key := v.key()
	hash := maphash.String(s.seed, key)
	where := s.shardOf(hash)
	in := where.Load()
	isNew := in.find(hash, key).value == *new(V)
	switch {
	case isNew && 4*(in.usedSlots+1) > 3*len(in.slots):
		in = in.copyWithout(*new(V), max(8, 2*len(in.slots)))
	case s.published.Load():
		in = &shard[V]{slices.Clone(in.slots), in.usedSlots}
	}
	*in.find(hash, key) = slot[V]{hash, v}
	if isNew {
		in.usedSlots++
	}
	where.Store(in)
}

func (s *shardedMap[V]) remove(key string) {
	hash := maphash.String(s.seed, key)
	where := s.shardOf(hash)
	in := where.Load()
	if at := in.find(hash, key); at.value != *new(V) {
		where.Store(in.copyWithout(at.value, len(in.slots)))
	}
}

// values iterates over the values, in no particular order, whether or not the table is published.
func (s *shardedMap[V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for i := range s.shards {
			for _, at := range s.shards[i].Load().slots {
				if at.value != *new(V) && !yield(at.value) {
					return
				}
			}
		}
	}
}

func (s *shardedMap[V]) publish() { s.published.Store(true) }

func (s *shardedMap[V]) len() int {
	n := 0
	if !s.published.Load() {
		return n
	}
	for i := range s.shards {
		n += s.shards[i].Load().usedSlots
	}
	return n
}

// find returns the slot that holds key, or the free slot where key belongs.
func (s *shard[V]) find(hash uint64, key string) *slot[V] {
	mask := uint64(len(s.slots)) - 1
	for i := hash / shardCount; ; i++ {
		at := &s.slots[i&mask]
		if at.value == *new(V) || at.hash == hash && at.value.key() == key {
			return at
		}
	}
}

// copyWithout returns a copy with the given number of slots that does not contain v.
func (s *shard[V]) copyWithout(v V, slots int) *shard[V] {
	other := &shard[V]{slots: make([]slot[V], slots)}
	for _, old := range s.slots {
		if old.value != *new(V) && old.value != v {
			*other.find(old.hash, old.value.key()) = old
			other.usedSlots++
		}
	}
	return other
}
