package program

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// gcPercent, minHeapGrowthBytes and largeHeapGrowthBytes determine how much garbage may accumulate
// before a collection. With little live data, the heap may grow by gcPercent of that data, but at
// least by minHeapGrowthBytes. This suits a service whose requests use memory only briefly: with
// Go's default, the ingress would collect dozens of times a second under load, and each collection
// also empties the buffer pools. With much live data, such as a million workflows, collections are
// rare anyway, so the heap may grow only by largeHeapGrowthBytes, or by minGCPercent if that is
// more. GOGC overrides all of them.
const (
	gcPercent            = 400
	minGCPercent         = 30
	minHeapGrowthBytes   = 64 << 20
	largeHeapGrowthBytes = 192 << 20
	// minLiveHeapBytes is the minimum size in bytes of the live heap that the Go runtime assumes.
	// At a GC percentage of 100 the runtime never collects below 4 MB.
	minLiveHeapBytes = 4 << 20
)

// gcPercentFor returns the GC percentage, as in GOGC, for a live heap of the given size in bytes.
func gcPercentFor(live uint64) int {
	live = max(live, minLiveHeapBytes)
	//nolint:gosec // 1,600 at most
	return int(max(minGCPercent, minHeapGrowthBytes*100/live,
		min(gcPercent, largeHeapGrowthBytes*100/live)))
}

// keepAdjustingGCPercent adjusts the GC percentage after each collection, according to the size of
// the live heap. Go does not notify a program of a collection, but it runs the finalizer of an
// object that a collection finds unreachable.
func keepAdjustingGCPercent() {
	type witness struct{ percent int }
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var collected func(*witness)
	collected = func(w *witness) {
		metrics.Read(live)
		// Setting the percentage stops the world for a moment, so skip small changes.
		if percent := gcPercentFor(live[0].Value.Uint64()); percent*10 < w.percent*9 ||
			percent*9 > w.percent*10 {
			debug.SetGCPercent(percent)
			w.percent = percent
		}
		runtime.SetFinalizer(w, collected)
	}
	first := gcPercentFor(0)
	debug.SetGCPercent(first)
	runtime.SetFinalizer(&witness{first}, collected)
}

// tuneMemory configures the garbage collector for the available memory: in a container, nine tenths
// of its limit become the soft limit of the Go runtime's memory. GOGC and GOMEMLIMIT override it.
func tuneMemory() {
	if _, set := os.LookupEnv("GOGC"); !set {
		keepAdjustingGCPercent()
	}
	if _, set := os.LookupEnv("GOMEMLIMIT"); set {
		return
	}
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return // not in a container, or not on Linux
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
