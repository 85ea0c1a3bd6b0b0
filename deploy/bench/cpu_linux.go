package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the CPU time of a process, to the nanosecond: /proc counts in hundredths of a second, too coarse for a burst. The
// clock's number is that of clock_getcpuclockid(3).
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &used); err != nil { //nolint:gosec // a process's number is small
		return 0, err
	}
	return time.Duration(used.Nano()), nil
}
