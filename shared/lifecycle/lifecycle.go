// Package lifecycle starts the components of a process in order, waits for them, and stops them in
// reverse order. A component can therefore use those that were started before it for as long as it
// runs.
package lifecycle

import (
	"context"
	"slices"
)

// Components holds the components of a process. The zero value is empty and ready to use. Its
// methods must be called from a single goroutine; only the components themselves run concurrently.
//
// Each component that is started with Go or StartRequired gets its own context. The context ends
// when the one passed to Go or StartRequired ends, or when Stop stops the component.
type Components struct {
	stopFuncs          []func()
	requiredComponents []*Component
}

// Add adds a component that is already running. Stop calls the given function once to stop it.
func (p *Components) Add(stop func()) { p.stopFuncs = append(p.stopFuncs, stop) }

// Go runs a component in the background. To stop it, Stop cancels its context and waits until run
// has returned.
func (p *Components) Go(ctx context.Context, run func(context.Context)) {
	p.startInBackground(ctx, func(ctx context.Context) error {
		run(ctx)
		return nil
	})
}

// StartRequired runs a component that the process cannot do without: when run returns, WaitAndStop
// stops all other components and then returns as well. run must call ready at most once, as soon as
// others can use the component.
func (p *Components) StartRequired(
	ctx context.Context, run func(ctx context.Context, ready func()) error,
) *Component {
	ready := make(chan struct{})
	s := p.startInBackground(ctx, func(ctx context.Context) error {
		return run(ctx, func() { close(ready) })
	})
	s.ready = ready
	p.requiredComponents = append(p.requiredComponents, s)
	return s
}

func (p *Components) startInBackground(
	ctx context.Context, run func(context.Context) error,
) *Component {
	ctx, cancel := context.WithCancel(ctx)
	s := &Component{ended: make(chan struct{})}
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

// WaitAndStop waits until ctx ends or a component that was started with StartRequired returns. Then
// it stops all components and returns the error of the most recently started one that failed, or
// nil if none did.
func (p *Components) WaitAndStop(ctx context.Context) error {
	ended := make(chan struct{}, len(p.requiredComponents))
	for _, s := range p.requiredComponents {
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
	for _, s := range slices.Backward(p.requiredComponents) {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// Stop stops all components, the most recently added first, and waits for each. Later calls do
// nothing.
func (p *Components) Stop() {
	stops := p.stopFuncs
	p.stopFuncs = nil
	for _, stop := range slices.Backward(stops) {
		stop()
	}
}

// Component is a component that was started with StartRequired. Other components can wait until it
// is ready.
type Component struct {
	ready chan struct{}
	ended chan struct{}
	err   error // valid once ended is closed
}

// AwaitReady waits until the component is ready and returns nil. It returns the component's error
// if the component ended before it was ready, or the error of ctx if ctx ends first.
func (s *Component) AwaitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
