// Package soak runs hookstart in a production-like setup, as real processes on loopback, under load
// and faults. It compares the responses to senders with the stored and recorded executions.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/execution"
)

// Config is the configuration of a soak. The struct tags define the program's flags.
type Config struct {
	Duration   time.Duration `help:"Duration of load and faults." default:"10m"`
	Seed       uint64        `help:"Seed of the random choice of faults. 0: another one each time; it is printed." default:"0"`
	Rate       float64       `help:"Deliveries per second while nothing is unavailable." default:"400"`
	Senders    int           `help:"Number of senders that send at the same time." default:"1000"`
	Every      time.Duration `help:"Average time between the beginnings of two faults." default:"4s"`
	OwnStreams int           `help:"Number of queues that have a stream of their own, beside the default queue. The deliveries are spread over all of them." default:"0"`
	Only       []string      `help:"Cause only the faults whose name contains one of these, such as 'lock' or 'stop node'."`
	Restore    bool          `help:"At the end, put the stores of all NATS nodes back to an earlier copy, then delete them, and check each time what holds after that." default:"true" negatable:""`
	Verbose    bool          `help:"Print each fault when it is over."`
	Keep       bool          `help:"Keep the folder with the data and the logs; otherwise it is kept only when something is wrong."`

	// Out receives the progress and the ledger. nil means stdout.
	Out io.Writer `kong:"-"`
}

// readyTimeout is how long the services may take to become ready. recordTimeout is how long the
// executors and runners may take to process everything in the streams, for example after the load.
// It also limits how long the services may take to become ready after the load, because an executor
// is not ready while it records again what a failover of the database has lost.
const (
	readyTimeout  = time.Minute
	recordTimeout = 2 * time.Minute
)

var errInterrupted = errors.New("interrupted: there is no ledger")

func (c *Config) validate() error {
	if c.Duration <= 0 || c.Rate <= 0 || c.Senders <= 0 || c.Every <= 0 {
		return errors.New("--duration, --rate, --senders and --every must be more than 0")
	}
	if c.OwnStreams < 0 || c.OwnStreams > maxQueuesWithOwnStream {
		return fmt.Errorf("--own-streams must be 0 to %d", maxQueuesWithOwnStream)
	}
	return nil
}

// Run runs a soak and prints its ledger. It returns an error if anything acknowledged is lost or
// exists twice, if another promise is broken, or if ctx is done before the soak ends.
func Run(ctx context.Context, c Config) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	if c.Out == nil {
		c.Out = os.Stdout
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // not a secret
	}
	return runInTempDir(ctx, "hookstart-soak-", c.Keep, c.Out, func(folder string) error {
		return c.runIn(ctx, folder)
	})
}

// runInTempDir calls the function run with a new temporary folder, and removes the folder
// afterwards. If keep is true, or if run fails although ctx is not done, the folder stays, and its
// path is printed or added to the error.
func runInTempDir(
	ctx context.Context, prefix string, keep bool, out io.Writer, run func(folder string) error,
) error {
	folder, err := os.MkdirTemp("", prefix)
	if err != nil {
		return err
	}
	err = run(folder)
	switch {
	case !keep && (err == nil || ctx.Err() != nil):
		_ = os.RemoveAll(folder)
	case err == nil:
		_, _ = fmt.Fprintln(out, "the data and the logs are in", folder)
	default:
		err = fmt.Errorf("%w; the logs are in %s", err, folder)
	}
	return err
}

// runIn runs the soak with an installation whose data and logs are in folder.
func (c *Config) runIn(ctx context.Context, folder string) (err error) {
	ownStreams := ""
	if c.OwnStreams > 0 {
		ownStreams = fmt.Sprintf("%d queues with a stream of their own; ", c.OwnStreams)
	}
	_, _ = fmt.Fprintf(c.Out,
		"seed %d: 3 NATS nodes, 2 ingresses, 2 executors, 2 runners, PostgreSQL; %s%s\n", c.Seed,
		ownStreams, c.Duration)
	nodeDisk, databaseDisk, err := newDisks()
	if err != nil {
		_, _ = fmt.Fprintf(c.Out, "no full disks: %v\n", err)
	} else {
		defer func() { err = errors.Join(err, nodeDisk.remove(), databaseDisk.remove()) }()
	}
	database, err := createDatabase(databaseDisk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Remove()) }()
	i, err := install(ctx, folder, installConfig{
		nodes:          3,
		ingresses:      2,
		executors:      2,
		runners:        2,
		ownStreamCount: c.OwnStreams,
		database:       database,
		firstNodeDisk:  nodeDisk,
	})
	if err == nil {
		defer i.close()
	}
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		return err
	}

	b := newLedger()
	s := newSenders(b, i, strconv.FormatUint(c.Seed, 10))
	f := newFaultInjector(i, database, databaseDisk, c.Seed, c.Every, func(string, ...any) {})
	f.kindFilter = c.Only
	r := &report{seed: c.Seed}
	if err := c.runLoadAndFaults(ctx, i, s, f, r); err != nil {
		return err
	}
	if err := r.addAudit(ctx, i, b, f.pastIncidents(), f.unreportedAckTimes()); err != nil {
		return err
	}
	r.processProblems = append(i.problems(), f.problems...)
	r.stalls = f.recordingStalls
	r.write(c.Out)
	if c.Restore {
		_, _ = fmt.Fprintln(c.Out,
			"\nThe stores of all nodes are put back to an earlier copy: what was accepted after "+
				"that may be gone from the stream, and nothing else")
		if r.restoreViolations, err = i.restoreStoresAndCheck(ctx, s); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		r.writeRestoreViolations(c.Out)
		_, _ = fmt.Fprintln(c.Out,
			"\nThe stores of all nodes are deleted: the registry comes back from the database, "+
				"and until then nobody is refused for good")
		if r.storeLossViolations, err = i.deleteStoresAndCheck(ctx, s, c.Out); err != nil {
			return fmt.Errorf("lose the store: %w", err)
		}
		_, _ = fmt.Fprintf(c.Out, "%-14s %8v  after the store was deleted\n", "broken",
			len(r.storeLossViolations))
		printFirstLines(c.Out, r.storeLossViolations)
	}
	return r.violationsErr()
}

// runLoadAndFaults runs the senders and the faults, and shows the progress, until c.Duration is
// over. It then waits until everything is recorded.
func (c *Config) runLoadAndFaults(
	ctx context.Context, i *installation, s *senders, f *faultInjector, r *report,
) error {
	began := time.Now()
	if c.Verbose {
		f.logf = func(format string, args ...any) {
			_, _ = fmt.Fprintf(c.Out, "%6s  %s\n", time.Since(began).Round(time.Second),
				fmt.Sprintf(format, args...))
		}
	}
	showing, stopShowing := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() {
		showProgress(showing, c.Out, began, func() string { return progressText(s.ledger, f) })
	})
	r.contradictions = runSendersAndFaults(ctx, *c, i, s, f)
	stopShowing()
	shown.Wait()
	r.loadDuration = time.Since(began)
	if ctx.Err() != nil {
		return errInterrupted
	}
	_, _ = fmt.Fprintln(c.Out, "all faults are over; waiting until everything is recorded")
	ended := time.Now()
	if err := i.awaitReady(ctx, recordTimeout); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.Out, "all services are ready after %s\n",
		time.Since(ended).Round(time.Millisecond))
	if err := i.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	if err := awaitConsumersCaughtUp(ctx, i.js, recordTimeout); err != nil {
		return err
	}
	return f.awaitUnreportedExecutionsEnd(ctx)
}

// addAudit reads which executions are stored, which are recorded and which are put aside, and
// compares them with the responses to senders. unreported maps the IDs of the executions that were
// acknowledged without a readable report to the times of the acknowledgements. Executors must have
// recorded these executions as failed.
func (r *report) addAudit(
	ctx context.Context, i *installation, b *ledger, incidents []incident,
	unreported map[string]time.Time,
) error {
	streams, err := readStreams(ctx, i.js)
	if err != nil {
		return fmt.Errorf("read the streams: %w", err)
	}
	records, err := readRecords(ctx, i.client())
	if err != nil {
		return fmt.Errorf("read the records: %w", err)
	}
	if err := markEndedWithoutReport(ctx, i.client(), records); err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	if r.deadLetteredStarts, err = deadLetteredStarts(ctx, i.client()); err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	for id, acknowledged := range unreported {
		if _, reported := streams.finalStatuses[id]; !reported {
			streams.finalStatuses[id], streams.finalStatusTimes[id] = execution.Failed, acknowledged
		}
	}
	if r.reruns, err = i.rerunsAfterEnd(streams.finalStatusTimes); err != nil {
		return fmt.Errorf("read which executions runners received: %w", err)
	}
	if streams.receivedByRunner, err = i.receivedExecutionIDs(); err != nil {
		return fmt.Errorf("read which executions runners received: %w", err)
	}
	r.totals, r.incidents = b.currentTotals(), incidents
	r.audit = auditLedger(b, streams, records, incidents)
	r.audit.auditStreamPlacement(streams.starts, i)
	return nil
}

// newDisks returns two disks that can be filled up, or an error if the privileges to mount them are
// missing.
func newDisks() (node, database *disk, err error) {
	if node, err = newDisk(); err != nil {
		return nil, nil, err
	}
	if database, err = newDisk(); err != nil {
		return nil, nil, errors.Join(err, node.remove())
	}
	return node, database, nil
}

func createDatabase(on *disk) (*pgtest.Server, error) {
	if on == nil {
		return pgtest.Create()
	}
	return pgtest.CreateIn(on.folder)
}

// runSendersAndFaults runs the senders, injects faults and toggles a workflow for c.Duration. It
// returns when all faults have ended and no sender is waiting or retrying any more. The result
// describes the responses that contradicted the confirmed state of the toggled workflow.
func runSendersAndFaults(
	ctx context.Context, c Config, i *installation, s *senders, f *faultInjector,
) (contradictions []string) {
	starting, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.sendLoad(ctx, starting, c.Senders, c.Rate, c.Seed) })
	all.Go(func() { f.run(ctx, starting) })
	all.Go(func() { contradictions = i.toggleAndCheckWorkflow(ctx, starting, s, f, c.Seed) })
	all.Wait()
	return contradictions
}

func progressText(b *ledger, f *faultInjector) string {
	t := b.currentTotals()
	return fmt.Sprintf("faults %d  acknowledged %d  refused %d  no answer %d",
		len(f.pastIncidents()),
		t.acknowledged, totalCount(t.refusedByCode), totalCount(t.errorsByKind))
}
