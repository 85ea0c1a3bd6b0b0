//go:build linux

// Package powercut cuts the power of hookstart-local, again and again, under load: it runs on a file system that forgets what was
// not synced ([disk.Disk], by FUSE), is killed, and is started again on what a disk would have kept. Then what senders and
// operators were told is compared with what is there.
//
// With --sync-always nothing may be missing. With the default sync something has to be: that is the control, which shows that the
// file system does forget. There, too, what is accepted after the cut has to be recorded, and every execution has to end.
//
// The file system is as ext4 and XFS are ([disk.Ordered]). On one that promises no more than POSIX ([disk.Strict]), nats-server
// 2.15 loses what it has synced: it syncs neither the folder of a new stream nor that of a new file of messages. What
// hookstart-local makes itself survives there, too.
package powercut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
	"github.com/hookstart/hookstart/executor/apiclient"
	"github.com/hookstart/hookstart/shared/retry"
)

// Config is all that can be told. The tags are the flags of the program.
type Config struct {
	Cuts    int    `help:"How often the power is cut, with --sync-always, and as often without it." default:"50"`
	Seed    uint64 `help:"Where the luck comes from. 0: another one each time; it is printed. When a cut comes is still for the machine's load to say." default:"0"`
	Model   string `help:"What fsync makes durable: ordered (ext4, XFS: all names, too) or strict (POSIX: a folder's names only with the folder's own fsync)." enum:"ordered,strict" default:"ordered"`
	Verbose bool   `help:"Tell of each cut."`
	Keep    bool   `help:"Keep the folder with the logs; else it stays only when something is wrong."`

	// Out is where people read how it goes. nil: stdout.
	Out io.Writer `kong:"-"`
	// NoEnds does not wait for the end of every execution, which takes more than a minute in the control.
	NoEnds bool `kong:"-"`
	// CutsPerDisk is how many cuts a disk lives through before a new, empty one. 0: ten.
	CutsPerDisk int `kong:"-"`
	// worst leaves nothing of what was not synced, so that few cuts are enough for the control to lose.
	worst bool
}

// How long hookstart-local may take to record what it has accepted, and to end every execution.
const (
	recordTimeout = 30 * time.Second
	endTimeout    = 2 * time.Minute
)

// Result is what became of one mode's deliveries and changes.
type Result struct {
	Mode                                             string
	Cuts, Accepted, Lost, Unrecorded, Doubled, Stuck int
	// Changes are those that the operators' API has confirmed, LostChanges the workflows that were not so.
	Changes, LostChanges int
	// Strange are answers that nobody should get.
	Strange []string
}

// Run cuts the power in both modes and prints a table. It is an error when something is missing, or nothing from the control.
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
	if err := disk.Probe(folder); err != nil {
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
	_, _ = fmt.Fprintf(c.Out, "seed %d, model %s, %d cuts for each mode\n", c.Seed, c.Model, c.Cuts)
	always, err := c.mode(ctx, filepath.Join(folder, "always"), true)
	if err != nil {
		return fmt.Errorf("--sync-always, after %d cuts: %w", always.Cuts, err)
	}
	control, err := c.mode(ctx, filepath.Join(folder, "default"), false)
	if err != nil {
		return fmt.Errorf("default sync, after %d cuts: %w", control.Cuts, err)
	}
	writeTable(c.Out, always, control)
	return errors.Join(always.check(false), control.check(true))
}

// check says what is wrong; mustLose is the control.
func (r Result) check(mustLose bool) error {
	var wrong []error
	complain := func(n int, what string) {
		if n > 0 {
			wrong = append(wrong, fmt.Errorf("%s: %d %s", r.Mode, n, what))
		}
	}
	if mustLose && r.Lost == 0 {
		wrong = append(wrong, fmt.Errorf("%s: nothing was lost: the file system does not forget, and the test shows nothing", r.Mode))
	}
	if !mustLose {
		complain(r.Lost, "acknowledged deliveries lost")
		complain(r.LostChanges, "confirmed changes lost")
	}
	complain(r.Unrecorded, "accepted and never recorded")
	complain(r.Doubled, "there twice")
	complain(r.Stuck, "neither succeeded nor failed")
	for _, text := range r.Strange {
		wrong = append(wrong, fmt.Errorf("%s: %s", r.Mode, text))
	}
	return errors.Join(wrong...)
}

func writeTable(out io.Writer, results ...Result) {
	const row = "%-14s %6v %9v %6v %11v %8v %6v %8v %13v\n"
	_, _ = fmt.Fprintf(out, row, "", "cuts", "accepted", "lost", "unrecorded", "doubled", "stuck", "changes", "lost changes")
	for _, r := range results {
		_, _ = fmt.Fprintf(out, row, r.Mode, r.Cuts, r.Accepted, r.Lost, r.Unrecorded, r.Doubled, r.Stuck, r.Changes, r.LostChanges)
	}
}

// mode cuts the power of one mode.
func (c Config) mode(ctx context.Context, folder string, syncAlways bool) (r Result, err error) {
	r.Mode = "default sync"
	if syncAlways {
		r.Mode = "--sync-always"
	}
	luck := rand.New(rand.NewPCG(c.Seed, c.Seed)) //nolint:gosec // not a secret
	var left disk.Luck = luck
	if c.worst {
		left = disk.Worst
	}
	for number := 1; r.Cuts < c.Cuts; number++ {
		m, err := newMachine(filepath.Join(folder, fmt.Sprint(number)), disk.Model(c.Model), syncAlways, left)
		if err != nil {
			return r, err
		}
		l := &life{Config: c, machine: m, luck: luck, book: newBook(fmt.Sprintf("%s-%d", filepath.Base(folder), number)), result: &r, lost: map[string]bool{}}
		err = l.live(ctx, min(c.CutsPerDisk, c.Cuts-r.Cuts))
		if err := errors.Join(err, m.cut()); err != nil {
			return r, err
		}
	}
	return r, nil
}

// life is that of one disk.
type life struct {
	Config
	*machine

	luck   *rand.Rand
	book   *book
	result *Result
	// lost are the deliveries that are known to be lost, or unrecorded.
	lost   map[string]bool
	client *apiclient.Client
	url    string // to send to
}

// live cuts the power that often, and looks at what is left each time.
func (l *life) live(ctx context.Context, cuts int) error {
	for n := range cuts {
		if err := l.on(ctx, n > 0); err != nil {
			return err
		}
		if err := l.load(ctx, n); err != nil {
			return err
		}
		l.result.Cuts++
		// Now and then the power comes back for a moment only.
		if l.luck.IntN(5) == 0 {
			if err := l.start(); err != nil {
				return err
			}
			retry.Wait(ctx, time.Duration(l.luck.IntN(1000))*time.Millisecond)
			if err := l.cut(); err != nil {
				return err
			}
		}
	}
	if err := l.on(ctx, true); err != nil {
		return err
	}
	if !l.NoEnds {
		if err := l.awaitEnds(ctx); err != nil {
			return err
		}
	}
	l.result.Changes += l.book.changes
	l.result.Accepted += l.book.len()
	l.result.Strange = append(l.result.Strange, l.book.strange...)
	return nil
}

// on turns the machine on and looks at what is there.
func (l *life) on(ctx context.Context, again bool) (err error) {
	if err = l.boot(ctx); err != nil {
		return err
	}
	l.client = apiclient.New(l.process.executor, adminToken)
	if again {
		lost, err := lostWorkflows(ctx, l.book, l.client)
		if err != nil {
			return err
		}
		l.result.LostChanges += len(lost)
		for _, id := range lost {
			l.book.forget(id)
		}
	}
	if l.url, err = prepare(ctx, l.client); err != nil || !again {
		return err
	}
	return l.audit(ctx)
}

// load sends and operates, and cuts the power in the middle of it.
func (l *life) load(ctx context.Context, n int) error {
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	enough := l.book.len() + 20 + l.luck.IntN(400)
	seed, pause := l.luck.Uint64(), time.Duration(l.luck.IntN(20_000))*time.Microsecond
	var all sync.WaitGroup
	all.Go(func() { send(ctx, l.book, l.url, seed, func() bool { return false }) })
	all.Go(func() { operate(ctx, l.book, l.client, fmt.Sprintf("workflow-%d", n)) })
	for l.book.len() < enough && ctx.Err() == nil {
		select {
		case <-l.book.grown:
		case <-ctx.Done():
		}
	}
	retry.Wait(ctx, pause)
	err := l.cut()
	stop()
	all.Wait()
	return err
}

// audit compares what was acknowledged with what is there, after a few more deliveries.
func (l *life) audit(ctx context.Context) error {
	before := l.book.len()
	sending, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	enough := before + 2*senders
	send(sending, l.book, l.url, l.luck.Uint64(), func() bool { return l.book.len() >= enough })
	if l.book.len() < enough {
		l.book.wonder("after a cut, %d of %d new deliveries were accepted", l.book.len()-before, 2*senders)
	}
	starts, err := readStarts(ctx, l.process.nats)
	if err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	records, err := awaitRecords(ctx, l.client, recordTimeout, func(records map[string]record) bool {
		for _, id := range l.book.accepted {
			if starts[id] > 0 && records[id].times == 0 {
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
		byDelivery[r.deliveryID] += r.times
	}
	lost, unrecorded := 0, 0
	for deliveryID, id := range l.book.accepted {
		switch {
		case l.lost[deliveryID]:
		case starts[id] == 0:
			l.lost[deliveryID] = true
			lost++
		case records[id].times == 0:
			l.lost[deliveryID] = true
			unrecorded++
		case starts[id] > 1 || byDelivery[deliveryID] > 1:
			l.result.Doubled++
		}
	}
	l.result.Lost += lost
	l.result.Unrecorded += unrecorded
	if l.Verbose {
		_, _ = fmt.Fprintf(l.Out, "%s, cut %d: accepted %d, in the stream %d, recorded %d; lost %d, unrecorded %d\n",
			l.result.Mode, l.result.Cuts, l.book.len(), len(starts), len(records), lost, unrecorded)
	}
	return l.repeat(ctx)
}

// repeat sends some of what was acknowledged once more: it has to be recognised.
func (l *life) repeat(ctx context.Context) error {
	n := 0
	for deliveryID, id := range l.book.accepted {
		if l.lost[deliveryID] {
			continue
		}
		a, err := post(ctx, repeating, l.url, deliveryID, []byte("again"))
		if err != nil {
			return err
		}
		if a.ExecutionID != id || !a.Deduplicated {
			l.book.wonder("delivery %s was %s; again it is %+v", deliveryID, id, a)
		}
		if n++; n == 20 {
			break
		}
	}
	return nil
}

// awaitEnds waits until every execution has come to its end.
func (l *life) awaitEnds(ctx context.Context) error {
	open := func(records map[string]record) (n int) {
		for _, r := range records {
			if !r.status.Final() {
				n++
			}
		}
		return n
	}
	records, err := awaitRecords(ctx, l.client, endTimeout, func(records map[string]record) bool { return open(records) == 0 })
	l.result.Stuck += open(records)
	return err
}
