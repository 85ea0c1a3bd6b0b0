// Package retry repeats questions to NATS, since a cluster does not answer while it elects a
// leader, and has the waits that go with that.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// AskTimeout bounds the wait for one answer. A cluster without a leader does not answer at all, so
// the question has to be asked again.
const AskTimeout = 2 * time.Second

// Do calls question up to four times a second until it returns nil or the context ends. Then it
// returns the last error.
func Do(ctx context.Context, question func(context.Context) error) (err error) {
	Until(ctx, 250*time.Millisecond, func() bool {
		asking, cancel := context.WithTimeout(ctx, AskTimeout)
		defer cancel()
		err = question(asking)
		return err == nil
	})
	return err
}

// Until calls done once in every interval until it returns true or the context ends. The first call
// is at once, even if the context has ended.
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

// Every calls do at once and then once in every interval until the context ends.
func Every(ctx context.Context, interval time.Duration, do func()) {
	Until(ctx, interval, func() bool {
		do()
		return false
	})
}

// Sleep waits for d, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// maxBackoff is the longest pause between two attempts, without the random part.
const maxBackoff = time.Second

// Backoff returns the pause before the given attempt, which counts from 0: zero before the first
// attempt, then 10 ms, doubled each time. Up to half as much is added at random, so that processes
// that compete with each other do not stay in step.
func Backoff(attempt int) time.Duration {
	if attempt == 0 {
		return 0
	}
	rest := min(10*time.Millisecond<<min(attempt-1, 10), maxBackoff)
	return rest + rand.N(rest/2) //nolint:gosec // it only has to differ
}

// SleepBackoff waits for Backoff(attempt). It returns the error of the context if that ends first.
func SleepBackoff(ctx context.Context, attempt int) error {
	Sleep(ctx, Backoff(attempt))
	return ctx.Err()
}
