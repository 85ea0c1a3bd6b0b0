package program

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// gcPercent, leastRoom and heapRoom bound the garbage. gcPercent lets the heap grow to five times what is in use before it is
// collected, and leastRoom lets it grow by that much in any case: what is in use is small, and a request's memory is
// short-lived. With Go's default, the ingress collects dozens of times a second under load, and each collection empties the
// pools of buffers, too. Where much is in use, as with a million workflows, collections are seldom anyway: the heap then grows
// by heapRoom, and by leastPercent at least. GOGC overrides all of them.
const (
	gcPercent    = 400
	leastPercent = 30
	leastRoom    = 64 << 20
	heapRoom     = 192 << 20
	// leastLive is what Go takes to be in use where less is: at 100 percent, it never collects below 4 MB.
	leastLive = 4 << 20
)

// percentFor is how far the heap may grow beyond what is in use, in percent of that.
func percentFor(live uint64) int {
	live = max(live, leastLive)
	return int(max(leastPercent, leastRoom*100/live, min(gcPercent, heapRoom*100/live))) //nolint:gosec // 1,600 at most
}

// boundGarbage sets the percentage after each collection by what it left. Go has no event for that, but it runs the
// finalizer of what a collection finds to be unused.
func boundGarbage() {
	type witness struct{ percent int }
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var collected func(*witness)
	collected = func(w *witness) {
		metrics.Read(live)
		// To set it stops the program for a moment.
		if percent := percentFor(live[0].Value.Uint64()); percent*10 < w.percent*9 || percent*9 > w.percent*10 {
			debug.SetGCPercent(percent)
			w.percent = percent
		}
		runtime.SetFinalizer(w, collected)
	}
	first := percentFor(0)
	debug.SetGCPercent(first)
	runtime.SetFinalizer(&witness{first}, collected)
}

// tuneMemory sets the garbage collector by the memory that there is: in a container, the
// heap stays below nine tenths of its limit. GOGC and GOMEMLIMIT override it.
func tuneMemory() {
	if _, set := os.LookupEnv("GOGC"); !set {
		boundGarbage()
	}
	if _, set := os.LookupEnv("GOMEMLIMIT"); set {
		return
	}
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return // no container, or no Linux
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
