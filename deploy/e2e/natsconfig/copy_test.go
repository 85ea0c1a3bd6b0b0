package natsconfig

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// If the registry's copy has stopped following the original, the MirrorWatchdog makes the copy's
// leader step down. The new leader, another server, follows the original immediately. Without the
// watchdog, NATS would keep the old leader, which waits longer after each failed attempt.
func TestAStoppedCopyIsLedByAnotherServer(t *testing.T) {
	s := startThree(t)
	nc := s.connect(t, "executor")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	copies := copyOf(t, nc)
	requested, err := s.connect(t, "admin").SubscribeSync("$JS.API.CONSUMER.CREATE." +
		registry.Stream)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a copy", func() bool { return edit.EnsureMirror(t.Context(), copies, 3) == nil })
	// The original does not exist yet, so the leader of the copy fails to create its consumer
	// there, and waits before it tries again.
	if _, err := requested.NextMsg(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	var stalled string
	eventually(t, "a leader", func() bool {
		found, err := copies.Stream(t.Context(), registry.Stream)
		if err != nil {
			return false
		}
		stalled = found.CachedInfo().Cluster.Leader
		return stalled != ""
	})

	watchdog, err := edit.NewMirrorWatchdog(nc, registryCopy, func(context.Context) error {
		return nil // the original has a leader
	}, logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if err := edit.EnsureBuckets(t.Context(), js, 3); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), registry.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Put(t.Context(), "record", []byte("value")); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		watchdog.Run(watching)
	}()
	defer func() { stop(); <-stopped }()

	eventually(t, "a copy that follows under another leader", func() bool {
		found, err := copies.Stream(t.Context(), registry.Stream)
		return err == nil && found.CachedInfo().State.LastSeq == 1 &&
			found.CachedInfo().Cluster.Leader != stalled
	})
}
