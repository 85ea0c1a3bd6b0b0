package consistency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// copyReader is the JetStream of a process that may not read the registry's stream. Its consumers
// read a copy in another stream, but it can still query the last sequence of the original.
type copyReader struct {
	jetstream.JetStream
}

const copyName = "COPY"

func (c copyReader) CreateConsumer(
	ctx context.Context, _ string, config jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	return c.JetStream.CreateConsumer(ctx, copyName, config)
}

func (c copyReader) DeleteConsumer(ctx context.Context, _, consumer string) error {
	return c.JetStream.DeleteConsumer(ctx, copyName, consumer)
}

// startCopy starts mirroring the registry, and waits until the copy contains everything that is
// stored. It returns the configuration of the copy's stream, for stopCopy.
func startCopy(t *testing.T, js jetstream.JetStream) jetstream.StreamConfig {
	t.Helper()
	config := jetstream.StreamConfig{
		Name:              copyName,
		Mirror:            &jetstream.StreamSource{Name: registry.Stream},
		MaxMsgsPerSubject: 1,
	}
	_, err := js.CreateStream(t.Context(), config)
	fatal(t, err)
	awaitCopied(t, js)
	return config
}

func awaitCopied(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		original, err := js.Stream(t.Context(), registry.Stream)
		fatal(t, err)
		copied, err := js.Stream(t.Context(), copyName)
		fatal(t, err)
		if copied.CachedInfo().State.LastSeq == original.CachedInfo().State.LastSeq {
			return
		}
		<-tick.C
	}
}

// stopCopy stops the mirroring. The copy keeps its messages, but receives no further changes.
func stopCopy(t *testing.T, js jetstream.JetStream, config jetstream.StreamConfig) {
	t.Helper()
	config.Mirror = nil
	_, err := js.UpdateStream(t.Context(), config)
	fatal(t, err)
}

// lags fails the test if CatchUp succeeds within one second, or if the follower has applied the
// newest revision. In one second, the follower creates several consumers, one of which might make
// CatchUp succeed by mistake.
func lags(t *testing.T, js jetstream.JetStream, follower *consistency.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := follower.CatchUp(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a follower whose copy lacks a change: %v", err)
	}
	original, err := js.Stream(t.Context(), registry.Stream)
	fatal(t, err)
	if got, last := follower.Revision(), original.CachedInfo().State.LastSeq; got >= last {
		t.Errorf("it has revision %d of %d", got, last)
	}
}

// While a copy of the registry lacks a change, no process that reads the copy counts as current.
// This applies both to a process that followed the copy before and to a process that starts now.
func TestACopyThatLagsBehind(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	r := registrytest.Start(t, nc)
	js, err := jetstream.New(nc)
	fatal(t, err)
	r.CreateWorkflow(t, "old", "pro", true)
	config := startCopy(t, js)
	p := process{Snapshot: registry.NewSnapshot(nil)}
	follower, err := consistency.Follow(t.Context(), copyReader{js}, p, logtest.Discard())
	fatal(t, err)
	defer follower.Stop()
	fatal(t, follower.CatchUp(t.Context()))

	stopCopy(t, js, config)
	r.CreateWorkflow(t, "new", "pro", true)
	lags(t, js, follower)
	late, err := consistency.Follow(t.Context(), copyReader{js},
		process{Snapshot: registry.NewSnapshot(nil)}, logtest.Discard())
	fatal(t, err)
	defer late.Stop()
	loading, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for late.Revision() == 0 { // until it has read a part of the copy
		fatal(t, loading.Err())
		<-time.After(time.Millisecond)
	}
	lags(t, js, late)
}

// The newest message is missing from both the registry and its copy. A process that reads the copy
// still counts as current: the last sequence of the copy equals that of the registry, so the copy
// lacks nothing else.
func TestTheNewestMessageIsGoneFromACopy(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	r := registrytest.Start(t, nc)
	js, err := jetstream.New(nc)
	fatal(t, err)
	r.CreateWorkflow(t, "kept", "pro", true)
	r.CreateWorkflow(t, "lost", "pro", true)
	startCopy(t, js)
	for _, name := range []string{registry.Stream, copyName} {
		s, err := js.Stream(t.Context(), name)
		fatal(t, err)
		newest, err := s.GetMsg(t.Context(), s.CachedInfo().State.LastSeq)
		fatal(t, err)
		fatal(t, s.Purge(t.Context(), jetstream.WithPurgeSubject(newest.Subject)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	follower, err := consistency.Follow(ctx, copyReader{js},
		process{Snapshot: registry.NewSnapshot(nil)}, logtest.Discard())
	fatal(t, err)
	defer follower.Stop()
	fatal(t, follower.CatchUp(ctx))
}
