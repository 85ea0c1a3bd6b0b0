package edit_test

import (
	"context"
	"errors"
	"fmt"
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

// connectTo connects to only one node of a cluster.
func connectTo(t *testing.T, node *natstest.Node) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(node.URL(), nats.DontRandomize(), nats.IgnoreDiscoveredServers(),
		nats.MaxReconnects(-1))
	fatal(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// bucketsOf creates the registry's buckets, each with a replica on all three nodes of the cluster.
// Call it before a registry starts on the cluster.
func bucketsOf(t *testing.T, cluster *natstest.Cluster) {
	t.Helper()
	js, err := jetstream.New(cluster.Connect(t))
	fatal(t, err)
	fatal(t, edit.EnsureBuckets(t.Context(), js, 3))
}

// The leader of the registry's stream cannot reach the other servers. These may elect another
// leader, which stores changes, but the old leader does not notice this and goes on responding to
// the executors that are connected to it. Such an executor must not rely on the old leader.
func TestALeaderThatTheOthersHaveLeftIsNotBelieved(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartProcessCluster(t, 3)
	bucketsOf(t, cluster)
	registrytest.Start(t, cluster.Connect(t)).CreateWorkflow(t, "wf", "pro", true)
	left := cluster.Leader(registry.Stream)

	nc := connectTo(t, cluster.Node(left))
	js, err := jetstream.New(nc)
	fatal(t, err)
	index := edit.NewRegistryIndex(nil)
	follower, err := consistency.Follow(t.Context(), js, index, logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	fatal(t, follower.CatchUp(t.Context()))
	lease := consistency.NewLease(nc, follower)
	t.Cleanup(lease.Stop)
	membership, err := consistency.Join(t.Context(), nc)
	fatal(t, err)
	t.Cleanup(membership.Stop)
	editor, err := edit.NewEditor(t.Context(), edit.Config{
		JetStream: js, RegistryIndex: index, Follower: follower, Lease: lease,
		Membership: membership,
	})
	fatal(t, err)

	for i := range 3 {
		if i != left {
			cluster.Node(i).Pause()
		}
	}
	for lease.IsValid(time.Now()) {
		<-time.After(10 * time.Millisecond)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := js.Stream(ctx, registry.Stream); err != nil {
		t.Fatalf("the test assumes that the leader answers: %v", err)
	}
	if err := editor.EnsureCurrent(ctx); !errors.Is(err, consistency.ErrNotCurrent) {
		t.Errorf("the index is said to be current: %v", err)
	}
	if _, _, err := editor.PutAccount(ctx, "on-pro", "An account", "pro"); err == nil {
		t.Error("the others may have changed the plan by now, and it is confirmed")
	}
	if err := editor.DeleteWorkflow(ctx, "none"); errors.Is(err, edit.ErrNotFound) {
		t.Errorf("the others may have made a workflow by now, and it is said not to be there: %v",
			err)
	}
}

// The new token of a node can be read immediately, no matter which server of a cluster the executor
// is connected to, and even if the replica on that server lags behind.
func TestANewTokenIsReadFromTheLeader(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	bucketsOf(t, cluster)
	for i := range 3 {
		r := registrytest.Start(t, connectTo(t, cluster.Node(i)))
		id := fmt.Sprint("wf", i)
		r.CreateWorkflow(t, id, "pro", false)
		for range 100 {
			before := r.Token(t, id, "node")
			fatal(t, r.RotateToken(t.Context(), id, "node", 0))
			trigger, err := r.Trigger(t.Context(), id, "node")
			fatal(t, err)
			if len(trigger.Tokens) != 1 || trigger.Tokens[0].Token == before {
				t.Fatalf("after a rotation at node %d: %d tokens, the old one: %t", i,
					len(trigger.Tokens), len(trigger.Tokens) > 0)
			}
		}
	}
}
