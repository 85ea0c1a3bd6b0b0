package consistency

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
)

// If the registry is lost and restored while a process is frozen, the process reloads the registry.
// It must not use a consumer that it created before the reload: that consumer begins with the last
// message that the process had applied by then, and would skip earlier messages, such as the
// registry's identity.
func TestAConsumerOfAnEarlierLoadIsNotUsed(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: registry.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	identity, err := (&registry.Installation{ID: "installation"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Put(t.Context(), registry.InstallationKey, identity); err != nil {
		t.Fatal(err)
	}
	last, err := bucket.Put(t.Context(), "workflow.newer", nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Follow(t.Context(), js, registry.NewSnapshot(nil), logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AwaitApplied(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	f.Stop()

	outdated, err := f.createConsumer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), registry.Stream)
	if err != nil {
		t.Fatal(err)
	}
	f.beginLoading(s.CachedInfo())
	running, stop := context.WithCancel(t.Context())
	defer stop()
	go f.run(running, outdated)

	waiting, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f.CatchUp(waiting); err != nil {
		t.Error(err)
	}
}
