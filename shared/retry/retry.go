// Package retry repeats requests to NATS, because a cluster does not respond while it elects a
// leader. It also provides the delays between attempts.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// AttemptTimeout limits the wait for one response. A cluster without a leader does not respond at
// all, so the request must be retried.
const AttemptTimeout = 2 * time.Second

// Do calls attempt until it returns nil or ctx ends, at most once every 250 ms, and returns the
// error of the last call. Each call's context ends after AttemptTimeout.
func Do(ctx context.Context, attempt func(context.Context) error) (err error) {
	Until(ctx, 250*time.Millisecond, func() bool {
		asking, cancel := context.WithTimeout(ctx, AttemptTimeout)
		defer cancel()
		err = attempt(asking)
		return err == nil
	})
	return err
}

// Until calls done once per interval until it returns true or ctx ends. The first call happens
// immediately, even if ctx has already ended.
func Until(ctx context.Context, every time.Duration, done func() bool) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Every calls do immediately, and then once per interval until ctx ends.
func Every(ctx context.Context, interval time.Duration, do func()) {
	Until(ctx, interval, func() bool {
		do()
		return false
	})
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// maxBackoff is the longest delay between two attempts, not including the random part.
const maxBackoff = time.Second

// Backoff returns the delay before the given attempt, counted from 0. The first attempt has no
// delay. Then the delay is 10 ms and doubles each time, up to 1 s. A random part of up to half the
// delay is added, so that competing processes do not stay in step.
func Backoff(attempt int) time.Duration {
	if attempt == 0 {
		return 0
	}
	rest := min(10*time.Millisecond<<min(attempt-1, 10), maxBackoff)
	return rest + rand.N(rest/2) //nolint:gosec // it only has to differ
}

// SleepBackoff sleeps for Backoff(attempt). It returns ctx.Err() if ctx is done first, and nil
// otherwise.
func SleepBackoff(ctx context.Context, attempt int) error {
	Sleep(ctx, Backoff(attempt))
	return ctx.Err()
}
