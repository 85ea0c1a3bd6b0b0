package e2e

import (
	"testing"
	"time"
)

// within waits until holds returns true, and fails the test if that takes longer than limit. what
// describes the condition in the error message.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(limit); !holds(); {
		if time.Now().After(until) {
			t.Fatalf("no %s within %v", what, limit)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
