// Package lifecycle starts the parts of a process in order, waits for them, and stops them in the reverse order: a
// part may use those that were started before it as long as it runs.
package lifecycle

import (
	"context"
	"slices"
)

// Parts are the parts of a process. The zero value has none. It is for one goroutine; only the parts run beside it.
//
// Of parts that run, each has a context of its own, which ends with the one it was started with, or when it is the
// part's turn to stop.
type Parts struct {
	stops    []func()
	services []*Service
}

// Add adds a part that runs already; stop stops it, and is called once.
func (p *Parts) Add(stop func()) { p.stops = append(p.stops, stop) }

// Go runs a part in the background. To stop it, its context is ended and its return awaited.
func (p *Parts) Go(ctx context.Context, run func(context.Context)) {
	p.background(ctx, func(ctx context.Context) error {
		run(ctx)
		return nil
	})
}

// Start runs a part without which the process cannot go on: when it returns, Wait does. run calls ready at most once,
// when others can use it.
func (p *Parts) Start(ctx context.Context, run func(ctx context.Context, ready func()) error) *Service {
	ready := make(chan struct{})
	s := p.background(ctx, func(ctx context.Context) error {
		return run(ctx, func() { close(ready) })
	})
	s.ready = ready
	p.services = append(p.services, s)
	return s
}

func (p *Parts) background(ctx context.Context, run func(context.Context) error) *Service {
	ctx, cancel := context.WithCancel(ctx)
	s := &Service{ended: make(chan struct{})}
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

// Wait waits until ctx ends, or a part that was started with Start. Then it stops all parts, and returns the error of
// the last started one that failed.
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

// Stop stops all parts, the last one first, and waits for each. Called again, it does nothing.
func (p *Parts) Stop() {
	stops := p.stops
	p.stops = nil
	for _, stop := range slices.Backward(stops) {
		stop()
	}
}

// Service is a part that others wait for.
type Service struct {
	ready chan struct{}
	ended chan struct{}
	err   error // once ended is closed
}

// Ready returns nil when the part is ready, its error when it has ended before, or the error of ctx.
func (s *Service) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
