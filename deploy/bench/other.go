//go:build !linux

package bench

import (
	"errors"
	"time"
)

var errNeedsLinux = errors.New(
	"the benchmark needs Linux: epoll, and the clocks of other processes")

func cpuTime(int) (time.Duration, error) { return 0, errNeedsLinux }

func residentMB(int) (int, error) { return 0, errNeedsLinux }

func schedulingDelay(int) (time.Duration, error) { return 0, errNeedsLinux }

func monotonicNanos() int64 { return 0 }

type cpuLimit struct{}

func limitCPU(int, float64) (cpuLimit, error) { return cpuLimit{}, errNeedsLinux }
func (cpuLimit) remove() error                { return nil }

type generator struct {
	allow429     bool
	allow503     bool
	onAnswer     func(number uint64, at time.Time)
	onConnAnswer func(c *httpConn, at time.Time)
}

type httpConn struct {
	fd            int
	dueAt, sentAt time.Time
}

func newGenerator(target, int, int, int, uint64, *uint64) (*generator, error) {
	return nil, errNeedsLinux
}

func (*generator) run(time.Duration, float64) (burstResult, error) {
	return burstResult{}, errNeedsLinux
}
func (*generator) close() {}
