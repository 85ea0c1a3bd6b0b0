package natstest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/retry"
)

// clusterTimeout is the maximum duration of each wait for the cluster. When a leader is killed or
// paused, the other servers elect a new one after 4 to 9 s.
const clusterTimeout = 30 * time.Second

// Cluster is a group of servers that replicate streams. It is safe for concurrent use.
type Cluster struct {
	tb    testing.TB
	nodes []*Node
}

// StartCluster starts a cluster in the test's process and waits until a stream can have a replica
// on every node. Three nodes are the smallest cluster that survives the loss of one. The cluster is
// stopped when the test ends.
func StartCluster(tb testing.TB, nodes int, opts ...Option) *Cluster {
	tb.Helper()
	return startCluster(tb, false, nodes, opts)
}

// StartProcessCluster is like StartCluster, but runs every node in a separate process.
func StartProcessCluster(tb testing.TB, nodes int, opts ...Option) *Cluster {
	tb.Helper()
	return startCluster(tb, true, nodes, opts)
}

func startCluster(tb testing.TB, asProcess bool, nodes int, opts []Option) *Cluster {
	tb.Helper()
	if nodes < 2 {
		tb.Fatalf("natstest: %d node is no cluster", nodes)
	}
	// The name of the cluster is random, so that a node cannot join the cluster of another test
	// whose nodes use neighboring ports.
	name := "natstest-" + rand.Text()
	var routePorts []int
	var routes []string
	for range nodes {
		port := reservePort(tb)
		routePorts = append(routePorts, port)
		routes = append(routes, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	c := &Cluster{tb: tb}
	for i := range nodes {
		o := embednats.Options{}
		for _, opt := range opts {
			opt(&o)
		}
		o.StoreDir = tb.TempDir()
		o.Port = reservePort(tb)
		o.Name = nodeName(i)
		o.Cluster = &embednats.Cluster{Name: name, Port: routePorts[i], Routes: routes}
		n := newNode(tb, asProcess, o)
		n.Restart()
		c.nodes = append(c.nodes, n)
	}
	c.awaitReplicas()
	return c
}

func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// Node returns the i-th node, counted from 0. Unlike Cluster.Restart, Node.Restart does not wait
// until the cluster is ready.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// URLs returns the URLs of all nodes for clients, separated by commas.
func (c *Cluster) URLs() string {
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = n.URL()
	}
	return strings.Join(urls, ",")
}

// Connect connects a client to any of the nodes, like [Node.Connect].
func (c *Cluster) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return connect(tb, c.URLs(), opts)
}

// Stop shuts down the i-th node gracefully: the node hands over the streams that it leads.
func (c *Cluster) Stop(i int) {
	c.tb.Helper()
	c.nodes[i].Stop()
}

// Restart restarts the i-th node. If all nodes are then running, it waits until a new stream can
// have a replica on each; replicas of older streams may still be catching up.
func (c *Cluster) Restart(i int) {
	c.tb.Helper()
	c.nodes[i].Restart()
	for _, n := range c.nodes {
		if !n.isResponsive() {
			return
		}
	}
	c.awaitReplicas()
}

// Leader returns the index of the node that leads a stream. It waits until the leader is a node
// that is neither stopped nor paused.
func (c *Cluster) Leader(stream string) int {
	c.tb.Helper()
	var urls []string
	for _, n := range c.nodes {
		if n.isResponsive() {
			urls = append(urls, n.URL())
		}
	}
	nc, js := c.client(strings.Join(urls, ","))
	defer nc.Close()

	leader := -1
	c.await("a leader of stream "+stream, time.Second, func(ctx context.Context) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		cluster := s.CachedInfo().Cluster
		if cluster == nil {
			return errors.New("no cluster")
		}
		for i, n := range c.nodes {
			if nodeName(i) == cluster.Leader && n.isResponsive() {
				leader = i
				return nil
			}
		}
		return fmt.Errorf("leader %q", cluster.Leader)
	})
	return leader
}

// awaitReplicas waits until a stream can have a replica on every node: it creates such a stream,
// publishes to it through every node, and deletes it.
func (c *Cluster) awaitReplicas() {
	c.tb.Helper()
	const name = "natstest-ready"
	nc, js := c.client(c.nodes[0].URL())
	defer nc.Close()

	// While the cluster has no leader, the server does not respond. So limit each attempt to a
	// short time.
	c.await("a leader of the cluster", 200*time.Millisecond, func(ctx context.Context) error {
		_, err := js.AccountInfo(ctx)
		return err
	})
	c.await("a stream with all replicas", 2*time.Second, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Replicas: len(c.nodes), Storage: jetstream.MemoryStorage,
		})
		return err
	})
	for _, n := range c.nodes {
		own, from := c.client(n.URL())
		c.await("a way from "+n.URL()+" to the stream", time.Second,
			func(ctx context.Context) error {
				_, err := from.Publish(ctx, name, nil, jetstream.WithRetryAttempts(0))
				return err
			})
		own.Close()
	}
	for _, n := range c.nodes {
		n.keepStreamFolder()
	}
	c.await("the end of the stream", 2*time.Second, func(ctx context.Context) error {
		err := js.DeleteStream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}

// keepStreamFolder creates a folder beside the folders of the streams, so that their parent folder
// is never empty. A server removes the parent folder some time after the last stream was deleted,
// even while it is creating a new stream there. The creation then fails with "error creating store
// for stream". The server ignores a folder with a leading dot, and removes it when it starts.
func (n *Node) keepStreamFolder() {
	n.tb.Helper()
	streams := filepath.Join(n.StoreDir(), "jetstream", "$G", "streams")
	if err := os.MkdirAll(streams, 0o750); err != nil {
		n.tb.Fatalf("natstest: %v", err)
	}
	if _, err := os.MkdirTemp(streams, ".natstest-"); err != nil {
		n.tb.Fatalf("natstest: %v", err)
	}
}

// client returns a new connection to one of the servers with the given URLs, which are separated by
// commas. The caller must close it.
func (c *Cluster) client(urls string) (*nats.Conn, jetstream.JetStream) {
	c.tb.Helper()
	nc, err := nats.Connect(urls, nats.Name("natstest"), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		c.tb.Fatalf("natstest: connect to %s: %v", urls, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		c.tb.Fatalf("natstest: %v", err)
	}
	return nc, js
}

// await calls try until it succeeds. Each attempt has a context that limits its duration. If no
// attempt succeeds within clusterTimeout, the test fails with a message that contains what it
// waited for, as described by the parameter what.
func (c *Cluster) await(
	what string, attemptTimeout time.Duration, try func(context.Context) error,
) {
	c.tb.Helper()
	waiting, cancel := context.WithTimeout(c.tb.Context(), clusterTimeout)
	defer cancel()
	var err error
	retry.Until(waiting, 20*time.Millisecond, func() bool {
		ctx, cancel := context.WithTimeout(c.tb.Context(), attemptTimeout)
		defer cancel()
		err = try(ctx)
		return err == nil
	})
	if err != nil {
		c.tb.Fatalf("natstest: waited %s for %s: %v", clusterTimeout, what, err)
	}
}
