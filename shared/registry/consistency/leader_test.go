package consistency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// If the leader of the registry's stream cannot reach the other two servers, a process that is
// connected to the leader loses its lease, although the leader goes on responding (with nats-server
// 2.15.2 for more than ten minutes). The lease must end because the other two servers may elect
// another leader and store changes.
func TestALeaseEndsBeforeTheRegistrysLeaderGivesUp(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartProcessCluster(t, 3)
	anyJS, err := jetstream.New(cluster.Connect(t))
	fatal(t, err)
	fatal(t, edit.EnsureBuckets(t.Context(), anyJS, 3))
	registrytest.WriteInstallation(t, anyJS)
	leader := cluster.Leader(registry.Stream)

	nc, err := nats.Connect(cluster.Node(leader).URL(), nats.DontRandomize(),
		nats.IgnoreDiscoveredServers())
	fatal(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	fatal(t, err)
	follower, err := consistency.Follow(t.Context(), js, registry.NewSnapshot(nil),
		logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	fatal(t, follower.CatchUp(t.Context()))
	lease := consistency.NewLease(nc, follower)
	t.Cleanup(lease.Stop)
	for begin := time.Now(); lease.SinceCaughtUp(time.Now()) >= time.Since(begin); {
		// Wait until the lease has been renewed, which shows that the three servers reach each
		// other.
		<-time.After(10 * time.Millisecond)
	}

	for i := range 3 {
		if i != leader {
			cluster.Node(i).Pause()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for lease.IsValid(time.Now()) {
		if ctx.Err() != nil {
			t.Fatal("the lease of an ingress that reaches only the leader is renewed for ever")
		}
		<-time.After(10 * time.Millisecond)
	}
	if _, err := js.Stream(ctx, registry.Stream); err != nil {
		t.Errorf("the lease ran out only when the leader had given up: %v", err)
	}
	if err := follower.CatchUp(ctx); !errors.Is(err, consistency.ErrNotCurrent) {
		t.Errorf("a leader that reaches nobody is believed: %v", err)
	}
}
