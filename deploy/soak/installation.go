package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/embednats/proxy"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
)

const adminToken = "the-admin-token-of-the-soak"

// installConfig holds the number of processes of each kind, and settings of their storage.
type installConfig struct {
	nodes, ingresses, executors, runners int

	ownStreamCount int            // number of queues with a stream of their own
	databaseURL    string         // URL of an SQLite database
	database       *pgtest.Server // PostgreSQL instead of SQLite; nil means SQLite
	firstNodeDisk  *disk          // disk of the first node; nil means the installation's folder
}

// installation is a production-like hookstart installation, whose processes run on loopback or on
// separate hosts.
type installation struct {
	folder             string
	ownStreamCount     int                     // number of queues with a stream of their own
	reservedPorts      []*freeport.Port        // reserved until close
	nodeLinks          map[[2]int]*proxy.Proxy // keyed by the numbers of two nodes: from, to
	nodes              []*node
	ingresses          []*service
	executors          []*service
	runners            []*service
	webhookPaths       []string      // URL paths of the workflows' webhooks
	toggledWebhookPath string        // path of the webhook of toggledWorkflowID
	natsOptions        []nats.Option // options for the soak's connections to NATS

	nc *nats.Conn
	js jetstream.JetStream
}

// node is a NATS server.
type node struct {
	*process
	addr      string // address for clients
	url       string
	healthURL string
	storeDir  string
	disk      *disk // nil means that the node shares a disk with the other processes
}

// service is an ingress, an executor or a runner. On loopback, it connects to each node and to the
// database through separate links, so that each connection can be broken.
type service struct {
	*process
	url, opsURL  string // "" for a runner
	natsLinks    []*proxy.Proxy
	databaseLink *proxy.Proxy // an executor's link to PostgreSQL; nil means that there is none
	runsFile     string       // file to which a runner writes the executions that it receives
}

// links returns the service's links to all nodes and, if it has one, its link to the database.
func (s *service) links() []*proxy.Proxy {
	if s.databaseLink == nil {
		return s.natsLinks
	}
	return append([]*proxy.Proxy{s.databaseLink}, s.natsLinks...)
}

// install starts all processes and creates the workflows. If it returns an error, nothing is left
// running. Otherwise the caller must call close.
func install(ctx context.Context, folder string, s installConfig) (*installation, error) {
	i := &installation{
		folder:         folder,
		ownStreamCount: s.ownStreamCount,
		nodeLinks:      map[[2]int]*proxy.Proxy{},
	}
	if err := i.prepareAndStart(ctx, s); err != nil {
		for _, complaint := range i.problems() {
			err = errors.Join(err, errors.New(complaint))
		}
		i.close()
		return nil, err
	}
	return i, nil
}

func (i *installation) prepareAndStart(ctx context.Context, s installConfig) error {
	if err := i.addNodes(s.nodes, s.firstNodeDisk); err != nil {
		return err
	}
	if err := i.addServices(s); err != nil {
		return err
	}
	return i.startAll(ctx)
}

// startAll starts the processes, connects to NATS, and creates the workflows.
func (i *installation) startAll(ctx context.Context) error {
	for _, p := range i.nodes {
		if err := p.start(); err != nil {
			return err
		}
	}
	// The services wait for the nodes as well, but longer. Wait here first, so that a failure is
	// reported sooner.
	if err := i.awaitClusterLeader(ctx, time.Minute); err != nil {
		return err
	}
	for _, e := range i.listeningServices() {
		if err := e.start(); err != nil {
			return err
		}
	}
	if err := i.awaitReady(ctx, time.Minute); err != nil {
		return err
	}
	for _, r := range i.runners {
		if err := r.start(); err != nil {
			return err
		}
	}
	if err := i.connect(); err != nil {
		return err
	}
	if err := i.makeWorkflows(ctx); err != nil {
		return err
	}
	return i.createOwnStreams(ctx)
}

// addServices prepares the ingresses, executors and runners without starting them.
func (i *installation) addServices(s installConfig) error {
	for n := range s.executors {
		name := "executor-" + strconv.Itoa(n)
		database, databaseURL := (*proxy.Proxy)(nil), s.databaseURL
		if s.database != nil {
			var err error
			if database, err = proxy.New(s.database.Socket()); err != nil {
				return err
			}
			databaseURL = "postgres://postgres@" + database.Addr() +
				"/postgres?sslmode=disable&application_name=" + name
		}
		e, err := i.newService(name, roleExecutor, "--database-url="+databaseURL,
			"--admin-token="+adminToken, "--replicas="+strconv.Itoa(s.nodes),
			"--public-url=https://hooks.example.com")
		if err != nil {
			return err
		}
		e.databaseLink = database
		i.executors = append(i.executors, e)
	}
	for n := range s.ingresses {
		e, err := i.newService("ingress-"+strconv.Itoa(n), roleIngress)
		if err != nil {
			return err
		}
		i.ingresses = append(i.ingresses, e)
	}
	for n := range s.runners {
		links, natsURL, err := i.newNATSLinks()
		if err != nil {
			return err
		}
		name := "runner-" + strconv.Itoa(n)
		runs := filepath.Join(i.folder, name+".runs")
		i.runners = append(i.runners, &service{
			process: newProcess(i.folder, name,
				append([]string{roleRunner, natsURL, runs}, i.queues()...)...),
			natsLinks: links,
			runsFile:  runs,
		})
	}
	return nil
}

// newNATSLinks returns new links to all nodes, and a NATS URL that lists the addresses of these
// links.
func (i *installation) newNATSLinks() (links []*proxy.Proxy, natsURL string, err error) {
	urls := make([]string, len(i.nodes))
	for n, to := range i.nodes {
		link, err := proxy.New(to.addr)
		if err != nil {
			return nil, "", err
		}
		links, urls[n] = append(links, link), "nats://"+link.Addr()
	}
	return links, strings.Join(urls, ","), nil
}

// addNodes prepares the NATS nodes without starting them. Each node connects to each other node
// through a separate link. first is the disk of the first node; nil means that it stores its data
// in the installation's folder, like the other nodes.
func (i *installation) addNodes(count int, first *disk) error {
	clients, routes, monitors := make([]*freeport.Port, count), make([]*freeport.Port, count),
		make([]*freeport.Port, count)
	for n := range count {
		for _, port := range []**freeport.Port{&clients[n], &routes[n], &monitors[n]} {
			var err error
			if *port, err = i.reservePort(); err != nil {
				return err
			}
		}
	}
	for n := range count {
		name, folder := "node-"+strconv.Itoa(n), i.folder
		addr := clients[n].Addr()
		added := &node{
			addr:      addr,
			url:       "nats://" + addr,
			healthURL: "http://" + monitors[n].Addr() + livenessPath,
		}
		if n == 0 && first != nil {
			added.disk, folder = first, first.folder
		}
		added.storeDir = filepath.Join(folder, name)
		o := embednats.Options{
			Name:        name,
			StoreDir:    added.storeDir,
			Port:        clients[n].Number,
			MonitorPort: monitors[n].Number,
		}
		if count > 1 {
			// Without an advertised address, nodes would tell each other their real addresses, and
			// could then bypass the links. The advertised address leads nowhere.
			o.Cluster = &embednats.Cluster{
				Name:      "soak",
				Port:      routes[n].Number,
				Advertise: "127.0.0.1:1",
			}
			for other := range count {
				if other == n {
					continue
				}
				link, err := proxy.New(routes[other].Addr())
				if err != nil {
					return err
				}
				i.nodeLinks[[2]int{n, other}] = link
				o.Cluster.Routes = append(o.Cluster.Routes, link.Addr())
			}
		}
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		added.process = newProcess(i.folder, name, roleNode, string(text))
		i.nodes = append(i.nodes, added)
	}
	return nil
}

func (i *installation) reservePort() (*freeport.Port, error) {
	port, err := freeport.Reserve()
	if err == nil {
		i.reservedPorts = append(i.reservedPorts, port)
	}
	return port, err
}

func (i *installation) newService(name, role string, flags ...string) (*service, error) {
	port, err := i.reservePort()
	if err != nil {
		return nil, err
	}
	opsPort, err := i.reservePort()
	if err != nil {
		return nil, err
	}
	links, natsURL, err := i.newNATSLinks()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		role, "--addr=" + port.Addr(), "--ops-addr=" + opsPort.Addr(), "--log-level=warn",
		"--connect-timeout=2m",
		"--nats-url=" + natsURL,
	}, flags...)
	return &service{
		process:   newProcess(i.folder, name, args...),
		url:       "http://" + port.Addr(),
		opsURL:    "http://" + opsPort.Addr(),
		natsLinks: links,
	}, nil
}

// listeningServices returns the services that listen for requests and report their readiness:
// ingresses and executors.
func (i *installation) listeningServices() []*service {
	return slices.Concat(i.ingresses, i.executors)
}

func (i *installation) processes() (all []*process) {
	for _, n := range i.nodes {
		all = append(all, n.process)
	}
	for _, s := range slices.Concat(i.ingresses, i.executors, i.runners) {
		all = append(all, s.process)
	}
	return all
}

// readiness returns the body of the service's /readyz, or the text of the error if the request
// failed. ready reports whether the status was 200.
func (s *service) readiness(ctx context.Context) (text string, ready bool) {
	status, text, err := child.HTTPGet(ctx, s.opsURL+"/readyz")
	if err != nil {
		return err.Error(), false
	}
	return text, status == http.StatusOK
}

// awaitReady waits until every ingress and executor reports that it is ready.
func (i *installation) awaitReady(ctx context.Context, timeout time.Duration) error {
	for _, s := range i.listeningServices() {
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

// connect opens the soak's connection to NATS.
func (i *installation) connect() (err error) {
	var urls []string
	for _, n := range i.nodes {
		urls = append(urls, n.url)
	}
	i.nc, err = nats.Connect(strings.Join(urls, ","),
		append(i.natsOptions, nats.Name("soak"), nats.MaxReconnects(-1),
			nats.ReconnectWait(100*time.Millisecond))...)
	if err != nil {
		return err
	}
	i.js, err = jetstream.New(i.nc)
	return err
}

// minWorkflows is the minimum number of workflows that the senders call. If there are more queues
// than that, each queue has one workflow. toggledWorkflowID is the ID of a further workflow, which
// is activated and deactivated repeatedly.
const (
	minWorkflows      = 3
	toggledWorkflowID = "switched"
)

func (i *installation) makeWorkflows(ctx context.Context) error {
	_, err := i.client().PutAccount(ctx, "soak", api.PutAccount{Name: "Soak", Plan: "ultra"})
	if err != nil {
		return err
	}
	queues := i.queues()
	for n := range max(minWorkflows, len(queues)) {
		path, err := i.makeWorkflow(ctx, "soak-"+strconv.Itoa(n), queues[n%len(queues)])
		if err != nil {
			return err
		}
		i.webhookPaths = append(i.webhookPaths, path)
	}
	i.toggledWebhookPath, err = i.makeWorkflow(ctx, toggledWorkflowID, execution.DefaultQueue)
	return err
}

// makeWorkflow creates and activates a workflow, and returns the URL path of its webhook.
func (i *installation) makeWorkflow(
	ctx context.Context, id, queue string,
) (path string, err error) {
	client := i.client()
	if _, err := client.PutWorkflow(ctx, id, api.PutWorkflow{
		AccountID: "soak",
		Name:      id,
		Queue:     queue,
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: "node"}},
	}); err != nil {
		return "", err
	}
	if _, err := client.Activate(ctx, id); err != nil {
		return "", err
	}
	trigger, err := client.Trigger(ctx, id, "node")
	_, path, _ = strings.Cut(trigger.URL, "/webhooks/")
	return "/webhooks/" + path, err
}

func (i *installation) client() *apiclient.Client {
	return apiclient.New(i.executors[0].url, adminToken)
}

// awaitClusterLeader waits until every node knows the leader of the cluster.
func (i *installation) awaitClusterLeader(ctx context.Context, timeout time.Duration) error {
	for _, n := range i.nodes {
		if err := eventually(ctx, timeout, func(ctx context.Context) error {
			return i.checkKnowsLeader(ctx, n.url)
		}); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// awaitReplicas waits until every node knows the leader of the cluster and has caught up with every
// stream.
func (i *installation) awaitReplicas(ctx context.Context, timeout time.Duration) error {
	if err := i.awaitClusterLeader(ctx, timeout); err != nil {
		return err
	}
	return eventually(ctx, timeout, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		all := i.js.ListStreams(ctx)
		var errs []error
		for info := range all.Info() {
			errs = append(errs, checkReplicas(info))
		}
		return errors.Join(append(errs, all.Err())...)
	})
}

// checkReplicas returns an error if a stream has no leader, or if one of its replicas is offline or
// not current.
func checkReplicas(s *jetstream.StreamInfo) error {
	c := s.Cluster
	if c == nil {
		return nil // a single node has no replicas
	}
	if c.Leader == "" {
		return fmt.Errorf("%s has no leader", s.Config.Name)
	}
	for _, peer := range c.Replicas {
		if peer.Offline || !peer.Current {
			return fmt.Errorf("%s is not current in %s", peer.Name, s.Config.Name)
		}
	}
	return nil
}

// checkKnowsLeader returns an error unless the NATS server at the URL knows the leader of the
// cluster.
func (i *installation) checkKnowsLeader(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, append(i.natsOptions, nats.Name("soak"),
		nats.Timeout(time.Second))...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// Limit the duration of the request, because a node that knows no leader does not respond to
	// it.
	ctx, cancel := context.WithTimeout(ctx, time.Second/4)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	return err
}

// linksBetween returns the two links between a pair of nodes, one for each direction.
func (i *installation) linksBetween(a, b int) []*proxy.Proxy {
	return []*proxy.Proxy{i.nodeLinks[[2]int{a, b}], i.nodeLinks[[2]int{b, a}]}
}

// linksAround returns the links between a node and each other node, in both directions.
func (i *installation) linksAround(node int) []*proxy.Proxy {
	var all []*proxy.Proxy
	for other := range i.nodes {
		if other != node {
			all = append(all, i.linksBetween(node, other)...)
		}
	}
	return all
}

// close kills every process, and releases the links and ports.
func (i *installation) close() {
	if i.nc != nil {
		i.nc.Close()
	}
	for _, p := range i.processes() {
		p.kill()
	}
	for _, l := range i.nodeLinks {
		l.Close()
	}
	for _, s := range slices.Concat(i.ingresses, i.executors, i.runners) {
		for _, l := range s.links() {
			l.Close()
		}
	}
	for _, p := range i.reservedPorts {
		p.Release()
	}
}

// problems describes everything that went wrong in the processes, such as unexpected exits.
func (i *installation) problems() (all []string) {
	for _, p := range i.processes() {
		all = append(all, p.recordedAndLoggedProblems()...)
	}
	return all
}

// eventually calls try repeatedly until it succeeds, or until ctx is done or the timeout has
// passed. If try never succeeds, the returned error wraps the error of the last call that returned
// in time, because the error of a later call only says that the context is done. If not even the
// first call returned in time, the returned error wraps the error of that call.
func eventually(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err, last error
	retry.Until(ctx, 50*time.Millisecond, func() bool {
		if err = try(ctx); last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("after %s: %w", timeout, last)
	}
	return nil
}
