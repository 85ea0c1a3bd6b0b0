package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/hookstart/hookstart/deploy/lab/network"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// TakeoverConfig is the configuration of a takeover by a second site. The struct tags define the
// program's flags.
type TakeoverConfig struct {
	Before           time.Duration `help:"Duration of load before the first site is lost." default:"20s"`
	After            time.Duration `help:"Duration of load after that." default:"30s"`
	Near             time.Duration `help:"Latency between two zones of the first site, in one direction." default:"2ms"`
	Latency          time.Duration `help:"Latency between the first and the second site, in one direction." default:"30ms"`
	Rate             float64       `help:"Deliveries per second." default:"200"`
	Senders          int           `help:"Number of senders that send at the same time." default:"200"`
	Seed             uint64        `help:"Seed of the random choice of workflows and pauses. 0: another one each time; it is printed." default:"0"`
	Hookstart        string        `help:"The command line, whose commands make the copy and take over." default:"bin/hookstart" type:"path"`
	NATSConfigFolder string        `name:"nats" help:"The folder of the configuration of the NATS servers." default:"deploy/nats" type:"path"`
	Keep             bool          `help:"Keep the folder with the data and the logs; otherwise it is kept only when something is wrong."`

	// Out receives the commands, the progress and the ledger. nil means stdout.
	Out io.Writer `kong:"-"`
}

// secondSiteHostName is the name of the second site's only host.
const secondSiteHostName = "d"

// RunTakeover kills a site of three hosts under load and lets a second site take over. The second
// site has a copy of the streams and of the registry, and an empty database. RunTakeover counts the
// executions that were lost, exist twice or ran twice. It returns an error if an execution was lost
// although it is older than the newest copied message, or if there is a duplicate that the copy
// should have prevented. The error wraps errors.ErrUnsupported if the machine cannot create the
// hosts.
func RunTakeover(ctx context.Context, c TakeoverConfig) (err error) {
	if c.Before <= 0 || c.After <= 0 || c.Rate <= 0 || c.Senders <= 0 {
		return errors.New("--before, --after, --rate and --senders must be more than 0")
	}
	if c.Out == nil {
		c.Out = os.Stdout
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // not a secret
	}
	names := append(slices.Clone(hostNames), secondSiteHostName)
	hosts, err := network.New(c.Seed, names...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.Close()) }()
	return runInTempDir(ctx, "hookstart-takeover-", c.Keep, c.Out, func(folder string) error {
		return c.runIn(ctx, folder, hosts)
	})
}

// takeoverRun holds the two sites and the measurements of the takeover.
type takeoverRun struct {
	config              *TakeoverConfig
	network             *network.Network
	secrets             *secrets
	first, second       *installation
	ledger              *ledger
	newestCopiedAt      time.Time // when the first site stored the newest copied message
	killedAt            time.Time // when the first site was lost
	takenOverAt         time.Time // when the take-over command finished
	firstAcceptedAt     time.Time // when the second site accepted its first request
	unrecognizedRepeats []string  // repeats of copied deliveries that were mistaken for new ones
	repeatCount         int       // number of copied deliveries that were repeated
}

func (c *TakeoverConfig) runIn(
	ctx context.Context,
	folder string,
	hosts *network.Network,
) (err error) {
	_, _ = fmt.Fprintf(c.Out, "seed %d: a site of 3 hosts, and %s away a site of one host with a "+
		"copy and an empty database; %g deliveries/s\n", c.Seed, c.Latency, c.Rate)
	all := hosts.Hosts()
	for n, a := range all {
		for _, b := range all[n+1:] {
			latency := c.Near
			if b.Name == secondSiteHostName {
				latency = c.Latency
			}
			hosts.SetConditionBothWays(a, b, network.Condition{Delay: latency})
		}
	}
	s := &takeoverRun{config: c, network: hosts, ledger: newLedger()}
	if s.secrets, err = newSecrets(folder, all); err != nil {
		return err
	}
	var databases [2]*pgtest.Server
	for n := range databases {
		if databases[n], err = pgtest.Create(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, databases[n].Remove()) }()
	}
	defer s.close()
	if err := s.prepareSites(folder, all, databases); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		for _, i := range []*installation{s.first, s.second} {
			for _, complaint := range i.problems() {
				err = errors.Join(err, errors.New(complaint))
			}
		}
		return err
	}
	return s.auditTakeover(ctx)
}

// prepareSites prepares both sites without starting anything.
func (s *takeoverRun) prepareSites(
	folder string,
	hosts []*network.Host,
	databases [2]*pgtest.Server,
) error {
	seed, err := os.ReadFile(s.secrets.path("copy.nk"))
	if err != nil {
		return err
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		return err
	}
	public, err := pair.PublicKey()
	if err != nil {
		return err
	}
	first, second := hosts[:len(hosts)-1], hosts[len(hosts)-1:]
	var leaves []string
	for _, h := range first {
		leaves = append(leaves, "tls://"+h.Name+":"+portLeaf)
	}
	s.first = &installation{folder: filepath.Join(folder, "first")}
	s.second = &installation{folder: filepath.Join(folder, "second")}
	for _, i := range []*installation{s.first, s.second} {
		if err := os.Mkdir(i.folder, 0o700); err != nil {
			return err
		}
	}
	if err := s.first.prepareSite(first, siteConfig{
		secrets:        s.secrets,
		natsConfigPath: filepath.Join(s.config.NATSConfigFolder, "first-site.conf"),
		databaseURL:    databases[0].URL(),
		replicas:       len(first),
		natsEnv: []string{
			"NATSD_LEAF_LISTEN=0.0.0.0:" + portLeaf, "NATSD_COPY_NKEY=" + public,
		},
	}); err != nil {
		return err
	}
	return s.second.prepareSite(second, siteConfig{
		secrets:        s.secrets,
		natsConfigPath: filepath.Join(s.config.NATSConfigFolder, "second-site.conf"),
		databaseURL:    databases[1].URL(),
		replicas:       1,
		natsEnv: []string{
			"NATSD_FIRST_SITE=[" + strings.Join(leaves, ", ") + "]",
			"NATSD_COPY_SEED=" + string(seed),
		},
		executorFlags: []string{"--adopt-database"},
	})
}

func (s *takeoverRun) close() {
	for _, i := range []*installation{s.first, s.second} {
		if i != nil {
			i.close()
		}
	}
}

// runSecondSiteCommand runs `hookstart admin second-site` with the given arguments against the
// second site's NATS server, and prints the command and its output.
func (s *takeoverRun) runSecondSiteCommand(ctx context.Context, args ...string) error {
	args = append([]string{"admin", "second-site"}, args...)
	_, _ = fmt.Fprintf(s.config.Out, "\n$ hookstart %s\n", strings.Join(args, " "))
	//nolint:gosec // the program that is tested
	cmd := exec.CommandContext(ctx, s.config.Hookstart, append(args,
		"--nats-url="+s.second.nodes[0].url, "--nats-creds="+s.secrets.path("admin.nk"),
		"--nats-ca="+s.secrets.path("ca.crt"))...)
	output, err := cmd.CombinedOutput()
	_, _ = s.config.Out.Write(output)
	if err != nil {
		return fmt.Errorf("hookstart %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// run starts both sites, kills the first one under load, and lets the second one take over.
func (s *takeoverRun) run(ctx context.Context) error {
	if err := s.first.startAll(ctx); err != nil {
		return err
	}
	if err := s.second.nodes[0].start(); err != nil {
		return err
	}
	if err := s.second.awaitClusterLeader(ctx, time.Minute); err != nil {
		return err
	}
	if err := s.runSecondSiteCommand(ctx, "copy"); err != nil {
		return err
	}

	starting, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	senders := newSenders(s.ledger, s.first, strconv.FormatUint(s.config.Seed, 10))
	for _, e := range s.second.ingresses {
		senders.ingressURLs = append(senders.ingressURLs, e.url)
	}
	load.Go(func() {
		senders.sendLoad(ctx, starting, s.config.Senders, s.config.Rate, s.config.Seed)
	})
	retry.Sleep(ctx, s.config.Before)
	if err := s.runSecondSiteCommand(ctx, "status"); err != nil {
		return err
	}
	// First cut the second site's connection, so that messages on their way to it are lost as well.
	all := s.network.Hosts()
	s.network.SetIsolated(all[len(all)-1], true)
	s.killedAt = time.Now()
	for _, p := range s.first.processes() {
		p.kill()
	}
	_, _ = fmt.Fprintln(s.config.Out, "\nthe first site was killed")
	if err := s.takeOver(ctx); err != nil {
		return err
	}
	if err := s.awaitFirstAccepted(ctx, senders); err != nil {
		return err
	}
	retry.Sleep(ctx, s.config.After)
	stop()
	load.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.second.awaitReadyAndCaughtUp(ctx); err != nil {
		return err
	}
	return s.resendDeliveries(ctx, senders)
}

// takeOver runs the takeover commands, and starts the programs of the second site.
func (s *takeoverRun) takeOver(ctx context.Context) error {
	if err := s.second.connect(); err != nil {
		return err
	}
	if err := s.runSecondSiteCommand(ctx, "take-over", "--runner-groups=default/"+hostRunnerGroup,
		"--yes"); err != nil {
		return err
	}
	s.takenOverAt = time.Now()
	for _, p := range slices.Concat(s.second.executors, s.second.ingresses, s.second.runners) {
		if err := p.start(); err != nil {
			return err
		}
	}
	// Find the last message that was copied from the first site. The second site itself has added
	// the messages after it.
	info, err := s.second.js.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		return err
	}
	for sequence := info.CachedInfo().State.LastSeq; sequence > 0; sequence-- {
		msg, err := info.GetMsg(ctx, sequence)
		if err != nil {
			return fmt.Errorf("message %d: %w", sequence, err)
		}
		if msg.Time.Before(s.killedAt) &&
			!strings.HasPrefix(msg.Header.Get(nats.MsgIdHdr), startCopyMsgIDPrefix) {
			s.newestCopiedAt = msg.Time
			break
		}
	}
	return s.second.awaitReady(ctx, readyTimeout)
}

// awaitFirstAccepted waits until the second site accepts a request.
func (s *takeoverRun) awaitFirstAccepted(ctx context.Context, senders *senders) error {
	return eventually(ctx, readyTimeout, func(ctx context.Context) error {
		d := s.ledger.addDelivery(fmt.Sprintf("first-after-%d", time.Now().UnixNano()), true)
		d.alwaysActive = true
		a, _ := senders.sendAndRecord(ctx, d, senders.webhookPaths[0], s.second.ingresses[0].url)
		if a.ExecutionID == "" {
			return fmt.Errorf("the second site answers %d %s", a.Status, a.Code)
		}
		s.firstAcceptedAt = time.Now()
		return nil
	})
}

// maxResentDeliveries is the maximum number of deliveries that resendDeliveries sends again.
const maxResentDeliveries = 1000

// resendDeliveries sends at most maxResentDeliveries deliveries again, this time to the second
// site, which must recognize them as repeats. It chooses deliveries that the first site had
// accepted, and whose start messages were copied.
func (s *takeoverRun) resendDeliveries(ctx context.Context, senders *senders) error {
	all, err := readStreams(ctx, s.second.js)
	if err != nil {
		return err
	}
	var copied []*delivery
	for id, start := range all.starts {
		d := s.ledger.deliveries[start.marker]
		if d != nil && d.hasID && d.ended.Before(s.killedAt) &&
			slices.Contains(d.executionIDs, id) {
			copied = append(copied, d)
		}
	}
	slices.SortFunc(copied, func(a, b *delivery) int { return b.ended.Compare(a.ended) })
	for _, d := range copied[:min(len(copied), maxResentDeliveries)] {
		start := all.starts[d.executionIDs[0]]
		path, err := s.webhookPathOfExecution(ctx, d.executionIDs[0])
		if err != nil {
			return err
		}
		a, err := senders.sendRequest(ctx, d, s.second.ingresses[0].url+path)
		if err != nil {
			return fmt.Errorf("repeat %s: %w", start.marker, err)
		}
		s.repeatCount++
		if !a.Deduplicated || a.ExecutionID != d.executionIDs[0] {
			s.unrecognizedRepeats = append(s.unrecognizedRepeats, fmt.Sprintf(
				"delivery %s, %s: answered %d as %s, deduplicated %v", d.marker,
				d.executionIDs[0], a.Status, a.ExecutionID, a.Deduplicated))
		}
	}
	return nil
}

// webhookPathOfExecution returns the webhook path of an execution's workflow.
func (s *takeoverRun) webhookPathOfExecution(ctx context.Context, id string) (string, error) {
	e, err := s.second.client().Execution(ctx, id)
	if err != nil {
		return "", err
	}
	for n, path := range s.first.webhookPaths {
		if e.WorkflowID == "soak-"+strconv.Itoa(n) {
			return path, nil
		}
	}
	return "", fmt.Errorf("execution %s is of workflow %s", id, e.WorkflowID)
}
