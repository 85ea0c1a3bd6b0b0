// Package soak runs hookstart in the production shape, real processes on loopback, under
// load and under faults, and then compares what senders were told with what is stored and
// recorded.
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
)

// Config is all that a soak can be told. The tags are the flags of the program.
type Config struct {
	Duration time.Duration `help:"How long there are load and faults." default:"10m"`
	Seed     uint64        `help:"Which faults happen, and in which order. 0: another one each time; it is printed." default:"0"`
	Rate     float64       `help:"Deliveries per second, when nothing is away." default:"400"`
	Senders  int           `help:"How many send at the same time." default:"1000"`
	Every    time.Duration `help:"How often a fault begins, on average." default:"4s"`
	Verbose  bool          `help:"Tell each fault when it is over."`
	Keep     bool          `help:"Keep the folder with the data and the logs; else it stays only when something is wrong."`

	// Out is where people read how it goes, and the ledger. Required.
	Out io.Writer `kong:"-"`
}

// How long what comes after the load may take.
const (
	readyTimeout  = time.Minute
	recordTimeout = 2 * time.Minute
)

var errInterrupted = errors.New("interrupted: there is no ledger")

func (c *Config) validate() error {
	if c.Duration <= 0 || c.Rate <= 0 || c.Senders <= 0 || c.Every <= 0 {
		return errors.New("--duration, --rate, --senders and --every must be more than 0")
	}
	return nil
}

// Run soaks. It is an error when something that was acknowledged is lost or there twice,
// and when the context ends before.
func Run(ctx context.Context, c Config) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // not a secret
	}
	folder, err := os.MkdirTemp("", "hookstart-soak-")
	if err != nil {
		return err
	}
	defer func() {
		if !c.Keep && (err == nil || ctx.Err() != nil) {
			_ = os.RemoveAll(folder)
			return
		}
		if err == nil {
			_, _ = fmt.Fprintln(c.Out, "the data and the logs are in", folder)
			return
		}
		err = fmt.Errorf("%w; the logs are in %s", err, folder)
	}()
	_, _ = fmt.Fprintf(c.Out, "seed %d: 3 NATS nodes, 2 ingresses, 2 executors, PostgreSQL; %s\n", c.Seed, c.Duration)
	database, err := pgtest.Create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Remove()) }()
	i, err := install(ctx, folder, shape{nodes: 3, ingresses: 2, executors: 2, databaseURL: database.URL()})
	if err == nil {
		defer i.close()
	}
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		return err
	}

	r := &report{seed: c.Seed}
	b := newBook()
	say := func(string, ...any) {}
	began := time.Now()
	if c.Verbose {
		say = func(format string, args ...any) {
			_, _ = fmt.Fprintf(c.Out, "%6s  %s\n", time.Since(began).Round(time.Second), fmt.Sprintf(format, args...))
		}
	}
	f := newFaults(i, database, c.Seed, c.Every, say)
	showing, stopShowing := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { showProgress(showing, c.Out, began, func() string { return status(b, f) }) })
	load(ctx, c, i, b, f)
	stopShowing()
	shown.Wait()
	r.took = time.Since(began)
	if ctx.Err() != nil {
		return errInterrupted
	}

	_, _ = fmt.Fprintln(c.Out, "all faults are over; waiting until everything is recorded")
	if err := i.awaitReady(ctx, readyTimeout); err != nil {
		return err
	}
	if err := i.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	if err := awaitRecorder(ctx, i.js, recordTimeout); err != nil {
		return err
	}
	starts, err := readStarts(ctx, i.js)
	if err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	records, err := readRecords(ctx, i.client())
	if err != nil {
		return fmt.Errorf("read the records: %w", err)
	}
	r.totals, r.incidents = b.soFar(), f.happened()
	r.audit = examine(b, starts, records, r.incidents)
	r.ended = append(i.complaints(), f.problems...)
	r.write(c.Out)
	if a := r.audit; len(a.lost)+len(a.doubled)+len(a.strange) > 0 {
		return fmt.Errorf("seed %d: %d lost, %d doubled, %d strange", c.Seed, len(a.lost), len(a.doubled), len(a.strange))
	}
	return nil
}

// load returns when the time is over, the last fault too, and every sender has its answer
// or has given up.
func load(ctx context.Context, c Config, i *installation, b *book, f *faults) {
	starting, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		newSenders(b, i, strconv.FormatUint(c.Seed, 10)).post(ctx, starting, c.Senders, c.Rate, c.Seed)
	})
	all.Go(func() { f.run(ctx, starting) })
	all.Wait()
}

func status(b *book, f *faults) string {
	t := b.soFar()
	return fmt.Sprintf("faults %d  acknowledged %d  refused %d  no answer %d", len(f.happened()), t.acknowledged, sum(t.refused), sum(t.errors))
}
