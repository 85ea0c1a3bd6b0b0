// Package lifecycle starts the parts of a process in order, waits for them, and stops them in
// reverse order. A part can therefore use the parts that were started before it for as long as it
// runs.
package lifecycle

import (
	"context"
	"slices"
)

// Parts holds the parts of a process. The zero value is empty and ready to use. It must be used
// from a single goroutine; only the parts themselves run concurrently.
//
// Each part that is started with Go or Start has a separate context. It ends when the context that
// was passed to Go or Start ends, or earlier, when it is the part's turn to stop.
type Parts struct {
	stops    []func()
	services []*Part
}

// Add adds a part that is already running. Stop calls stop once.
func (p *Parts) Add(stop func()) { p.stops = append(p.stops, stop) }

// Go runs a part in the background. To stop it, Stop cancels its context and waits until run has
// returned.
func (p *Parts) Go(ctx context.Context, run func(context.Context)) {
	p.startInBackground(ctx, func(ctx context.Context) error {
		run(ctx)
		return nil
	})
}

// Start runs a part that the process cannot do without: when run returns, Wait stops all other
// parts and returns, too. run must call ready at most once, as soon as others can use the part.
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

// Wait waits until ctx ends or a part that was started with Start returns. Then it stops all parts
// and returns the error of the most recently started part that failed, or nil if none did.
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

// Stop stops all parts, the last one first, and waits for each. Later calls do nothing.
func (p *Parts) Stop() {
	stops := p.stops
	p.stops = nil
	for _, stop := range slices.Backward(stops) {
		stop()
	}
}

// Part is a part of the program. Other parts can wait until it is ready.
type Part struct {
	ready chan struct{}
	ended chan struct{}
	err   error // valid once ended is closed
}

// Ready waits until the part is ready and returns nil. It returns the part's error if the part
// ended before it was ready, or the error of ctx.
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
