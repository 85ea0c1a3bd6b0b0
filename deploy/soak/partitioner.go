package soak

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/network"
	"github.com/hookstart/hookstart/shared/retry"
)

// partitionRecord is a partition that was applied, with the duration of the recovery from it.
type partitionRecord struct {
	partition
	from, to time.Time
	// recoveryByIngress holds, for each ingress, the time from the healing of the network to the
	// first 200 of the ingress, or 0 if there was none before the timeout.
	recoveryByIngress []time.Duration
	// replicaRecovery is the time from the healing of the network until every replica was current,
	// or 0 if some replica was not current before the timeout.
	replicaRecovery time.Duration
}

// partitioner repeatedly partitions the network between the hosts and heals it.
type partitioner struct {
	network      *network.Network
	installation *installation
	probes       *probes
	natsProbes   *natsProbes
	random       *rand.Rand
	kindFilter   string // apply only partitions whose kind contains this; "" means all
	logf         func(format string, args ...any)

	mu      sync.Mutex
	records []partitionRecord
}

// run applies one partition after another until the starting context is done. It returns when the
// last partition has healed and the hosts have recovered.
func (f *partitioner) run(ctx, starting context.Context) {
	retry.Sleep(starting, partitionPause)
	for {
		for _, kind := range randomPartitions(f.random) {
			if !strings.Contains(kind.kind, f.kindFilter) {
				continue
			}
			if starting.Err() != nil {
				return
			}
			f.applyPartition(ctx, kind)
			retry.Sleep(starting, partitionPause)
		}
		if starting.Err() != nil {
			return
		}
	}
}

func (f *partitioner) applyPartition(ctx context.Context, kind partition) {
	f.mu.Lock()
	index := len(f.records)
	f.records = append(f.records, partitionRecord{partition: kind, from: time.Now()})
	f.mu.Unlock()
	applying, stop := context.WithCancel(ctx)
	var applied sync.WaitGroup
	applied.Go(func() { kind.apply(applying, f.network) })
	retry.Sleep(ctx, kind.duration)
	stop()
	applied.Wait()
	f.network.Heal()
	healed := time.Now()
	f.updateRecord(index, func(p *partitionRecord) { p.to = healed })
	reunion := f.probes.awaitAllAccepting(ctx, healed, hostRecoveryTimeout)
	f.updateRecord(index, func(p *partitionRecord) { p.recoveryByIngress = reunion })
	if err := f.installation.awaitReplicas(ctx, hostRecoveryTimeout); err == nil {
		f.updateRecord(index, func(p *partitionRecord) { p.replicaRecovery = time.Since(healed) })
	}
	f.mu.Lock()
	p := f.records[index]
	f.mu.Unlock()
	within, after := f.probes.acceptedShares(p)
	natsWithin, natsAfter := f.natsProbes.acceptedShares(p)
	f.logf(
		"%s for %s; available %s, after %s %s; NATS alone %s, after that %s; first 200 after "+
			"healing %v, replicas %s",
		kind,
		kind.duration.Round(100*time.Millisecond),
		formatShares(within),
		maxUnavailability,
		formatShares(after),
		formatShares(natsWithin),
		formatShares(natsAfter),
		p.recoveryByIngress,
		p.replicaRecovery.Round(100*time.Millisecond),
	)
}

func (f *partitioner) updateRecord(index int, change func(*partitionRecord)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.records[index])
}

func (f *partitioner) partitionRecords() []partitionRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.records)
}

// describeLatestPartition describes the current partition, or the last one and how long ago it was
// healed.
func (f *partitioner) describeLatestPartition() string {
	all := f.partitionRecords()
	if len(all) == 0 {
		return "before the first partition"
	}
	last := all[len(all)-1]
	if last.to.IsZero() {
		return fmt.Sprintf("%s into %q", time.Since(last.from).Round(100*time.Millisecond), last)
	}
	return fmt.Sprintf("%s after %q", time.Since(last.to).Round(100*time.Millisecond), last)
}

func (f *partitioner) incidents() (all []incident) {
	for _, p := range f.partitionRecords() {
		all = append(all, incident{kind: p.String(), from: p.from, to: p.to})
	}
	return all
}

func (f *partitioner) progressText(b *ledger, all *operators) string {
	t := b.currentTotals()
	return fmt.Sprintf("partitions %d  acknowledged %d  refused %d  no answer %d  changes %d  "+
		"contradictions %d",
		len(f.partitionRecords()), t.acknowledged, totalCount(t.refusedByCode),
		totalCount(t.errorsByKind), all.confirmedChanges.Load(), len(all.allContradictions()))
}

// slowRecoveries describes the ingresses that, after a partition had healed, took longer than
// maxUnavailability to answer a request with 200, or never did.
func (f *partitioner) slowRecoveries() (late []string) {
	for _, p := range f.partitionRecords() {
		for host, took := range p.recoveryByIngress {
			if took == 0 || took > maxUnavailability {
				late = append(late,
					fmt.Sprintf("%s, %s: %s", p, hostNames[host], formatRecoveryTime(took)))
			}
		}
	}
	return late
}

func formatRecoveryTime(took time.Duration) string {
	if took == 0 {
		return "none within " + hostRecoveryTimeout.String()
	}
	return took.Round(100 * time.Millisecond).String()
}

// slowRecoveriesErr returns an error if any ingress took longer than maxUnavailability to recover
// from a partition.
func (f *partitioner) slowRecoveriesErr() error {
	if late := f.slowRecoveries(); len(late) > 0 {
		return fmt.Errorf("%d ingresses took more than %s after healing until their first 200",
			len(late), maxUnavailability)
	}
	return nil
}

// writeResults prints a table with a row for each kind of partition, and a list of the ingresses
// that recovered too slowly.
func (f *partitioner) writeResults(out io.Writer) {
	type row struct {
		count                  int
		within, after, cut     acceptedShare
		natsWithin, natsAfter  acceptedShare
		slowest, completeAfter time.Duration
		below                  int
		incomplete             int
	}
	rows := map[string]*row{}
	for _, p := range f.partitionRecords() {
		r := rows[p.kind]
		if r == nil {
			r = &row{}
			rows[p.kind] = r
		}
		r.count++
		within, after := f.probes.acceptedShares(p)
		natsWithin, natsAfter := f.natsProbes.acceptedShares(p)
		for host := range hostNames {
			if slices.Contains(p.cutOffHosts, host) {
				r.cut.add(within[host])
				continue
			}
			r.within.add(within[host])
			r.after.add(after[host])
			r.natsWithin.add(natsWithin[host])
			r.natsAfter.add(natsAfter[host])
			if within[host].percent() < 95 { //nolint:mnd // the promise
				r.below++
			}
		}
		for _, took := range p.recoveryByIngress {
			if took == 0 {
				took = hostRecoveryTimeout
			}
			r.slowest = max(r.slowest, took)
		}
		if p.replicaRecovery == 0 {
			r.incomplete++
		}
		r.completeAfter = max(r.completeAfter, p.replicaRecovery)
	}
	_, _ = fmt.Fprintf(out,
		"\nRequests answered 200 at the ingresses of hosts that are not cut off, in the first %s "+
			"of a partition and after that; NATS: messages that the NATS servers of the same "+
			"hosts confirmed within %s, in a stream of their own\n",
		maxUnavailability, natsProbeTimeout)
	const form = "%-14s %5v %12v %12v %12v %12v %12v %12v %14v %12v\n"
	_, _ = fmt.Fprintf(out, form, "partition", "times", "first 10 s", "after that", "NATS first",
		"NATS after", "below 95 %", "cut off", "first 200", "replicas")
	for _, kind := range slices.Sorted(maps.Keys(rows)) {
		r := rows[kind]
		complete := r.completeAfter.Round(100 * time.Millisecond).String()
		if r.incomplete > 0 {
			complete = fmt.Sprintf("%d never", r.incomplete)
		}
		_, _ = fmt.Fprintf(out, form, kind, r.count, r.within, r.after, r.natsWithin,
			r.natsAfter, r.below, r.cut,
			r.slowest.Round(100*time.Millisecond), complete)
	}
	_, _ = fmt.Fprintf(out,
		"below 95 %%: hosts in the first %s; first 200, replicas: the slowest after healing, of "+
			"all hosts\n", maxUnavailability)
	late := f.slowRecoveries()
	_, _ = fmt.Fprintf(out,
		"%-14s %8d  ingresses whose first 200 came more than %s after healing\n", "late", len(late),
		maxUnavailability)
	printFirstLines(out, late)
}
