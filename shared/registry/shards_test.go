package registry

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// A shardedMap behaves like a map for any sequence of sets and removals: before it is published,
// for its writer, and afterwards for everyone. The test uses enough keys for shards to grow,
// collide and become empty again.
func TestShardsAreAMap(t *testing.T) {
	t.Parallel()
	var table shardedMap[*CompiledWorkflow]
	table.init()
	want := map[string]*CompiledWorkflow{}
	random := rand.New(rand.NewPCG(1, 2))
	change := func(keys int) {
		key := "wf-" + strconv.Itoa(random.IntN(keys))
		if random.IntN(3) == 0 {
			table.remove(key)
			delete(want, key)
			return
		}
		w := &CompiledWorkflow{ID: key}
		table.set(w)
		want[key] = w
	}
	const keys = 20 * shardCount
	check := func(get func(string) (*CompiledWorkflow, bool)) {
		t.Helper()
		for i := range keys {
			key := "wf-" + strconv.Itoa(i)
			if w, ok := get(key); w != want[key] || ok != (w != nil) {
				t.Fatalf("%s: %v, %v; want %v", key, w, ok, want[key])
			}
		}
	}
	for range 3 * keys {
		change(keys)
	}
	check(table.getAsWriter)
	if _, ok := table.get("wf-1"); ok || table.len() != 0 {
		t.Error("something is found before the table is published")
	}
	table.publish()
	for _, among := range []int{keys, 100, keys} {
		for range keys {
			change(among)
		}
		check(table.get)
		if table.len() != len(want) {
			t.Errorf("%d of %d", table.len(), len(want))
		}
	}
}
