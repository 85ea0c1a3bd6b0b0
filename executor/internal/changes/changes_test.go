package changes_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/retry"
)

func listen(t *testing.T, nc *nats.Conn) *changes.Notifier {
	t.Helper()
	c, err := changes.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// next returns the next batch that a watcher receives, or nil if its watch has ended.
func next(t *testing.T, changed <-chan changes.Batch) []string {
	t.Helper()
	select {
	case batch := <-changed:
		return batch.IDs
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is told, and the watch goes on")
		return nil
	}
}

func watch(t *testing.T, c *changes.Notifier) <-chan changes.Batch {
	t.Helper()
	w := c.Watch(time.Time{})
	t.Cleanup(w.Cancel)
	return w.Batches
}

// This process loses its connection to NATS while another process announces changes. The watchers
// in this process miss these changes, so their watches must end.
func TestWatchesEndAfterALostConnection(t *testing.T) {
	server := natstest.Start(t)
	c := listen(t,
		server.Connect(t, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
			nats.ReconnectBufSize(-1)))
	defer c.Stop()
	changed := watch(t, c)
	if err := c.Publish([]string{"a"}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, changed); !slices.Equal(got, []string{"a"}) {
		t.Errorf("told %q", got)
	}
	server.Restart()
	if got := next(t, changed); got != nil {
		t.Errorf("told %q", got)
	}
	again := watch(t, c)
	if err := c.Publish([]string{"b"}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, again); !slices.Equal(got, []string{"b"}) {
		t.Errorf("told %q", got)
	}
}

// A change is stored in the database, but this process fails to announce it. The watches in this
// process must end, because they would otherwise miss the change.
func TestWatchesEndWhenTellingFails(t *testing.T) {
	nc := natstest.Start(t).Connect(t)
	c := listen(t, nc)
	defer c.Stop()
	changed := watch(t, c)
	nc.Close()
	if c.Publish([]string{"a"}) == nil {
		t.Fatal("telling without a connection succeeds")
	}
	if got := next(t, changed); got != nil {
		t.Errorf("told %q", got)
	}
}

// An executor restarts while another one announces changes. A client that then reconnects to the
// restarted executor receives these changes without a gap.
func TestChangesAreKeptThroughARestart(t *testing.T) {
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := changes.EnsureStream(t.Context(), js, 1); err != nil {
		t.Fatal(err)
	}
	before := listen(t, server.Connect(t))
	w := before.Watch(time.Time{})
	if err := before.Publish([]string{"a"}); err != nil {
		t.Fatal(err)
	}
	first := <-w.Batches
	other := listen(t, server.Connect(t))
	defer other.Stop()
	before.Stop() // the record b changes while this executor is stopped
	heard := watch(t, other)
	if err := other.Publish([]string{"b"}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, heard); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("told %q", got)
	}
	// The second announcement has been received, but the stream may not have stored it yet. Wait
	// until it has.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	retry.Until(ctx, time.Millisecond, func() bool {
		s, err := js.Stream(ctx, changes.StreamName)
		return err == nil && s.CachedInfo().State.LastSeq == 2
	})
	again := listen(t, server.Connect(t))
	defer again.Stop()
	if err := again.LoadRecent(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	resumed := again.Watch(first.At)
	defer resumed.Cancel()
	var ids []string
	for _, b := range resumed.CatchUpBatches {
		ids = append(ids, b.IDs...)
	}
	if !resumed.CatchUpComplete || !slices.Contains(ids, "b") {
		t.Errorf("complete: %v, %q", resumed.CatchUpComplete, ids)
	}
	if since := again.Watch(time.Now().Add(-time.Hour)); since.CatchUpComplete {
		// The stream did not exist an hour ago, so it cannot contain all changes since then.
		t.Error("what was never kept is said to be complete")
	}
}
