package sharded_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/ingress/internal/sharded"
)

// All changes of an ID's state are made in the same shard, and ForEach finds each ID once. The IDs
// are spread over at least half of the shards. The race detector reports a shard that is used
// without its lock.
func TestShards(t *testing.T) {
	t.Parallel()
	s := sharded.New(func() map[string]int { return map[string]int{} })
	const ids, each = 1000, 8
	var changes sync.WaitGroup
	for range each {
		changes.Go(func() {
			for n := range ids {
				id := strconv.Itoa(n)
				shard := s.ShardFor(id)
				shard.Lock()
				shard.State[id]++
				shard.Unlock()
			}
		})
	}
	changes.Wait()
	found, used := map[string]int{}, 0
	s.ForEach(func(state *map[string]int) {
		if len(*state) > 0 {
			used++
		}
		for id, n := range *state {
			found[id] += n
		}
	})
	for n := range ids {
		if got := found[strconv.Itoa(n)]; got != each {
			t.Errorf("%d changes of %d, want %d", got, n, each)
		}
	}
	if len(found) != ids || used < 32 {
		t.Errorf("%d IDs in %d shards", len(found), used)
	}
}
