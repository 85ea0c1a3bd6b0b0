// Package streamtest tests package stream against real NATS servers. It is a separate package, so
// that a module which requires stream does not require a server.
package streamtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// id is the ID of an execution.
const id = "01890a5d-ac96-774b-bcce-b302099a8057"

func TestEnsure(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for range 2 { // the second time, it exists already
		if err := stream.Ensure(ctx, js, stream.DefaultSettings); err != nil {
			t.Fatal(err)
		}
		if err := stream.EnsureReports(ctx, js, 1); err != nil {
			t.Fatal(err)
		}
	}
	other := stream.DefaultSettings
	other.MaxAge, other.DedupWindow = time.Hour, time.Minute
	err = stream.Ensure(ctx, js, other)
	if !errors.Is(err, stream.ErrMismatch) ||
		!strings.Contains(err.Error(), "age is 168h0m0s, configured 1h0m0s") ||
		!strings.Contains(err.Error(), "dedup window is 24h0m0s, configured 1m0s") {
		t.Errorf("%v", err)
	}
	s, err := js.Stream(ctx, stream.Name)
	if err != nil || s.CachedInfo().Config.MaxAge != stream.DefaultSettings.MaxAge {
		t.Errorf("the stream was edited: %v", err)
	}
	// The subjects of a workflow with strange, but valid, names belong to the stream.
	for _, subject := range []string{
		stream.StartSubject("-", "_", strings.Repeat("x", 64)),
		stream.ProgressSubject("q", "w", id),
	} {
		if _, err := js.Publish(ctx, subject, nil); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
	}
}
