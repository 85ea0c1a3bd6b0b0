package consistency_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// connectByLink connects to the server through a new link, and returns the connection and the link,
// so that the test can cut the connection.
func connectByLink(
	t *testing.T, server *natstest.Node, options ...nats.Option,
) (*nats.Conn, natstest.Proxy) {
	t.Helper()
	link := server.NewProxy(t)
	nc, err := nats.Connect(link.URL(), append(options, nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))...)
	fatal(t, err)
	t.Cleanup(nc.Close)
	return nc, link
}

// newcomer starts an ingress that announces itself. It returns the lease of that ingress, and the
// link through which the ingress is connected. Nothing else uses the link.
func newcomer(t *testing.T, server *natstest.Node) (*consistency.Lease, natstest.Proxy) {
	t.Helper()
	nc, link := connectByLink(t, server)
	js, err := jetstream.New(nc)
	fatal(t, err)
	follower, err := consistency.Follow(t.Context(), js, registry.NewSnapshot(nil),
		logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	heartbeat, err := consistency.StartHeartbeat(t.Context(), nc, follower, consistency.RoleIngress,
		nil, consistency.ProcessInfo{}, logtest.Discard())
	fatal(t, err)
	t.Cleanup(heartbeat.Stop)
	lease := consistency.NewLease(nc, follower)
	t.Cleanup(lease.Stop)
	return lease, link
}

// holdsAfterChange stores a change, waits until membership.AwaitInForce has confirmed it, and then
// reports whether the lease is still valid.
func holdsAfterChange(
	t *testing.T, r *registrytest.Registry, membership *consistency.Membership,
	lease *consistency.Lease,
) bool {
	t.Helper()
	bucket, err := r.JetStream.KeyValue(t.Context(), registry.Bucket)
	fatal(t, err)
	stored, err := bucket.Put(t.Context(), "other.change", nil)
	fatal(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fatal(t, membership.AwaitInForce(ctx, stored))
	return lease.IsValid(time.Now())
}

// whileItsLeaseHolds calls try until it returns true. After ten failed attempts, it fails the test.
// try cuts off a process, makes a change, and reports whether the process's lease was still valid
// just before the change. If it was not, as may happen on a busy machine, the attempt has tested
// nothing.
func whileItsLeaseHolds(t *testing.T, try func() (held bool)) {
	t.Helper()
	for range 10 {
		if try() {
			return
		}
	}
	t.Fatal("the lease had always run out before the change")
}

// The first change of a new executor waits for the lease of an ingress that was cut off from NATS
// just before the executor joined. The executor has never received heartbeats of that ingress.
func TestANewMembershipWaitsForThoseItCannotHear(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	whileItsLeaseHolds(t, func() bool {
		lease, link := newcomer(t, server)
		link.Silence()
		membership, err := consistency.Join(t.Context(), server.Connect(t))
		fatal(t, err)
		t.Cleanup(membership.Stop)
		held := lease.IsValid(time.Now())
		if holdsAfterChange(t, r, membership, lease) {
			t.Error("a change returned while a process may answer from the registry before it")
		}
		return held
	})
}

// While an executor is disconnected, an ingress starts and is then cut off from NATS. After the
// executor has reconnected, its first change waits for the lease of that ingress.
func TestAMembershipThatWasCutOffWaitsForThoseItDidNotHear(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := registrytest.Start(t, server.Connect(t))
	whileItsLeaseHolds(t, func() bool {
		reconnected := make(chan struct{}, 1)
		nc, deaf := connectByLink(t, server, nats.ReconnectHandler(func(*nats.Conn) {
			select {
			case reconnected <- struct{}{}:
			default:
			}
		}))
		membership, err := consistency.JoinAsFirst(t.Context(), nc)
		fatal(t, err)
		t.Cleanup(membership.Stop)

		deaf.Silence()
		lease, link := newcomer(t, server)
		link.Silence()
		deaf.DropConnections()
		<-reconnected
		held := lease.IsValid(time.Now())
		if holdsAfterChange(t, r, membership, lease) {
			t.Error("a change returned while a process may answer from the registry before it")
		}
		return held
	})
}

// If two servers of a cluster cannot reach each other but both reach the leader, the heartbeats of
// an ingress at one server do not reach an executor at the other, although the ingress still renews
// its lease. A change by the executor must then wait until that lease has expired. The test
// simulates this by suppressing only the heartbeats.
func TestAChangeWaitsForTheLeaseOfASilentProcess(t *testing.T) {
	t.Parallel()
	server := natstest.StartCluster(t, 3).Node(0)
	r := registrytest.Start(t, server.Connect(t))
	r.CreateWorkflow(t, "wf", "free", false)
	announced, presence := connectByLink(t, server)
	nc := server.Connect(t)
	js, err := jetstream.New(nc)
	fatal(t, err)
	slow := &registrytest.Ingress{Snapshot: registry.NewSnapshot(nil)}
	follower, err := consistency.Follow(t.Context(), js, slow, logtest.Discard())
	fatal(t, err)
	t.Cleanup(follower.Stop)
	heartbeat, err := consistency.StartHeartbeat(t.Context(), announced, follower,
		consistency.RoleIngress, &consistency.IngressSettings{}, consistency.ProcessInfo{},
		logtest.Discard())
	fatal(t, err)
	t.Cleanup(heartbeat.Stop)
	lease := consistency.NewLease(nc, follower)
	t.Cleanup(lease.Stop)

	presence.Silence()
	for len(r.Membership.IngressSettings()) > 0 { // wait until the ingress is presumed dead
		<-time.After(10 * time.Millisecond)
	}
	for !lease.AwaitValid(time.Now()) { // the ingress still renews its lease
	}
	slow.ApplyMu.Lock() // keeps the ingress from applying the change
	defer slow.ApplyMu.Unlock()
	if _, err := r.Activate(t.Context(), "wf"); err != nil {
		t.Fatal(err)
	}
	if lease.IsValid(time.Now()) {
		t.Error("a change returned while a process may answer from the registry before it")
	}
}
