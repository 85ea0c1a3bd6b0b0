package ops

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// A component that stops working is reported by /readyz within 3 s, which is readinessCheckInterval
// plus readinessCheckTimeout.
const (
	readinessCheckInterval = time.Second
	readinessCheckTimeout  = 2 * time.Second
)

// Check tests one component that a program depends on.
type Check struct {
	// Component is the component's name in /readyz and in the log.
	Component string
	// Probe returns nil if the component works, or an error that explains the problem to operators.
	// It must return when ctx ends. Calls never overlap.
	Probe func(ctx context.Context) error
}

// Watch runs each check once a second, each in a separate goroutine, until stop is called, and
// reports failures in o.Readiness.
func (o *Ops) Watch(ctx context.Context, log logrus.FieldLogger, checks ...Check) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	for _, c := range checks {
		asking.Go(func() { o.watch(ctx, log, c) })
	}
	return func() {
		cancel()
		asking.Wait()
	}
}

func (o *Ops) watch(ctx context.Context, log logrus.FieldLogger, c Check) {
	// Remove the check's failure when the service stops, because the service then reports only that
	// it is stopping.
	defer o.Readiness.MarkReady(c.Component)
	tick := time.NewTicker(readinessCheckInterval)
	defer tick.Stop()
	ready := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := c.run(ctx)
		if ctx.Err() != nil {
			return
		}
		switch entry := log.WithField("part", c.Component); {
		case err != nil:
			o.Readiness.MarkNotReady(c.Component, err.Error())
			if ready {
				entry.WithError(err).Warn("not ready")
			}
		case !ready:
			o.Readiness.MarkReady(c.Component)
			entry.Info("ready again")
		}
		ready = err == nil
	}
}

func (c Check) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readinessCheckTimeout)
	defer cancel()
	err := c.Probe(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s (%w)", readinessCheckTimeout, err)
	}
	return err
}
