// Package retry waits, and asks again: a NATS cluster that changes its leader does not answer for a moment.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// AskTimeout is how long one question is waited for. A cluster without a leader does not
// answer at all: it has to be asked again.
const AskTimeout = 2 * time.Second

// Ask asks up to four times a second until there is an answer or the context ends; then
// it returns the last error.
func Ask(ctx context.Context, question func(context.Context) error) (err error) {
	Until(ctx, 250*time.Millisecond, func() bool {
		asking, cancel := context.WithTimeout(ctx, AskTimeout)
		defer cancel()
		err = question(asking)
		return err == nil
	})
	return err
}

// Until calls done, once in every interval, until it returns true or the context ends. The first call is at once, even if the
// context has ended.
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

// Every calls do at once, and then once in every interval, until the context ends.
func Every(ctx context.Context, interval time.Duration, do func()) {
	Until(ctx, interval, func() bool {
		do()
		return false
	})
}

// Wait waits for that long, or until the context ends.
func Wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// maxBackoff is the longest pause between two attempts.
const maxBackoff = time.Second

// Backoff is how long to pause before the next attempt: nothing before the first, then
// 10 ms, doubled each time, up to half as much again so that those who compete part.
func Backoff(attempt int) time.Duration {
	if attempt == 0 {
		return 0
	}
	rest := min(10*time.Millisecond<<min(attempt-1, 10), maxBackoff)
	return rest + rand.N(rest/2) //nolint:gosec // it only has to differ
}

// Pause waits before an attempt, or until the context ends; then it returns its error.
func Pause(ctx context.Context, attempt int) error {
	Wait(ctx, Backoff(attempt))
	return ctx.Err()
}
