package runner_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// An execution is acknowledged only when its report is stored: while the stream takes none,
// it comes again.
func TestNothingIsAcknowledgedBeforeItsReportIsStored(t *testing.T) {
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	id := ingress.Start(t, runnertest.Post{})
	size := func(bytes int64) {
		t.Helper()
		s, err := js.Stream(t.Context(), stream.Name)
		if err == nil {
			config := s.CachedInfo().Config
			config.MaxBytes = bytes
			_, err = js.UpdateStream(t.Context(), config)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	size(1)
	runs := make(chan int, 100)
	start(t, nc, runner.Options{AckWait: 500 * time.Millisecond, Attempts: 100}, func(_ context.Context, e runner.Execution) (any, error) {
		runs <- e.Attempt
		return nil, nil
	})
	for again := false; !again; { // it came once, and was not stored
		select {
		case attempt := <-runs:
			again = attempt > 1
		case <-time.After(30 * time.Second):
			t.Fatal("it did not come again, though its report was not stored")
		}
	}
	size(-1)
	if got := ingress.Await(t, id); got.Status != execution.Succeeded {
		t.Errorf("%+v", got)
	}
}
