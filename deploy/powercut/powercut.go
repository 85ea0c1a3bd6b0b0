//go:build linux

// Package powercut simulates power cuts of an installation under load. The installation is either
// hookstart-local, or three NATS servers with an ingress, an executor and a runner. Each machine
// has a FUSE file system that can forget everything that was not synced ([disk.Disk]). In a power
// cut, all programs are killed at the same moment. They are then restarted with the files that real
// disks would have kept, and the package compares the stored data with the acknowledgements to
// senders and operators.
//
// There are two modes. If NATS syncs every message, nothing may be missing. The other mode is the
// control: NATS syncs only at its default interval, and something must be missing, to show that the
// file system really forgets. Even in the control, deliveries that are accepted after a cut must be
// recorded, and every execution must end.
//
// By default the file system behaves like ext4 and XFS ([disk.ModelOrdered]). On a file system that
// guarantees no more than POSIX ([disk.ModelStrict]), nats-server 2.15 loses data that it has
// synced, because it syncs neither the folder of a new stream nor the folder of a new message file.
// The files that hookstart-local creates itself survive even on such a file system.
package powercut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/retry"
)

// Config holds the options of a run. The struct tags define the program's flags.
type Config struct {
	Cuts    int    `help:"Number of power cuts, in each of the two modes: with every message synced (--sync-always, sync_interval: always) and without; three servers are cut at most 3 times without." default:"50"`
	Servers int    `help:"Number of NATS servers. 1: hookstart-local. 3: a cluster with an ingress, an executor, a runner, and a queue with a stream of its own; each cut is one of all of them." enum:"1,3" default:"1"`
	Seed    uint64 `help:"Seed of the random choices; it is printed. 0 takes another one each time. The moment of a cut also depends on the load of the machine." default:"0"`
	Model   string `help:"What an fsync makes durable: ordered (as ext4 and XFS: file names, too) or strict (POSIX: names only by an fsync of their folder)." enum:"ordered,strict" default:"ordered"`
	Verbose bool   `help:"Print a line for each cut."`
	Keep    bool   `help:"Keep the folder with the logs also if nothing is wrong."`

	// Out receives the report. nil means standard output.
	Out io.Writer `kong:"-"`
	// SkipAwaitingEnds skips waiting for the end of every execution, which takes more than a minute
	// in the control run (see controlRunConfig).
	SkipAwaitingEnds bool `kong:"-"`
	// CutsPerDisk is the number of cuts after which a run continues with a new installation on
	// empty disks. 0 means 10.
	CutsPerDisk int `kong:"-"`
	// loseAllUnsynced makes each cut drop everything that was not synced, instead of a random part.
	// It is set for a control run that has only a few cuts but must still lose data.
	loseAllUnsynced bool
}

// recordTimeout is how long an installation may take to record everything that it has accepted.
// executionEndTimeout is how long it may take to end every execution.
const (
	recordTimeout       = 30 * time.Second
	executionEndTimeout = 2 * time.Minute
)

// Result holds the counts of one mode, summed over all its cuts.
type Result struct {
	// Mode is the name of the mode in the report, which says how often NATS syncs messages.
	Mode string
	// Cuts is the number of power cuts. Accepted is the number of deliveries that were answered
	// with 200.
	Cuts, Accepted int
	// Lost is the number of accepted deliveries without a start message in the stream. Unrecorded
	// is the number of accepted deliveries with a start message in the stream, but without a record
	// in the database.
	Lost, Unrecorded int
	// Duplicated counts the accepted deliveries with more than one start message or record. A
	// delivery is counted again after each cut.
	Duplicated int
	// StuckExecutions counts executions that did not end although a runner was running.
	StuckExecutions int
	// Changes is the number of changes that the operators' API has confirmed. LostChanges is the
	// number of workflows whose state after a cut differed from the confirmed one.
	Changes, LostChanges int
	// Redelivered counts the accepted deliveries that were sent again, to check that they are
	// recognized as repeats.
	Redelivered int
	// Unexpected describes responses that must not occur.
	Unexpected []string
}

// Run cuts the power in both modes and prints a table. It returns an error if anything is missing
// with --sync-always, if nothing is missing in the control run, which has the default sync
// interval, or if a mode has another fault. If this machine cannot mount a FUSE file system, Run
// prints the reason and returns nil.
func Run(ctx context.Context, c Config) (err error) {
	if c.Out == nil {
		c.Out = os.Stdout
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // not a secret
	}
	if c.CutsPerDisk == 0 {
		c.CutsPerDisk = 10
	}
	folder, err := os.MkdirTemp("", "hookstart-powercut-")
	if err != nil {
		return err
	}
	if err := disk.CheckMountable(folder); err != nil {
		_ = os.Remove(folder)
		_, _ = fmt.Fprintln(c.Out, "skipped:", err)
		return nil
	}
	defer func() {
		if err == nil && !c.Keep {
			_ = os.RemoveAll(folder)
			return
		}
		_, _ = fmt.Fprintln(c.Out, "the logs are in", folder)
	}()
	_, _ = fmt.Fprintf(c.Out, "seed %d, NATS servers %d, model %s, %d cuts in each mode\n", c.Seed,
		c.Servers, c.Model, c.Cuts)
	always, err := c.runMode(ctx, filepath.Join(folder, "always"), true)
	if err != nil {
		return fmt.Errorf("%s, after %d cuts: %w", always.Mode, always.Cuts, err)
	}
	control, err := c.controlRunConfig().runMode(ctx, filepath.Join(folder, "default"), false)
	if err != nil {
		return fmt.Errorf("%s, after %d cuts: %w", control.Mode, control.Cuts, err)
	}
	writeTable(c.Out, always, control)
	return errors.Join(always.check(false), control.check(true))
}

// maxClusterControlCuts is the maximum number of power cuts in the control run if there are several
// NATS servers.
const maxClusterControlCuts = 3

// controlRunConfig returns the configuration of the control run, which leaves NATS at its default
// sync interval and must lose data. With several NATS servers, it has only a few cuts, each on new
// disks, and each cut drops everything that was not synced: otherwise it would depend on chance
// whether anything is lost.
func (c Config) controlRunConfig() Config {
	if c.Servers > 1 {
		c.Cuts, c.CutsPerDisk, c.loseAllUnsynced = min(c.Cuts, maxClusterControlCuts), 1, true
	}
	return c
}

// check returns an error that lists the faults in r, or nil if there are none. If mustLose is true,
// as in the control run, lost deliveries and changes are expected, and it is a fault if no delivery
// was lost: the test could then not detect losses.
func (r Result) check(mustLose bool) error {
	var wrong []error
	complain := func(n int, what string) {
		if n > 0 {
			wrong = append(wrong, fmt.Errorf("%s: %d %s", r.Mode, n, what))
		}
	}
	if mustLose && r.Lost == 0 {
		wrong = append(wrong, fmt.Errorf(
			"%s: nothing was lost: the file system does not forget, and the test shows nothing",
			r.Mode))
	}
	if !mustLose {
		complain(r.Lost, "acknowledged deliveries lost")
		complain(r.LostChanges, "confirmed changes lost")
	}
	complain(r.Unrecorded, "accepted and never recorded")
	complain(r.Duplicated, "there twice")
	complain(r.StuckExecutions, "neither succeeded nor failed")
	for _, text := range r.Unexpected {
		wrong = append(wrong, fmt.Errorf("%s: %s", r.Mode, text))
	}
	return errors.Join(wrong...)
}

// writeTable prints one line for each result.
func writeTable(out io.Writer, results ...Result) {
	const row = "%-14s %6v %9v %6v %11v %8v %6v %8v %13v %19v\n"
	_, _ = fmt.Fprintf(out, row, "", "cuts", "accepted", "lost", "unrecorded", "doubled", "stuck",
		"changes", "lost changes", "repeats recognised")
	for _, r := range results {
		_, _ = fmt.Fprintf(out, row, r.Mode, r.Cuts, r.Accepted, r.Lost, r.Unrecorded, r.Duplicated,
			r.StuckExecutions, r.Changes, r.LostChanges, r.Redelivered)
	}
}

// runMode runs all cuts of one mode, on as many disks as necessary.
func (c Config) runMode(ctx context.Context, folder string, syncAlways bool) (r Result, err error) {
	r.Mode = "default sync"
	switch {
	case syncAlways && c.Servers > 1:
		r.Mode = "sync always"
	case syncAlways:
		r.Mode = "--sync-always"
	}
	random := rand.New(rand.NewPCG(c.Seed, c.Seed)) //nolint:gosec // not a secret
	var left disk.Randomness = random
	if c.loseAllUnsynced {
		left = disk.LoseAllUnsynced
	}
	for number := 1; r.Cuts < c.Cuts; number++ {
		m, err := c.newInstallation(filepath.Join(folder, fmt.Sprint(number)), syncAlways, left)
		if err != nil {
			return r, err
		}
		l := &powerCutRun{
			Config:             c,
			installation:       m,
			random:             random,
			result:             &r,
			missingDeliveryIDs: map[string]bool{},
			ledger:             newLedger(fmt.Sprintf("%s-%d", filepath.Base(folder), number)),
		}
		err = l.run(ctx, min(c.CutsPerDisk, c.Cuts-r.Cuts))
		err = errors.Join(err, m.cutPower())
		m.close()
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// installation is hookstart on simulated machines. Its methods must not be called concurrently.
type installation interface {
	// start turns the machines on. It returns before the programs are ready.
	start() error
	// startAndAwaitReady turns the machines on and waits until the programs are ready.
	startAndAwaitReady(ctx context.Context) error
	// cutPower cuts the power of all machines at the same moment. Nothing happens if they are off.
	cutPower() error
	// close releases the installation's resources. Its machines must be off.
	close()

	// executorURL and natsURL return the addresses of the operators' API and of NATS. They are
	// valid once the programs are ready.
	executorURL() string
	natsURL() string
	// targets returns the workflows to which the load is sent.
	targets() []targetWorkflow
}

func (c Config) newInstallation(
	folder string, syncAlways bool, random disk.Randomness,
) (installation, error) {
	if c.Servers > 1 {
		return newCluster(folder, c.Servers, disk.Model(c.Model), syncAlways, random)
	}
	return newSingleMachine(folder, disk.Model(c.Model), syncAlways, random)
}

// powerCutRun runs one installation through several power cuts. The installation begins on empty
// disks.
type powerCutRun struct {
	Config
	installation

	random *rand.Rand
	ledger *ledger
	result *Result
	// missingDeliveryIDs holds the IDs of the deliveries that have been counted as lost or
	// unrecorded, so that they are not counted again.
	missingDeliveryIDs map[string]bool
	client             *apiclient.Client
	webhookURLs        []string // the URLs of the targets' webhooks
}

// run cuts the power the given number of times. After each cut, it checks which data has survived.
func (l *powerCutRun) run(ctx context.Context, cuts int) error {
	for n := range cuts {
		if err := l.powerOn(ctx, n > 0); err != nil {
			return err
		}
		if err := l.cutPowerUnderLoad(ctx, n); err != nil {
			return err
		}
		l.result.Cuts++
		// After one cut in five, restore the power only briefly, and cut it again while the
		// programs start.
		if l.random.IntN(5) == 0 {
			if err := l.start(); err != nil {
				return err
			}
			retry.Sleep(ctx, time.Duration(l.random.IntN(1000))*time.Millisecond)
			if err := l.cutPower(); err != nil {
				return err
			}
		}
	}
	if err := l.powerOn(ctx, true); err != nil {
		return err
	}
	if !l.SkipAwaitingEnds {
		if err := l.awaitExecutionEnds(ctx); err != nil {
			return err
		}
	}
	l.result.Changes += l.ledger.confirmedChanges
	l.result.Accepted += l.ledger.acceptedCount()
	l.result.Unexpected = append(l.result.Unexpected, l.ledger.unexpected...)
	l.checkTargets()
	return nil
}

// checkTargets checks that each target has accepted deliveries, and prints how many.
func (l *powerCutRun) checkTargets() {
	counts := make([]int, len(l.webhookURLs))
	for id := range l.ledger.accepted {
		counts[targetIndex(id, len(l.webhookURLs))]++
	}
	for n, t := range l.targets() {
		if counts[n] == 0 {
			l.result.Unexpected = append(l.result.Unexpected,
				"nothing was accepted for queue "+t.queue)
		}
		if l.Verbose {
			_, _ = fmt.Fprintf(l.Out, "%s: accepted in %s: %d\n", l.result.Mode,
				t.layout.StreamName(t.queue), counts[n])
		}
	}
}

// powerOn turns the installation on and prepares it for the load. again is false for the first
// start, in which powerOn creates the queues' own streams. After a cut, again is true, and powerOn
// checks the data that has survived the cut.
func (l *powerCutRun) powerOn(ctx context.Context, again bool) (err error) {
	if err = l.startAndAwaitReady(ctx); err != nil {
		return err
	}
	l.client = apiclient.New(l.executorURL(), adminToken)
	if again {
		var lost []string
		if err := retryServerErrors(ctx, func(ctx context.Context) (err error) {
			lost, err = workflowsWithLostChanges(ctx, l.ledger, l.client)
			return err
		}); err != nil {
			return err
		}
		l.result.LostChanges += len(lost)
		for _, id := range lost {
			l.ledger.forgetWorkflow(id)
		}
	}
	if err := retryServerErrors(ctx, func(ctx context.Context) (err error) {
		l.webhookURLs, err = prepareTargets(ctx, l.client, l.targets())
		return err
	}); err != nil {
		return err
	}
	if again {
		return l.checkDurability(ctx)
	}
	return retryServerErrors(ctx, func(ctx context.Context) error {
		return createOwnStreams(ctx, l.client, l.targets())
	})
}

// cutPowerUnderLoad cuts the power while it sends deliveries and changes workflows. n is the number
// of the cut. The IDs of the changed workflows contain n, so that each cut has new workflows.
func (l *powerCutRun) cutPowerUnderLoad(ctx context.Context, n int) error {
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	enough := l.ledger.acceptedCount() + 20 + l.random.IntN(400)
	seed, pause := l.random.Uint64(), time.Duration(l.random.IntN(20_000))*time.Microsecond
	var all sync.WaitGroup
	all.Go(func() {
		sendDeliveries(ctx, l.ledger, l.webhookURLs, seed, func() bool { return false })
	})
	all.Go(func() {
		changeWorkflows(ctx, l.ledger, l.client, fmt.Sprintf("workflow-%d", n),
			l.targets()[0].queue)
	})
	for l.ledger.acceptedCount() < enough && ctx.Err() == nil {
		select {
		case <-l.ledger.acceptedSignal:
		case <-ctx.Done():
		}
	}
	retry.Sleep(ctx, pause)
	err := l.cutPower()
	stop()
	all.Wait()
	return err
}

// checkDurability sends a few more deliveries, and then compares everything that was acknowledged
// with the stream and the records.
func (l *powerCutRun) checkDurability(ctx context.Context) error {
	before := l.ledger.acceptedCount()
	sending, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	enough := before + 2*numSenders
	sendDeliveries(sending, l.ledger, l.webhookURLs, l.random.Uint64(),
		func() bool { return l.ledger.acceptedCount() >= enough })
	if l.ledger.acceptedCount() < enough {
		l.ledger.recordUnexpected("after a cut, %d of %d new deliveries were accepted",
			l.ledger.acceptedCount()-before, 2*numSenders)
	}
	starts, err := readStartCounts(ctx, l.natsURL(), l.targets())
	if err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	records, err := awaitRecords(ctx, l.client, l.targets(), recordTimeout,
		func(records map[string]recordSummary) bool {
			for _, id := range l.ledger.accepted {
				if starts[id] > 0 && records[id].recordCount == 0 {
					return false
				}
			}
			return true
		})
	if err != nil {
		return fmt.Errorf("read the records: %w", err)
	}
	byDelivery := map[string]int{}
	for _, r := range records {
		byDelivery[r.deliveryID] += r.recordCount
	}
	lost, unrecorded := 0, 0
	for deliveryID, id := range l.ledger.accepted {
		switch {
		case l.missingDeliveryIDs[deliveryID]:
		case starts[id] == 0:
			l.missingDeliveryIDs[deliveryID] = true
			lost++
		case records[id].recordCount == 0:
			l.missingDeliveryIDs[deliveryID] = true
			unrecorded++
		case starts[id] > 1 || byDelivery[deliveryID] > 1:
			l.result.Duplicated++
		}
	}
	l.result.Lost += lost
	l.result.Unrecorded += unrecorded
	if l.Verbose {
		_, _ = fmt.Fprintf(l.Out,
			"%s, cut %d: accepted %d, in the stream %d, recorded %d; lost %d, unrecorded %d\n",
			l.result.Mode, l.result.Cuts, l.ledger.acceptedCount(), len(starts), len(records), lost,
			unrecorded)
	}
	return l.redeliver(ctx)
}

// redeliver sends up to 20 acknowledged deliveries again. Each must be recognized as a repeat.
func (l *powerCutRun) redeliver(ctx context.Context) error {
	n := 0
	for deliveryID, id := range l.ledger.accepted {
		if l.missingDeliveryIDs[deliveryID] {
			continue
		}
		a, err := l.repeatDelivery(ctx, deliveryID)
		if err != nil {
			return err
		}
		l.result.Redelivered++
		if a.ExecutionID != id || !a.Deduplicated {
			l.ledger.recordUnexpected("delivery %s was %s; again it is %+v", deliveryID, id, a)
		}
		if n++; n == 20 {
			break
		}
	}
	return nil
}

// repeatDelivery sends an acknowledged delivery again. Like a sender, it retries as long as the
// response is a 503.
func (l *powerCutRun) repeatDelivery(
	ctx context.Context, deliveryID string,
) (a deliver.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	retry.Until(ctx, unavailableRetryPause, func() bool {
		url := l.webhookURLs[targetIndex(deliveryID, len(l.webhookURLs))]
		a, err = postDelivery(ctx, noKeepAliveClient, url, deliveryID, []byte("again"))
		return err != nil || a.Status != http.StatusServiceUnavailable
	})
	return a, err
}

// awaitExecutionEnds waits until every execution has ended. It adds the number of executions that
// have not ended before the timeout to StuckExecutions.
func (l *powerCutRun) awaitExecutionEnds(ctx context.Context) error {
	open := func(records map[string]recordSummary) (n int) {
		for _, r := range records {
			if !r.status.Final() {
				n++
			}
		}
		return n
	}
	records, err := awaitRecords(ctx, l.client, l.targets(), executionEndTimeout,
		func(records map[string]recordSummary) bool { return open(records) == 0 })
	l.result.StuckExecutions += open(records)
	return err
}
