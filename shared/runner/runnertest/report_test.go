package runnertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// A runner acknowledges an execution only once the execution's report is stored. While the stream
// accepts no reports, the execution is redelivered.
func TestNothingIsAcknowledgedBeforeItsReportIsStored(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	id := ingress.Start(t, runnertest.Post{})
	size := func(bytes int64) {
		t.Helper()
		s, err := js.Stream(t.Context(), stream.ProgressName)
		if err == nil {
			config := s.CachedInfo().Config
			config.MaxBytes, config.Discard = bytes, jetstream.DiscardNew
			_, err = js.UpdateStream(t.Context(), config)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	size(1)
	runs := make(chan int, 100)
	start(t, nc, runner.Options{AckWait: 500 * time.Millisecond, Attempts: 100}, func(
		_ context.Context, e runner.Execution,
	) (any, error) {
		runs <- e.Attempt
		return nil, nil
	})
	for again := false; !again; { // it has been delivered once, and its report was not stored
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

// While executors move the reports to a separate stream, no stream accepts them for a moment. The
// runner resends the report, and no execution runs twice.
func TestAReportIsSentAgainUntilItsStreamIsThere(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), stream.ProgressName); err != nil {
		t.Fatal(err)
	}
	id := ingress.Start(t, runnertest.Post{})
	runs, refused := make(chan int, 10), make(chan struct{}, 100)
	// A second subscriber receives the reports without replying. It lets the test detect a second
	// attempt to publish one.
	if _, err := nc.Subscribe("executions.progress.>", func(msg *nats.Msg) {
		if msg.Reply != "" {
			refused <- struct{}{}
		}
	}); err != nil {
		t.Fatal(err)
	}
	start(t, nc, runner.Options{AckWait: 10 * time.Second}, func(
		_ context.Context, e runner.Execution,
	) (any, error) {
		runs <- e.Attempt
		return nil, nil
	})
	for range 2 {
		select {
		case <-refused:
		case <-time.After(30 * time.Second):
			t.Fatal("the report was not sent again")
		}
	}
	if err := stream.Ensure(t.Context(), js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	if got := ingress.Await(t, id); got.Status != execution.Succeeded || len(runs) != 1 {
		t.Errorf("%+v after %d runs", got, len(runs))
	}
}
