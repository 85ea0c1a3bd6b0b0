package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/stream"
)

const adminToken = "the-admin-token-of-the-soak"

// shape is how many of which processes there are.
type shape struct {
	nodes, ingresses, executors int
	databaseURL                 string
}

// installation is hookstart in the production shape, on loopback.
type installation struct {
	folder    string
	ports     ports
	links     map[[2]int]*link // from node to node
	nodes     []*process
	nodeURLs  []string
	ingresses []*service
	executors []*service
	paths     []string // of the workflows' webhooks

	nc *nats.Conn
	js jetstream.JetStream
}

// service is an ingress or an executor.
type service struct {
	*process
	url, opsURL string
}

// install starts everything and makes the workflows. What it has started it ends again
// when it fails; else close does.
func install(ctx context.Context, folder string, s shape) (*installation, error) {
	i := &installation{folder: folder, links: map[[2]int]*link{}}
	if err := i.start(ctx, s); err != nil {
		err = errors.Join(append([]error{err}, i.failures()...)...)
		i.close()
		return nil, err
	}
	return i, nil
}

func (i *installation) start(ctx context.Context, s shape) error {
	if err := i.addNodes(s.nodes); err != nil {
		return err
	}
	natsURL := strings.Join(i.nodeURLs, ",")
	for n := range s.executors {
		e, err := i.newService("executor-"+strconv.Itoa(n), roleExecutor, "--nats-url="+natsURL, "--database-url="+s.databaseURL,
			"--admin-token="+adminToken, "--replicas="+strconv.Itoa(s.nodes), "--public-url=https://hooks.example.com")
		if err != nil {
			return err
		}
		i.executors = append(i.executors, e)
	}
	for n := range s.ingresses {
		e, err := i.newService("ingress-"+strconv.Itoa(n), roleIngress, "--nats-url="+natsURL)
		if err != nil {
			return err
		}
		i.ingresses = append(i.ingresses, e)
	}
	for _, p := range i.nodes {
		if err := p.start(); err != nil {
			return err
		}
	}
	// They would wait by themselves, and longer.
	if err := i.awaitNodes(ctx, time.Minute); err != nil {
		return err
	}
	for _, e := range i.services() {
		if err := e.start(); err != nil {
			return err
		}
	}
	if err := i.awaitReady(ctx, time.Minute); err != nil {
		return err
	}
	if err := i.connect(natsURL); err != nil {
		return err
	}
	return i.makeWorkflows(ctx)
}

// addNodes prepares the NATS nodes. Each reaches each other one by a link of its own.
func (i *installation) addNodes(count int) error {
	clients, routes := make([]string, count), make([]string, count)
	for n := range count {
		var err error
		if clients[n], err = i.ports.reserve(); err != nil {
			return err
		}
		if routes[n], err = i.ports.reserve(); err != nil {
			return err
		}
	}
	for n := range count {
		o := embednats.Options{Name: "node-" + strconv.Itoa(n), StoreDir: i.folder + "/node-" + strconv.Itoa(n), Port: portOf(clients[n])}
		if count > 1 {
			// Nodes tell each other where the others listen. That must lead nowhere, or they
			// would find a way around the links.
			o.Cluster = &embednats.Cluster{Name: "soak", Port: portOf(routes[n]), Advertise: "127.0.0.1:1"}
			for other := range count {
				if other == n {
					continue
				}
				way, err := newLink(routes[other])
				if err != nil {
					return err
				}
				i.links[[2]int{n, other}] = way
				o.Cluster.Routes = append(o.Cluster.Routes, way.addr())
			}
		}
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		i.nodes = append(i.nodes, newProcess(i.folder, o.Name, roleNode, string(text)))
		i.nodeURLs = append(i.nodeURLs, "nats://"+clients[n])
	}
	return nil
}

func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr) // our own: it is one
	number, _ := strconv.Atoi(port)
	return number
}

func (i *installation) newService(name, role string, flags ...string) (*service, error) {
	addr, err := i.ports.reserve()
	if err != nil {
		return nil, err
	}
	opsAddr, err := i.ports.reserve()
	if err != nil {
		return nil, err
	}
	args := append([]string{role, "--addr=" + addr, "--ops-addr=" + opsAddr, "--log-level=warn"}, flags...)
	return &service{process: newProcess(i.folder, name, args...), url: "http://" + addr, opsURL: "http://" + opsAddr}, nil
}

func (i *installation) services() []*service {
	return append(append([]*service{}, i.ingresses...), i.executors...)
}

func (i *installation) processes() []*process {
	all := append([]*process{}, i.nodes...)
	for _, s := range i.services() {
		all = append(all, s.process)
	}
	return all
}

// readiness is the answer of a service's /readyz, and whether it is ready.
func (s *service) readiness(ctx context.Context) (text string, ready bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.opsURL+"/readyz", nil)
	if err != nil {
		return err.Error(), false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error(), false
	}
	defer func() { _ = response.Body.Close() }()
	body := make([]byte, 1000)
	n, _ := response.Body.Read(body)
	return strings.TrimSpace(string(body[:n])), response.StatusCode == http.StatusOK
}

// awaitReady waits until every service says that it is ready.
func (i *installation) awaitReady(ctx context.Context, timeout time.Duration) error {
	for _, s := range i.services() {
		if err := s.awaitReady(ctx, timeout); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) awaitReady(ctx context.Context, timeout time.Duration) error {
	return eventually(ctx, timeout, func(ctx context.Context) error {
		if text, ready := s.readiness(ctx); !ready {
			return fmt.Errorf("%s is not ready: %s", s.name, text)
		}
		return nil
	})
}

// connect opens the soak's own connection.
func (i *installation) connect(natsURL string) (err error) {
	i.nc, err = nats.Connect(natsURL, nats.Name("soak"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	i.js, err = jetstream.New(i.nc)
	return err
}

// The workflows that senders call.
const workflows = 3

func (i *installation) makeWorkflows(ctx context.Context) error {
	client := i.client()
	_, err := client.PutAccount(ctx, "soak", api.PutAccount{Name: "Soak", Plan: "ultra"})
	if err != nil {
		return err
	}
	for n := range workflows {
		id := "soak-" + strconv.Itoa(n)
		if _, err := client.PutWorkflow(ctx, id, api.PutWorkflow{
			AccountID: "soak", Name: id, RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
			Triggers: []api.PutTrigger{{NodeID: "node"}},
		}); err != nil {
			return err
		}
		if _, err := client.Activate(ctx, id); err != nil {
			return err
		}
		trigger, err := client.Trigger(ctx, id, "node")
		if err != nil {
			return err
		}
		_, path, _ := strings.Cut(trigger.URL, "/webhooks/")
		i.paths = append(i.paths, "/webhooks/"+path)
	}
	return nil
}

func (i *installation) client() *apiclient.Client {
	return apiclient.New(i.executors[0].url, adminToken)
}

// awaitNodes waits until every node is in touch with the cluster.
func (i *installation) awaitNodes(ctx context.Context, timeout time.Duration) error {
	for _, url := range i.nodeURLs {
		if err := eventually(ctx, timeout, func(ctx context.Context) error { return answers(ctx, url) }); err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
	}
	return nil
}

// awaitReplicas waits until every node is in touch with the cluster and has all of the
// stream.
func (i *installation) awaitReplicas(ctx context.Context, timeout time.Duration) error {
	if err := i.awaitNodes(ctx, timeout); err != nil {
		return err
	}
	return eventually(ctx, timeout, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s, err := i.js.Stream(ctx, stream.Name)
		if err != nil {
			return err
		}
		c := s.CachedInfo().Cluster
		if c == nil {
			return nil // one node, no replicas
		}
		if c.Leader == "" {
			return errors.New("the stream has no leader")
		}
		for _, peer := range c.Replicas {
			if peer.Offline || !peer.Current {
				return fmt.Errorf("%s is not current", peer.Name)
			}
		}
		return nil
	})
}

// answers says whether a node knows a leader of the cluster.
func answers(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, nats.Name("soak"), nats.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second/4) // without a leader there is no answer
	defer cancel()
	_, err = js.AccountInfo(ctx)
	return err
}

// between are the links between two nodes.
func (i *installation) between(a, b int) []*link {
	return []*link{i.links[[2]int{a, b}], i.links[[2]int{b, a}]}
}

// around are the links between a node and all others.
func (i *installation) around(node int) []*link {
	var all []*link
	for other := range i.nodes {
		if other != node {
			all = append(all, i.between(node, other)...)
		}
	}
	return all
}

// close ends every process.
func (i *installation) close() {
	if i.nc != nil {
		i.nc.Close()
	}
	for _, p := range i.processes() {
		p.kill()
	}
	for _, l := range i.links {
		l.close()
	}
	i.ports.close()
}

// complaints are what the processes did that nobody asked for.
func (i *installation) complaints() []string {
	var all []string
	for _, p := range i.processes() {
		all = append(all, p.complaints()...)
	}
	return all
}

// failures are the complaints as errors.
func (i *installation) failures() (all []error) {
	for _, complaint := range i.complaints() {
		all = append(all, errors.New(complaint))
	}
	return all
}

// eventually tries until it works; past the timeout it returns the last error.
func eventually(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", timeout, err)
		case <-tick.C:
		}
	}
}
