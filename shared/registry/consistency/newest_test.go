package consistency_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// A power cut has lost the bucket's newest message, but the bucket still reports that message's
// sequence as its last one. A process that begins to follow the bucket must nevertheless catch up,
// and must catch up again after the next change.
func TestTheNewestMessageIsGone(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	r := registrytest.Start(t, nc)
	r.CreateWorkflow(t, "kept", "pro", true)
	r.CreateWorkflow(t, "lost", "pro", true)
	js, err := jetstream.New(nc)
	fatal(t, err)
	s, err := js.Stream(t.Context(), registry.Stream)
	fatal(t, err)
	newest, err := s.GetMsg(t.Context(), s.CachedInfo().State.LastSeq)
	fatal(t, err)
	fatal(t, s.Purge(t.Context(), jetstream.WithPurgeSubject(newest.Subject)))

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := process{Snapshot: registry.NewSnapshot(nil)}
	follower, err := consistency.Follow(ctx, js, p, logtest.Discard())
	fatal(t, err)
	defer follower.Stop()
	fatal(t, follower.CatchUp(ctx))
	r.CreateWorkflow(t, "new", "pro", true)
	fatal(t, follower.CatchUp(ctx))
	if _, ok := p.Lookup("new"); !ok {
		t.Error("what was stored afterwards is not known")
	}
}
