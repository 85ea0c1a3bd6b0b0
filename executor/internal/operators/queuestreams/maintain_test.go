package queuestreams

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/stream"
)

// While a backup is being restored, a queue's own stream exists before the queue's record. It is
// not deleted as unused then, although it may be empty for long.
func TestNoOwnStreamIsDeletedDuringARestore(t *testing.T) {
	t.Parallel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	m := New(Config{
		JetStream: r.JetStream, Editor: r.Editor, RegistryIndex: r.RegistryIndex,
		Settings: stream.DefaultSettings, Log: logtest.Discard(),
	})
	check(stream.EnsureOwnStreams(t.Context(), r.JetStream, stream.DefaultSettings, "q",
		stream.QueueStreamLimits{}))
	for _, restoring := range []bool{true, false} {
		identity, last, err := edit.ReadInstallation(t.Context(), r.JetStream)
		check(err)
		identity.Restoring = restoring
		revision, err := edit.WriteInstallation(t.Context(), r.JetStream, identity, last)
		check(err)
		check(r.Follower.AwaitApplied(t.Context(), revision))
		m.emptySince["q"] = time.Now().Add(-2 * emptyStreamGracePeriod)
		check(m.maintainOwnStreams(t.Context()))
		_, err = r.JetStream.Stream(t.Context(), stream.OwnStreamName("q"))
		if deleted := errors.Is(err, jetstream.ErrStreamNotFound); deleted == restoring {
			t.Errorf("restoring %t, deleted %t: %v", restoring, deleted, err)
		}
	}
}
