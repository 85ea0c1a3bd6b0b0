package ops_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/ops/logtest"
)

// The checks run independently: if one component does not respond at all, failures of the others
// are still reported.
func TestWatch(t *testing.T) {
	t.Parallel()
	o := ops.New()
	var lost atomic.Bool
	stop := o.Watch(t.Context(), logtest.Discard(),
		ops.Check{Component: "well", Probe: func(context.Context) error { return nil }},
		ops.Check{Component: "lost", Probe: func(context.Context) error {
			if lost.Load() {
				return errors.New("it is gone")
			}
			return nil
		}},
		ops.Check{Component: "silent", Probe: func(ctx context.Context) error {
			if lost.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}},
	)
	defer stop()
	if reasons := o.Readiness.NotReadyReasons(); len(reasons) > 0 {
		t.Errorf("at the beginning: %q", reasons)
	}
	lost.Store(true)
	waitForReasons(t, o, "lost: it is gone",
		"silent: no answer within 2s (context deadline exceeded)")
	lost.Store(false)
	waitForReasons(t, o)
	lost.Store(true)
	waitForReasons(t, o, "lost: it is gone",
		"silent: no answer within 2s (context deadline exceeded)")
	stop()
	if reasons := o.Readiness.NotReadyReasons(); len(reasons) > 0 {
		t.Errorf("after the end: %q", reasons)
	}
}

func waitForReasons(t *testing.T, o *ops.Ops, want ...string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for {
		got := o.Readiness.NotReadyReasons()
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("it says %q, want %q", strings.Join(got, "; "), want)
		}
	}
}
