package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/retry"
)

// Scale measures how many deliveries per second NATS servers with limited CPU acknowledge: one
// stream on one server, one stream with three replicas, and the streams of three queues on three
// servers. The limit makes the NATS servers the bottleneck instead of the machine. The struct tags
// define the program's flags.
type Scale struct {
	Rounds int           `help:"How often each layout has a turn." default:"12"`
	Burst  time.Duration `help:"How long a turn is." default:"5s"`
	CPU    float64       `help:"Cores that each NATS server may use. 0: as many as it likes." default:"0.1"`
	LoadOptions
}

func (c *Scale) validate() error {
	return errors.Join(
		c.LoadOptions.validate(),
		checkRange("connections", float64(c.Connections), numServers, maxConnections/numServers),
		checkRange("rounds", float64(c.Rounds), 1, maxRounds),
		checkRange("burst", c.Burst.Seconds(), 0.01, maxBurstDuration.Seconds()),
		checkRange("cpu", c.CPU, 0, 16))
}

// numServers is the number of NATS servers in a cluster. It is also the number of workflows and of
// generators in Scale and, if the queues' own streams have one replica, the number of queues.
const numServers = 3

// cluster is an installation with one or more NATS servers, whose CPU may be limited.
type cluster struct {
	*system
	natsServers     []*process
	ingressAddrs    []string // the address of the ingress next to each NATS server
	cpuLimits       []cpuLimit
	ports           []*freeport.Port
	deliveryCounts  []uint64 // number of delivery IDs that each generator has used
	initialMemoryMB []int    // MB that each NATS server uses before the first turn
}

// scaleLayout is a layout to measure: a cluster, and how the deliveries are distributed in it.
type scaleLayout struct {
	name string
	*cluster
	// sendToNearIngress makes the generators send the deliveries of each queue to the ingress next
	// to the server with the queue's stream. If it is false, every ingress gets deliveries of all
	// queues.
	sendToNearIngress bool
	// allConnectionsPerQueue gives each queue as many senders (connections) as all queues have
	// together in the other layouts.
	allConnectionsPerQueue bool
	results                []scaleTurnResult
}

// scaleTurnResult holds the throughput and CPU usage measured in one turn of a layout.
type scaleTurnResult struct {
	deliveriesPerSecond float64
	coresUsed           []float64 // average number of cores used by each NATS server
	cpuMSPerThousand    float64   // CPU time of all NATS servers per 1,000 deliveries, in ms
}

// Run makes the measurement and writes its table to c.Out.
func (c *Scale) Run(ctx context.Context) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	at, err := newWorkspace(c.Out)
	if err != nil {
		return err
	}
	var clusters []*cluster
	defer func() {
		err = errors.Join(err, at.close())
		for _, cl := range clusters {
			err = errors.Join(err, cl.releaseResources())
		}
	}()
	start := func(name string, options clusterOptions) (*cluster, error) {
		cl := &cluster{}
		clusters = append(clusters, cl)
		_, err := at.startSystem(ctx, func(ctx context.Context, b *launcher) (*system, error) {
			cl.system = &system{name: b.name}
			return cl.system, cl.install(ctx, b, options)
		}, &launcher{binFolder: c.Bin, folder: at.folder, name: name})
		return cl, err
	}
	one, err := start("one", clusterOptions{servers: 1, cores: c.CPU})
	if err != nil {
		return err
	}
	synced, err := start("synced", clusterOptions{servers: 1, cores: c.CPU, syncAlways: true})
	if err != nil {
		return err
	}
	replicated, err := start("replicated",
		clusterOptions{servers: numServers, cores: c.CPU, replicas: numServers})
	if err != nil {
		return err
	}
	spread, err := start("spread", clusterOptions{servers: numServers, cores: c.CPU, replicas: 1})
	if err != nil {
		return err
	}
	layouts := []*scaleLayout{
		{name: "one stream on one server", cluster: one},
		{name: "the same, every message synced to the disk", cluster: synced},
		{name: "one stream, three replicas on three servers", cluster: replicated},
		{name: "three streams on three servers", cluster: spread},
		{
			name:              "the same, each queue's senders at the ingress beside it",
			cluster:           spread,
			sendToNearIngress: true,
		},
		{
			name:                   "the same, with as many senders per queue as for one stream",
			cluster:                spread,
			sendToNearIngress:      true,
			allConnectionsPerQueue: true,
		},
	}
	for round := range c.Rounds {
		for i := range layouts {
			l := layouts[(round+i)%len(layouts)] // each round begins with another layout
			at.progress.Show("round %d/%d", round+1, c.Rounds)
			t, err := c.measureLayout(ctx, l)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			l.results = append(l.results, t)
		}
	}
	at.progress.Done()
	c.writeResults(layouts)
	return writeAddedMemory(ctx, c.Out, one, spread)
}

// clusterOptions describes the NATS servers of an installation and the streams on them.
type clusterOptions struct {
	servers    int
	cores      float64 // cores that each server may use; 0 means no limit
	syncAlways bool    // sync every message to the disk
	// replicas is the number of replicas of the queues' own streams. 0 means one queue, which uses
	// the shared stream. 1 means three queues, whose own streams are on different servers. A
	// greater number means one queue, whose own stream gets all deliveries.
	replicas int64
}

// queueName returns the name of the nth queue.
func queueName(n int) string { return "queue" + strconv.Itoa(n) }

// serverName returns the name of the nth NATS server.
func serverName(n int) string { return "server-" + strconv.Itoa(n) }

// serverTag returns the tag with which streams are placed on the nth NATS server.
func serverTag(n int) string { return "server:" + strconv.Itoa(n) }

// install starts the NATS servers, and an ingress for each of them. It creates the queues and
// workflows through an executor, which it then stops. Once everything is ready, it limits the
// servers' CPU.
func (cl *cluster) install(ctx context.Context, b *launcher, o clusterOptions) error {
	addrs, err := cl.startServers(ctx, b, o)
	if err != nil {
		return err
	}
	if err := cl.connect("nats://" + addrs[0]); err != nil {
		return err
	}
	if err := cl.awaitJetStream(ctx); err != nil {
		return err
	}
	if err := cl.startExecutor(ctx, b, addrs[0]); err != nil {
		return err
	}
	if err := cl.createWorkflowsInQueues(ctx, o.replicas); err != nil {
		return err
	}
	for n, addr := range addrs {
		own := *b
		own.name += "-" + strconv.Itoa(n)
		ingress, err := cl.startIngress(ctx, &own, addr)
		if err != nil {
			return err
		}
		cl.ingressAddrs = append(cl.ingressAddrs, ingress)
	}
	cl.addr = cl.ingressAddrs[0]
	cl.stopExecutor()
	cl.deliveryCounts = make([]uint64, numServers)
	for _, p := range cl.natsServers {
		used, err := p.residentAfterGC(ctx)
		if err != nil {
			return err
		}
		cl.initialMemoryMB = append(cl.initialMemoryMB, used)
		if o.cores == 0 {
			continue
		}
		bound, err := limitCPU(p.PID(), o.cores)
		if err != nil {
			return err
		}
		cl.cpuLimits = append(cl.cpuLimits, bound)
	}
	return nil
}

// startServers starts the NATS servers and returns their addresses.
func (cl *cluster) startServers(
	ctx context.Context, b *launcher, o clusterOptions,
) (addrs []string, err error) {
	clients, routes := make([]*freeport.Port, o.servers), make([]*freeport.Port, o.servers)
	var routeAddrs []string
	for n := range o.servers {
		for _, port := range []**freeport.Port{&clients[n], &routes[n]} {
			if *port, err = freeport.Reserve(); err != nil {
				return nil, err
			}
			cl.ports = append(cl.ports, *port)
		}
		routeAddrs = append(routeAddrs, routes[n].Addr())
	}
	started := make([]*process, o.servers)
	for n := range o.servers {
		options := embednats.Options{
			Name:       serverName(n),
			Tags:       []string{serverTag(n)},
			StoreDir:   filepath.Join(b.dataDir("nats"), strconv.Itoa(n)),
			Port:       clients[n].Number,
			SyncAlways: o.syncAlways,
		}
		if o.servers > 1 {
			options.Cluster = &embednats.Cluster{
				Name:   "bench",
				Port:   routes[n].Number,
				Routes: routeAddrs,
			}
		}
		own := *b
		own.name += "-" + strconv.Itoa(n)
		var addr string
		if started[n], addr, err = cl.startNATSServer(ctx, &own, options); err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	cl.natsServers = started
	return addrs, nil
}

// awaitJetStream waits until the servers have formed a cluster.
func (cl *cluster) awaitJetStream(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	retry.Until(ctx, 100*time.Millisecond, func() bool {
		try, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = cl.js.CreateOrUpdateStream(try, jetstream.StreamConfig{
			Name:     "READY",
			Replicas: len(cl.natsServers),
		})
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("the NATS servers do not form a cluster: %w", err)
	}
	return cl.js.DeleteStream(ctx, "READY")
}

// createWorkflowsInQueues creates the workflows in their queues. Unless replicas is 0, it gives
// each queue its own stream with that many replicas.
func (cl *cluster) createWorkflowsInQueues(ctx context.Context, replicas int64) error {
	queues := numServers
	if replicas != 1 { // only unreplicated streams are spread over several queues
		queues = 1
	}
	if err := cl.makeWorkflows(ctx, 1); err != nil {
		return err
	}
	if err := cl.storeWorkflowCopies(ctx, numServers, func(record *registry.Workflow, n int) {
		record.Queue = queueName(n % queues)
	}); err != nil || replicas == 0 {
		return err
	}
	for n := range queues {
		put := api.PutQueueStream{Replicas: replicas}
		if queues > 1 {
			put.PlacementTags = []string{serverTag(n)}
		}
		if _, err := cl.api().SetQueueStream(ctx, queueName(n), put); err != nil {
			return err
		}
	}
	return nil
}

// releaseResources deletes the control groups and releases the ports. The processes must have
// ended.
func (cl *cluster) releaseResources() (err error) {
	for _, bound := range cl.cpuLimits {
		err = errors.Join(err, bound.remove())
	}
	for _, port := range cl.ports {
		port.Release()
	}
	return err
}

// measureLayout measures one turn of a layout: it sends deliveries to all queues for the duration
// of a burst. A shorter burst before that warms the connections up, and is not measured.
func (c *Scale) measureLayout(ctx context.Context, l *scaleLayout) (t scaleTurnResult,
	err error,
) {
	generators := make([]*generator, numServers)
	connections := c.Connections / numServers
	if l.allConnectionsPerQueue {
		connections = c.Connections
	}
	for n := range generators {
		to, workflows := l.requestTarget, numServers
		to.addr = l.ingressAddrs[n%len(l.ingressAddrs)]
		if l.sendToNearIngress {
			to.firstWorkflow, workflows = n+1, 1
		} else {
			to.firstWorkflow = 1
		}
		g, err := newGenerator(to, connections, c.BodyBytes, workflows, uint64(n),
			&l.deliveryCounts[n])
		if err != nil {
			return t, err
		}
		defer g.close()
		generators[n] = g
	}
	if _, err := runGenerators(ctx, generators, min(unmeasuredLeadInTime, c.Burst)); err != nil {
		return t, err
	}
	before, err := l.cpuOfServers()
	if err != nil {
		return t, err
	}
	began := time.Now()
	results, err := runGenerators(ctx, generators, c.Burst)
	if err != nil {
		return t, err
	}
	took := time.Since(began)
	after, err := l.cpuOfServers()
	if err != nil {
		return t, err
	}
	count, used := 0, time.Duration(0)
	for _, r := range results {
		count += r.answered
		t.deliveriesPerSecond += float64(r.answered) / r.took.Seconds()
	}
	for n := range after {
		used += after[n] - before[n]
		t.coresUsed = append(t.coresUsed, (after[n]-before[n]).Seconds()/took.Seconds())
	}
	t.cpuMSPerThousand = used.Seconds() * 1e6 / float64(count)
	return t, nil
}

// runGenerators runs the generators concurrently in closed loops, and returns their results in the
// same order.
func runGenerators(
	ctx context.Context,
	generators []*generator,
	burst time.Duration,
) ([]burstResult, error) {
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	results, errs := make([]burstResult, len(generators)), make(chan error)
	for n, g := range generators {
		go func() {
			var err error
			results[n], err = g.run(burst, 0)
			errs <- err
		}()
	}
	var err error
	for range generators {
		err = errors.Join(err, <-errs)
	}
	return results, err
}

// cpuOfServers returns the CPU time that each NATS server has used so far.
func (cl *cluster) cpuOfServers() (used []time.Duration, err error) {
	for _, p := range cl.natsServers {
		cpu, err := cpuTime(p.PID())
		if err != nil {
			return nil, err
		}
		used = append(used, cpu)
	}
	return used, nil
}

func (c *Scale) writeResults(layouts []*scaleLayout) {
	values := func(runs []scaleTurnResult, number func(scaleTurnResult) float64) []float64 {
		var all []float64
		for _, t := range runs {
			all = append(all, number(t))
		}
		return all
	}
	rate := func(t scaleTurnResult) float64 { return t.deliveriesPerSecond }
	bound := "with no bound for the NATS servers"
	if c.CPU > 0 {
		bound = fmt.Sprintf("while each NATS server may use %g of a core", c.CPU)
	}
	writeTable(c.Out,
		fmt.Sprintf("Acknowledged deliveries, %s. Median of %d rounds of %s (quartiles).", bound,
			c.Rounds, c.Burst),
		"\tdeliveries/s\t× one stream\tms of NATS CPU per 1,000\tcores used, by the busiest server"+
			"\tby the idlest",
		func(w io.Writer) {
			for _, l := range layouts {
				ratios := values(l.results, rate)
				for i, t := range layouts[0].results {
					ratios[i] /= t.deliveriesPerSecond
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%.2f\n", l.name,
					quartilesOf(values(l.results, rate)).format("%.0f"),
					quartilesOf(ratios).format("%.2f"),
					quartilesOf(values(l.results, func(t scaleTurnResult) float64 {
						return t.cpuMSPerThousand
					})).format("%.0f"),
					quartilesOf(values(l.results, func(t scaleTurnResult) float64 {
						return slices.Max(t.coresUsed)
					})).median,
					quartilesOf(values(l.results, func(t scaleTurnResult) float64 {
						return slices.Min(t.coresUsed)
					})).median)
			}
		})
}

// writeAddedMemory writes how much memory each NATS server has gained over all turns: in MB, and in
// bytes for each delivery to its cluster.
func writeAddedMemory(ctx context.Context, out io.Writer, clusters ...*cluster) error {
	_, _ = fmt.Fprintln(out, "\nMemory that the turns have added:")
	for _, cl := range clusters {
		deliveries := uint64(0)
		for _, sent := range cl.deliveryCounts {
			deliveries += sent
		}
		_, _ = fmt.Fprintf(out, "%s: %d deliveries,", cl.name, deliveries)
		for n, p := range cl.natsServers {
			used, err := p.residentAfterGC(ctx)
			if err != nil {
				return err
			}
			added := used - cl.initialMemoryMB[n]
			_, _ = fmt.Fprintf(out, " server %d: %d MB, %.0f bytes for each;", n, added,
				float64(added)*(1<<20)/float64(deliveries))
		}
		_, _ = fmt.Fprintln(out)
	}
	return nil
}
