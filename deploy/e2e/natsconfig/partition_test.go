package natsconfig

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/embednats/proxy"
)

// While the network loses every packet, the servers of a cluster give up the routes to each other.
// When the network works again, they establish new routes. A server that kept a dead route would
// refuse the new one as a duplicate.
func TestRoutesAfterAPartition(t *testing.T) {
	links := make([]*proxy.Proxy, 3)
	listen := make([]string, 3)
	var routes []string
	for i := range links {
		port, err := freeport.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(port.Release)
		if links[i], err = proxy.New(port.Addr()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(links[i].Close)
		listen[i] = port.Addr()
		_, number, err := net.SplitHostPort(links[i].Addr())
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, "nats://localhost:"+number)
	}
	t.Setenv("NATSD_ROUTES", "["+strings.Join(routes, ", ")+"]")
	s := startSite(t, "cluster.conf", 3, func(i int) {
		t.Setenv("NATSD_NAME", "nats-"+strconv.Itoa(i))
		t.Setenv("NATSD_CLUSTER_LISTEN", listen[i])
	}, func(i int, o *server.Options) {
		// Advertise the address of the server's link. Otherwise the servers would learn each
		// other's own addresses and bypass the links.
		o.Cluster.Advertise = links[i].Addr()
	})
	whole := func() bool {
		for _, one := range s.servers {
			if one.JetStreamIsLeader() {
				return len(one.JetStreamClusterPeers()) == 3
			}
		}
		return false
	}
	eventually(t, "a cluster of three", whole)
	js, err := jetstream.New(s.connect(t, "executor"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:     "EXECUTIONS",
		Subjects: []string{"executions.start.>"},
		Replicas: 3,
	}); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		l.Silence()
	}
	eventually(t, "no server keeps a route to a silent one", func() bool {
		for _, one := range s.servers {
			if one.NumRoutes() > 0 {
				return false
			}
		}
		return true
	})
	for _, l := range links {
		l.Heal()
	}
	eventually(t, "a cluster of three after the partition", whole)
	began := time.Now()
	eventually(t, "the stream stores again", func() bool {
		_, err := js.Publish(t.Context(), "executions.start.q.wf.node", nil)
		return err == nil
	})
	t.Logf("stored %s after the cluster was whole", time.Since(began).Round(time.Millisecond))
}
