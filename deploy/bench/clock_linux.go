package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// monotonicNanos returns the time of the system's monotonic clock in nanoseconds. Execution traces
// can be converted to the same clock.
func monotonicNanos() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// schedulingDelay returns how long the threads of a process were ready to run but had no CPU, as a
// sum over all threads.
func schedulingDelay(pid int) (sum time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread) //nolint:gosec // of a process of this benchmark
		if err != nil {
			continue // the thread has ended
		}
		var ran, delayed int64
		if _, err := fmt.Sscan(string(text), &ran, &delayed); err != nil {
			return 0, fmt.Errorf("%s: %w", thread, err)
		}
		sum += time.Duration(delayed)
	}
	return sum, nil
}
