package runnertest_test

import (
	"context"
	"log/slog"
	"strings"
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

// While the storage of NATS is full, a runner repeats the report, and does not run the execution
// again. It acknowledges the execution only once the report is stored: if the runner stops before
// that, the execution is redelivered.
func TestReportsWaitForRoom(t *testing.T) {
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
	runs, reports := make(chan int, 100), make(chan struct{}, 10_000)
	if _, err := nc.Subscribe("executions.progress.>", func(*nats.Msg) {
		reports <- struct{}{}
	}); err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	run := func() (stop func()) {
		return start(t, nc, runner.Options{
			AckWait: 3 * time.Second, DrainTimeout: time.Millisecond,
			Log: slog.New(slog.NewTextHandler(log, nil)),
		}, func(_ context.Context, e runner.Execution) (any, error) {
			runs <- e.Attempt
			return nil, nil
		})
	}
	await := func(attempt int) {
		t.Helper()
		select {
		case got := <-runs:
			if got != attempt {
				t.Fatalf("attempt %d began, not %d", got, attempt)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("attempt %d did not begin", attempt)
		}
	}
	stop := run()
	await(1)
	for range 12 { // a report every tenth of AckWait: together longer than AckWait
		select {
		case <-reports:
		case attempt := <-runs:
			t.Fatalf("attempt %d began", attempt)
		case <-time.After(30 * time.Second):
			t.Fatal("the report was not sent again")
		}
	}
	if got := log.all(); len(got) == 0 || !strings.Contains(got[0], "level=WARN") ||
		!strings.Contains(got[0], "the report cannot be stored yet") ||
		!strings.Contains(got[0], id) {
		t.Errorf("the log does not say that the report waits: %q", got)
	}
	stop()
	run()
	await(2)
	size(-1)
	if got := ingress.Await(t, id); got.Status != execution.Succeeded || len(runs) > 0 {
		t.Errorf("%+v, then %d runs", got, len(runs))
	}
}

// If the stream of reports does not exist, the runner sends a report again and again until the
// stream exists. It does not run the execution again.
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
	// This subscriber does not reply. It only shows the test that a report was sent.
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
	if err := stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	if got := ingress.Await(t, id); got.Status != execution.Succeeded || len(runs) != 1 {
		t.Errorf("%+v after %d runs", got, len(runs))
	}
}
