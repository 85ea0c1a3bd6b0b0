package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/deploy/lab/network"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// RegionsConfig is the configuration of a measurement with three zones. The struct tags define the
// program's flags.
type RegionsConfig struct {
	Latencies  []time.Duration `help:"Latencies between two zones in one direction, one after the other." default:"0s,2ms,10ms,30ms"`
	Measure    time.Duration   `help:"Duration of the measurement of answers, for each latency." default:"20s"`
	Cut        time.Duration   `help:"Duration for which a zone is cut off. For each latency this happens twice: to the zone of the streams' leaders, then to another one." default:"15s"`
	Every      time.Duration   `help:"Interval of the requests to the ingress of each zone that are measured." default:"20ms"`
	Rate       float64         `help:"Further deliveries per second while a zone is cut off, which are repeated until they are accepted." default:"60"`
	Senders    int             `help:"Number of senders that send these at the same time." default:"60"`
	Nearest    bool            `help:"Let an ingress connect to the NATS server of its own zone only. Without it, to a server that it chooses among all three." default:"true" negatable:""`
	Seed       uint64          `help:"Seed of the random choice of workflows and pauses. 0: another one each time; it is printed." default:"0"`
	NATSConfig string          `name:"nats-config" help:"The configuration of the NATS servers." default:"deploy/nats/cluster.conf" type:"path"`
	Keep       bool            `help:"Keep the folder with the data and the logs; otherwise it is kept only when something is wrong."`

	// Out receives the progress, the table and the ledger. nil means stdout.
	Out io.Writer `kong:"-"`
}

func (c *RegionsConfig) validate() error {
	if c.Measure <= 0 || c.Cut <= 0 || c.Every <= 0 || c.Rate <= 0 || c.Senders <= 0 {
		return errors.New("--measure, --cut, --every, --rate and --senders must be more than 0")
	}
	if len(c.Latencies) == 0 {
		return errors.New("--latencies must have at least one latency")
	}
	for _, latency := range c.Latencies {
		if latency < 0 {
			return fmt.Errorf("--latencies must not be negative: %s", latency)
		}
	}
	return nil
}

// RunRegions measures the response times of accepted requests in an installation of three zones
// with latency between them. Each zone has a NATS server, an ingress, an executor and a runner.
// RunRegions also cuts off one of the zones, and measures which requests are accepted meanwhile. It
// returns an error if anything acknowledged is lost or exists twice, if the remaining zones refuse
// requests for too long, or if a zone takes too long to recover. The error wraps
// errors.ErrUnsupported if the machine cannot create the hosts.
func RunRegions(ctx context.Context, c RegionsConfig) (err error) {
	if err := c.validate(); err != nil {
		return err
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
	return runInTempDir(ctx, "hookstart-regions-", c.Keep, c.Out, func(folder string) error {
		return c.runIn(ctx, folder, hosts)
	})
}

func (c *RegionsConfig) runIn(
	ctx context.Context,
	folder string,
	hosts *network.Network,
) (err error) {
	connects := "the NATS server of its own zone"
	if !c.Nearest {
		connects = "any of the NATS servers"
	}
	_, _ = fmt.Fprintf(c.Out,
		"seed %d: 3 zones with a NATS server, an ingress, an executor and a runner each; "+
			"PostgreSQL; each ingress connects to %s\n", c.Seed, connects)
	database, err := pgtest.Create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Remove()) }()
	i, err := installOnHosts(ctx, folder, c.NATSConfig, hosts.Hosts(), database, c.Nearest)
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
	z := &zoneMeasurer{config: c, network: hosts, installation: i, ledger: newLedger()}
	for _, latency := range c.Latencies {
		if err := z.measure(ctx, latency); err != nil {
			if ctx.Err() != nil {
				return errInterrupted
			}
			return err
		}
	}
	r := &report{seed: c.Seed, loadDuration: time.Since(began)}
	if err := i.awaitReadyAndCaughtUp(ctx); err != nil {
		return err
	}
	if err := r.addAudit(ctx, i, z.ledger, z.incidents(), nil); err != nil {
		return err
	}
	r.processProblems = i.problems()
	r.write(c.Out)
	z.writeResults(c.Out)
	return errors.Join(r.violationsErr(), r.falseRepeatsErr(), z.unavailabilityErr())
}

// awaitReadyAndCaughtUp waits until the services are ready and all replicas are current. It then
// waits until all durable consumers, such as those of the recorder and the runners, have caught up.
func (i *installation) awaitReadyAndCaughtUp(ctx context.Context) error {
	if err := i.awaitReady(ctx, readyTimeout); err != nil {
		return err
	}
	if err := i.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	return awaitConsumersCaughtUp(ctx, i.js, recordTimeout)
}

// zoneMeasurer measures an installation in which each host is a zone.
type zoneMeasurer struct {
	config       *RegionsConfig
	network      *network.Network
	installation *installation
	ledger       *ledger
	results      []*resultsAtLatency
}

// resultsAtLatency holds everything measured at one network latency: response times, refusals, and
// the effects of zone cuts.
type resultsAtLatency struct {
	latency time.Duration
	// near holds the response times of accepted requests at the ingress in the zone with the
	// leaders of the streams. far holds the response times at the other two ingresses.
	near, far    []time.Duration
	refusedCount int // requests that were not accepted although no zone was cut off
	zoneCuts     []zoneCutResult
}

// zoneCutResult holds the results of one interval in which a zone was cut off.
type zoneCutResult struct {
	zoneKind     string // "leaders" if the zone had the leaders of the streams; otherwise "other"
	zoneIndex    int
	from, to     time.Time
	inOtherZones acceptedShare // requests at the ingresses of the other zones
	inCutZone    acceptedShare // requests at the ingress of the zone that is cut off
	// longestRefusal is the longest time for which an ingress of another zone refused requests, or
	// 0 if none was refused.
	longestRefusal  time.Duration
	slowestAccepted time.Duration // longest response time of an accepted request in the other zones
	// recovery is the time from the reconnection of the zone to the first 200 of its ingress, or 0
	// if there was none before the timeout.
	recovery time.Duration
}

// measure takes the measurements at one latency: first with all zones connected, then with the
// leaders' zone cut off, and finally with another zone cut off.
func (z *zoneMeasurer) measure(ctx context.Context, latency time.Duration) error {
	hosts := z.network.Hosts()
	for n, a := range hosts {
		for _, b := range hosts[n+1:] {
			z.network.SetConditionBothWays(a, b, network.Condition{Delay: latency})
		}
	}
	s := &resultsAtLatency{latency: latency}
	z.results = append(z.results, s)
	const leader, other = 0, 2
	if err := z.installation.makeLeaderOfAllStreams(ctx, hostNames[leader]); err != nil {
		return err
	}
	senders := newSenders(z.ledger, z.installation, fmt.Sprintf("%d-%s", z.config.Seed, latency))
	p := newProbes(senders, z.installation)
	p.interval = z.config.Every
	measuring, stopMeasuring := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stopMeasuring()
	running.Go(func() { p.run(ctx, measuring) })

	from := time.Now()
	retry.Sleep(ctx, z.config.Measure)
	z.addResponseTimes(s, p, leader, from, time.Now())

	starting, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	running.Go(func() {
		senders.sendLoad(ctx, starting, z.config.Senders, z.config.Rate, z.config.Seed)
	})
	if err := z.cutZoneOff(ctx, s, p, "leaders", leader); err != nil {
		return err
	}
	if err := z.installation.makeLeaderOfAllStreams(ctx, hostNames[leader]); err != nil {
		return err
	}
	return z.cutZoneOff(ctx, s, p, "other", other)
}

// addResponseTimes adds to s the response times from an interval in which all zones were connected.
// leader is the index of the zone with the leaders of the streams.
func (z *zoneMeasurer) addResponseTimes(
	s *resultsAtLatency,
	p *probes,
	leader int,
	from, to time.Time,
) {
	for host := range p.byHost {
		for _, answer := range p.probesBetween(host, from, to) {
			took := answer.ended.Sub(answer.began)
			switch {
			case !answer.accepted:
				s.refusedCount++
			case host == leader:
				s.near = append(s.near, took)
			default:
				s.far = append(s.far, took)
			}
		}
	}
	z.logf("%s: 200 in the leader's zone %s, in the others %s", s.latency, formatP50AndP99(s.near),
		formatP50AndP99(s.far))
}

// cutZoneOff cuts a zone off for the configured time, and waits until it has recovered.
func (z *zoneMeasurer) cutZoneOff(
	ctx context.Context,
	s *resultsAtLatency,
	p *probes,
	what string,
	zone int,
) error {
	c := zoneCutResult{zoneKind: what, zoneIndex: zone, from: time.Now()}
	host := z.network.Hosts()[zone]
	z.network.SetIsolated(host, true)
	retry.Sleep(ctx, z.config.Cut)
	z.network.SetIsolated(host, false)
	c.to = time.Now()
	c.recovery = p.awaitAllAccepting(ctx, c.to, hostRecoveryTimeout)[zone]
	if err := z.installation.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	for n := range p.byHost {
		answers := p.probesBetween(n, c.from, c.to)
		if n == zone {
			c.inCutZone.add(countAccepted(answers))
			continue
		}
		c.inOtherZones.add(countAccepted(answers))
		c.longestRefusal = max(c.longestRefusal, refusalSpan(answers))
		for _, answer := range answers {
			if answer.accepted {
				c.slowestAccepted = max(c.slowestAccepted, answer.ended.Sub(answer.began))
			}
		}
	}
	s.zoneCuts = append(s.zoneCuts, c)
	z.logf("%s: %s zone cut off for %s: the others accepted %s, refused for %s; back after %s",
		s.latency, what, z.config.Cut, c.inOtherZones, formatMilliseconds(c.longestRefusal),
		formatRecoveryTime(c.recovery))
	return ctx.Err()
}

func (z *zoneMeasurer) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(z.config.Out, format+"\n", args...)
}

func (z *zoneMeasurer) incidents() (all []incident) {
	for _, s := range z.results {
		for _, c := range s.zoneCuts {
			kind := fmt.Sprintf("%s zone cut off at %s", c.zoneKind, s.latency)
			all = append(all, incident{kind: kind, from: c.from, to: c.to})
		}
	}
	return all
}

// unavailabilityErr returns an error if the remaining zones refused requests for too long, or if a
// zone took too long to recover.
func (z *zoneMeasurer) unavailabilityErr() error {
	var broken []string
	for _, s := range z.results {
		if len(s.near) == 0 || len(s.far) == 0 {
			broken = append(broken, fmt.Sprintf("%s: nothing was accepted", s.latency))
		}
		for _, c := range s.zoneCuts {
			if c.longestRefusal > maxUnavailability {
				broken = append(broken, fmt.Sprintf("%s, %s zone: refused for %s", s.latency,
					c.zoneKind, c.longestRefusal))
			}
			if c.recovery == 0 || c.recovery > maxUnavailability {
				broken = append(broken, fmt.Sprintf("%s, %s zone: back after %s", s.latency,
					c.zoneKind, formatRecoveryTime(c.recovery)))
			}
		}
	}
	if len(broken) == 0 {
		return nil
	}
	return fmt.Errorf("more than %s: %s", maxUnavailability, strings.Join(broken, "; "))
}

// writeResults prints a table of the response times, and a table with a row for each time that a
// zone was cut off.
func (z *zoneMeasurer) writeResults(out io.Writer) {
	const answers = "%-8s %20s %20s %10v\n"
	_, _ = fmt.Fprintf(out, "\nMilliseconds until a 200, p50 and p99 (number of requests); all "+
		"zones connected\n"+answers, "latency", "leader's zone", "other zones", "refused")
	for _, s := range z.results {
		_, _ = fmt.Fprintf(out, answers, s.latency, formatP50AndP99(s.near), formatP50AndP99(s.far),
			s.refusedCount)
	}
	const cuts = "%-8s %-10s %10s %12s %12s %10s %10s\n"
	_, _ = fmt.Fprintf(out, "\nOne zone cut off for %s\n"+cuts, z.config.Cut, "latency", "zone cut",
		"accepted", "refused for", "slowest 200", "cut off", "back after")
	for _, s := range z.results {
		for _, c := range s.zoneCuts {
			_, _ = fmt.Fprintf(out, cuts, s.latency, c.zoneKind, c.inOtherZones,
				formatMilliseconds(c.longestRefusal), formatMilliseconds(c.slowestAccepted),
				c.inCutZone, formatMilliseconds(c.recovery))
		}
	}
	_, _ = fmt.Fprintln(out, "accepted, refused for, slowest 200: the two zones that remain; cut "+
		"off: accepted in the zone that is cut off; back after: its first 200 after the end")
}

// makeLeaderOfAllStreams makes a server the leader of all streams that have replicas.
func (i *installation) makeLeaderOfAllStreams(ctx context.Context, server string) error {
	if err := i.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	return eventually(ctx, replicaTimeout, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return leader.EnsureLeaders(ctx, i.js,
			func(*jetstream.StreamInfo) string { return server })
	})
}
