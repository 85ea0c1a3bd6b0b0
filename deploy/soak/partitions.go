package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/network"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/retry"
)

// PartitionsConfig configures a soak test on three hosts with network partitions between them. The
// struct tags define the program's flags.
type PartitionsConfig struct {
	Duration   time.Duration `help:"Duration of load and partitions." default:"10m"`
	Seed       uint64        `help:"Seed of the random choice of partitions. 0: another one each time; it is printed." default:"0"`
	Rate       float64       `help:"Deliveries per second, in addition to ten probes per second at each ingress." default:"60"`
	Senders    int           `help:"Number of senders that send at the same time." default:"200"`
	Operators  int           `help:"Number of operators that change the registry at the same time." default:"4"`
	Only       string        `help:"Cause only the partitions whose name contains this, such as 'alone' or 'bridge'."`
	NATSConfig string        `name:"nats-config" help:"The configuration of the NATS servers." default:"deploy/nats/cluster.conf" type:"path"`
	Verbose    bool          `help:"Print each partition when it is over."`
	Keep       bool          `help:"Keep the folder with the data and the logs; otherwise it is kept only when something is wrong."`

	// Out receives the progress and the ledger. nil means stdout.
	Out io.Writer `kong:"-"`
	// failOnlyOnDataLoss makes RunPartitions only print the following, instead of also returning an
	// error: responses that contradict a change, first responses that are wrongly marked as
	// deduplicated, and ingresses that recover slowly.
	failOnlyOnDataLoss bool
}

// hostNames are the names of the three hosts.
var hostNames = []string{"a", "b", "c"}

// RunPartitions repeatedly breaks the network between three hosts, each with a NATS server, an
// ingress, an executor and a runner, under load and while operators change the registry. It returns
// an error if anything acknowledged is lost or exists twice, if a response contradicts a change
// that was confirmed earlier, if the hosts recover too slowly, or if ctx ends before the soak does.
// The error wraps errors.ErrUnsupported if the machine cannot create the hosts.
func RunPartitions(ctx context.Context, c PartitionsConfig) (err error) {
	if c.Duration <= 0 || c.Rate <= 0 || c.Senders <= 0 || c.Operators <= 0 {
		return errors.New("--duration, --rate, --senders and --operators must be more than 0")
	}
	if c.Out == nil {
		c.Out = os.Stdout
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // not a secret
	}
	hosts, err := network.New(c.Seed, hostNames...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.Close()) }()
	return runInTempDir(ctx, "hookstart-partitions-", c.Keep, c.Out, func(folder string) error {
		return c.runIn(ctx, folder, hosts)
	})
}

func (c *PartitionsConfig) runIn(
	ctx context.Context,
	folder string,
	hosts *network.Network,
) (err error) {
	_, _ = fmt.Fprintf(c.Out,
		"seed %d: 3 hosts with a NATS server, an ingress, an executor and a runner each; "+
			"PostgreSQL; %s\n", c.Seed, c.Duration)
	database, err := pgtest.Create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Remove()) }()
	i, err := installOnHosts(ctx, folder, c.NATSConfig, hosts.Hosts(), database, false)
	if err == nil {
		defer i.close()
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	began := time.Now()
	b := newLedger()
	s := newSenders(b, i, strconv.FormatUint(c.Seed, 10))
	alone, err := newNATSProbes(ctx, i)
	if err != nil {
		return err
	}
	defer alone.close()
	f := &partitioner{
		network: hosts, installation: i, probes: newProbes(s, i), natsProbes: alone,
		kindFilter: c.Only,
		random:     rand.New(rand.NewPCG(c.Seed, 0)), //nolint:gosec // not a secret
		logf: func(format string, args ...any) {
			if c.Verbose {
				_, _ = fmt.Fprintf(c.Out, "%6s  %s\n", time.Since(began).Round(time.Second),
					fmt.Sprintf(format, args...))
			}
		},
	}
	all, err := newOperators(ctx, c.Operators, i, s, f, c.Seed)
	if err != nil {
		return err
	}
	r := &report{seed: c.Seed}
	if err := c.runLoadAndPartitions(ctx, i, s, f, all, r); err != nil {
		return err
	}
	if err := r.addAudit(ctx, i, b, f.incidents(), nil); err != nil {
		return err
	}
	r.processProblems, r.contradictions = i.problems(), all.allContradictions()
	r.write(c.Out)
	all.writeCounts(c.Out)
	f.writeResults(c.Out)
	if c.failOnlyOnDataLoss {
		r.contradictions = nil
		return r.violationsErr()
	}
	return errors.Join(r.violationsErr(), f.slowRecoveriesErr(), r.falseRepeatsErr())
}

// runLoadAndPartitions runs the senders, the operators and the partitions until c.Duration is over,
// and then waits until everything is recorded.
func (c *PartitionsConfig) runLoadAndPartitions(
	ctx context.Context, i *installation, s *senders, f *partitioner, all *operators, r *report,
) error {
	began := time.Now()
	showing, stopShowing := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() {
		showProgress(showing, c.Out, began, func() string { return f.progressText(s.ledger, all) })
	})
	func() {
		starting, cancel := context.WithTimeout(ctx, c.Duration)
		defer cancel()
		var load, parting sync.WaitGroup
		// Continue the measurements after the last partition, because they include the recovery
		// from it.
		measuring, stopMeasuring := context.WithCancel(ctx)
		defer stopMeasuring()
		load.Go(func() { s.sendLoad(ctx, starting, c.Senders, c.Rate, c.Seed) })
		load.Go(func() { all.makeChanges(ctx, measuring) })
		load.Go(func() { f.probes.run(ctx, measuring) })
		load.Go(func() { f.natsProbes.run(ctx, measuring) })
		parting.Go(func() { f.run(ctx, starting) })
		parting.Wait()
		stopMeasuring()
		load.Wait()
	}()
	stopShowing()
	shown.Wait()
	r.loadDuration = time.Since(began)
	if ctx.Err() != nil {
		return errInterrupted
	}
	_, _ = fmt.Fprintln(c.Out, "all partitions are over; waiting until everything is recorded")
	if err := i.awaitReady(ctx, readyTimeout); err != nil {
		return err
	}
	if err := i.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	all.checkAllStrictly(ctx)
	return awaitConsumersCaughtUp(ctx, i.js, recordTimeout)
}

// Limits for the duration of a partition, the pause after the hosts have recovered, and the maximum
// time that the recovery may take.
const (
	shortestPartition   = 10 * time.Second
	longestPartition    = 15 * time.Second
	partitionPause      = 3 * time.Second
	hostRecoveryTimeout = time.Minute
	// maxUnavailability is the longest time for which requests may be refused after a partition
	// begins or ends.
	maxUnavailability = 10 * time.Second
)

// partition is one way to break the network between the hosts for a while.
type partition struct {
	kind          string
	affectedHosts []int // indexes of the hosts that the partition affects
	// cutOffHosts holds the indexes of the hosts that are cut off: hosts that cannot send to the
	// other hosts, or cannot receive from them, or both. Their ingresses must refuse requests.
	cutOffHosts []int
	duration    time.Duration
	// apply breaks the network. It may return at once, or keep changing the network until ctx is
	// done. The caller heals the network afterwards.
	apply func(ctx context.Context, n *network.Network)
}

func (p partition) String() string {
	var names strings.Builder
	for _, h := range p.affectedHosts {
		names.WriteString(hostNames[h])
	}
	return p.kind + " " + names.String()
}

// randomPartitions returns one partition of each kind, in random order. The hosts and the
// duration of each partition are random as well.
func randomPartitions(random *rand.Rand) []partition {
	var all []partition
	add := func(kind string, hosts, cut []int,
		apply func(ctx context.Context, n *network.Network),
	) {
		lasts := shortestPartition +
			time.Duration(random.Int64N(int64(longestPartition-shortestPartition)))
		all = append(all, partition{kind, hosts, cut, lasts, apply})
	}
	once := func(pairs [][2]int, c network.Condition) func(context.Context, *network.Network) {
		return func(_ context.Context, n *network.Network) { setLinkConditions(n, pairs, c) }
	}
	cut := network.Condition{Cut: true}

	h := random.Perm(len(hostNames))
	add("alone", h[:1], h[:1], once(append(linksFrom(h[0]), linksTo(h[0])...), cut))
	h = random.Perm(len(hostNames))
	add("unheard", h[:1], h[:1], once(linksFrom(h[0]), cut))
	h = random.Perm(len(hostNames))
	add("deaf", h[:1], h[:1], once(linksTo(h[0]), cut))
	h = random.Perm(len(hostNames))
	add("one direction", h[:2], nil, once([][2]int{{h[0], h[1]}}, cut))
	h = random.Perm(len(hostNames))
	add("bridge", h, nil, once([][2]int{{h[0], h[2]}, {h[2], h[0]}}, cut))
	h = random.Perm(len(hostNames))
	add("slow", h[:1], nil, once(append(linksFrom(h[0]), linksTo(h[0])...), network.Condition{
		Delay: 50*time.Millisecond + time.Duration(random.Int64N(int64(250*time.Millisecond))),
	}))
	h = random.Perm(len(hostNames))
	add("loss", h[:1], nil, once(append(linksFrom(h[0]), linksTo(h[0])...), network.Condition{
		Loss: 0.03 + 0.12*random.Float64(),
	}))
	h = random.Perm(len(hostNames))
	own := rand.New(rand.NewPCG(random.Uint64(), 0)) //nolint:gosec // not a secret
	add("flapping", h[:1], h[:1], func(ctx context.Context, n *network.Network) {
		for down := true; ctx.Err() == nil; down = !down {
			setLinkConditions(n, append(linksFrom(h[0]), linksTo(h[0])...),
				network.Condition{Cut: down})
			retry.Sleep(ctx,
				200*time.Millisecond+time.Duration(own.Int64N(int64(1300*time.Millisecond))))
		}
	})
	random.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	return all
}

// linksFrom returns the links from one host to the others, as pairs of host indexes. linksTo
// returns the links in the opposite direction.
func linksFrom(host int) (pairs [][2]int) {
	for other := range hostNames {
		if other != host {
			pairs = append(pairs, [2]int{host, other})
		}
	}
	return pairs
}

func linksTo(host int) (pairs [][2]int) {
	for _, pair := range linksFrom(host) {
		pairs = append(pairs, [2]int{pair[1], pair[0]})
	}
	return pairs
}

func setLinkConditions(n *network.Network, pairs [][2]int, c network.Condition) {
	hosts := n.Hosts()
	for _, pair := range pairs {
		n.SetCondition(hosts[pair[0]], hosts[pair[1]], c)
	}
}
