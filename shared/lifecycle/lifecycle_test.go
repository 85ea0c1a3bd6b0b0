package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hookstart/hookstart/shared/lifecycle"
)

// Stop stops the components in reverse order and waits for each, so a component can use those that
// were started before it even while it is stopping.
func TestPartsStopInReverse(t *testing.T) {
	t.Parallel()
	var (
		parts lifecycle.Components
		order []string
	)
	parts.Add(func() { order = append(order, "connection") })
	parts.Go(t.Context(), func(ctx context.Context) {
		<-ctx.Done()
		order = append(order, "recorder")
	})
	parts.StartRequired(t.Context(), func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		order = append(order, "server")
		return nil
	})
	parts.Stop()
	parts.Stop()
	if want := []string{"server", "recorder", "connection"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

var errBroken = errors.New("broken")

func TestReady(t *testing.T) {
	t.Parallel()
	var parts lifecycle.Components
	defer parts.Stop()
	well := parts.StartRequired(t.Context(), func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		return nil
	})
	if err := well.AwaitReady(t.Context()); err != nil {
		t.Errorf("a part that is ready: %v", err)
	}
	failed := parts.StartRequired(t.Context(),
		func(context.Context, func()) error { return errBroken })
	if err := failed.AwaitReady(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("a part that failed: %v", err)
	}
	slow := parts.StartRequired(t.Context(), func(ctx context.Context, _ func()) error {
		<-ctx.Done()
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := slow.AwaitReady(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a part that is not ready when the context ends: %v", err)
	}
}

// If one component returns an error, all others are stopped, and WaitAndStop returns that error.
func TestWaitForAPartThatFails(t *testing.T) {
	t.Parallel()
	var parts lifecycle.Components
	stopped := false
	parts.Add(func() { stopped = true })
	parts.StartRequired(t.Context(), func(ctx context.Context, _ func()) error {
		<-ctx.Done()
		return nil
	})
	parts.StartRequired(t.Context(), func(context.Context, func()) error { return errBroken })
	if err := parts.WaitAndStop(t.Context()); !errors.Is(err, errBroken) || !stopped {
		t.Errorf("%v; all stopped: %v", err, stopped)
	}
}

func TestWaitForTheEnd(t *testing.T) {
	t.Parallel()
	var parts lifecycle.Components
	ctx, cancel := context.WithCancel(t.Context())
	ended := false
	parts.StartRequired(ctx, func(ctx context.Context, _ func()) error {
		<-ctx.Done()
		ended = true
		return nil
	})
	cancel()
	if err := parts.WaitAndStop(ctx); err != nil || !ended {
		t.Errorf("%v; ended: %v", err, ended)
	}
}
