// Package lifecycle starts the components of a process in order, waits for them, and stops them in
// reverse order. A component can therefore use those that were started before it for as long as it
// runs.
package lifecycle

import (
	"context"
	"slices"
)

// Parts holds the components of a process. The zero value is empty and ready to use. Its methods
// must be called from a single goroutine; only the components themselves run concurrently.
//
// Each component that is started with Go or Start has a separate context. It ends when the context
// that was passed to Go or Start ends, or when Stop stops the component.
type Parts struct {
	stops    []func()
	services []*Part
}

// Add adds a component that is already running. Stop calls the given function once to stop it.
func (p *Parts) Add(stop func()) { p.stops = append(p.stops, stop) }

// Go runs a component in the background. To stop it, Stop cancels its context and waits until run
// has returned.
func (p *Parts) Go(ctx context.Context, run func(context.Context)) {
	p.startInBackground(ctx, func(ctx context.Context) error {
		run(ctx)
		return nil
	})
}

// Start runs a component that the process cannot do without: when run returns, Wait stops all other
// components and then returns as well. run must call ready at most once, as soon as others can use
// the component.
func (p *Parts) Start(
	ctx context.Context, run func(ctx context.Context, ready func()) error,
) *Part {
	ready := make(chan struct{})
	s := p.startInBackground(ctx, func(ctx context.Context) error {
		return run(ctx, func() { close(ready) })
	})
	s.ready = ready
	p.services = append(p.services, s)
	return s
}

func (p *Parts) startInBackground(ctx context.Context, run func(context.Context) error) *Part {
	ctx, cancel := context.WithCancel(ctx)
	s := &Part{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = run(ctx)
	}()
	p.Add(func() {
		cancel()
		<-s.ended
	})
	return s
}

// Wait waits until ctx ends or a component that was started with Start returns. Then it stops all
// components and returns the error of the most recently started one that failed, or nil if none
// did.
func (p *Parts) Wait(ctx context.Context) error {
	ended := make(chan struct{}, len(p.services))
	for _, s := range p.services {
		go func() {
			<-s.ended
			ended <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	p.Stop()
	for _, s := range slices.Backward(p.services) {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// Stop stops all components, the most recently added first, and waits for each. Later calls do
// nothing.
func (p *Parts) Stop() {
	stops := p.stops
	p.stops = nil
	for _, stop := range slices.Backward(stops) {
		stop()
	}
}

// Part is a component that was started with Start. Other components can wait until it is ready.
type Part struct {
	ready chan struct{}
	ended chan struct{}
	err   error // valid once ended is closed
}

// Ready waits until the component is ready and returns nil. It returns the component's error if
// that ended before it was ready, or the error of ctx if ctx ends first.
func (s *Part) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
