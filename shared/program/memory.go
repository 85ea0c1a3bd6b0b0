package program

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// gcPercent lets the heap grow to five times what is in use before it is collected. What
// is in use is small, and a request's memory is short-lived: with Go's default, the
// ingress collects dozens of times a second under load. GOGC overrides it.
const gcPercent = 400

// tuneMemory sets the garbage collector by the memory that there is: in a container, the
// heap stays below nine tenths of its limit. GOGC and GOMEMLIMIT override it.
func tuneMemory() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
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
