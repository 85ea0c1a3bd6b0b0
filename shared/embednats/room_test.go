package embednats

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// CheckRoom does not wait for a measurement that is still running: it returns the result of the
// last one that has ended.
func TestCheckRoomDoesNotWait(t *testing.T) {
	t.Parallel()
	s := &Server{nats: &server.Server{}}
	full := errors.New("full")
	results, measured := make(chan error), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watchRoom(ctx, func(*server.Server) error {
			measured <- struct{}{}
			return <-results
		})
	}()
	<-measured
	for _, want := range []error{full, nil} {
		results <- want
		<-measured // the next measurement, which does not end yet
		if got := s.CheckRoom(); !errors.Is(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	stop()
	results <- nil
	<-watched
}
