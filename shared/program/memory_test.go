package program

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGarbageIsBoundedByWhatIsInUse(t *testing.T) {
	for live, want := range map[uint64]int{
		0:         1600,
		1 << 20:   1600,
		8 << 20:   800,
		20 << 20:  400,
		48 << 20:  400,
		96 << 20:  200,
		384 << 20: 50,
		8 << 30:   30,
	} {
		if got := gcPercentFor(live); got != want {
			t.Errorf("%d MB in use: %d %%, want %d %%", live>>20, got, want)
		}
	}
}

// The GC percentage is adjusted after each collection: it falls when the live heap grows, and rises
// again when the live heap shrinks.
func TestThePercentageFollowsTheHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	keepAdjustingGCPercent()
	await := func(what string, is func(percent int) bool) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			runtime.GC()
			percent := debug.SetGCPercent(100)
			debug.SetGCPercent(percent)
			if is(percent) {
				return
			}
			select {
			case <-deadline:
				t.Fatalf("%s: it is %d %%", what, percent)
			case <-tick.C:
			}
		}
	}
	large := make([]byte, 192<<20)
	await("192 MB in use", func(percent int) bool { return percent > 80 && percent < 110 })
	runtime.KeepAlive(large) // keeps the data live until here
	await("little in use", func(percent int) bool { return percent > gcPercent })
}
