package recorder

import (
	"cmp"
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/retry"
)

// redelivered returns the executions of messages that were delivered before: an executor that
// recorded them may have been killed before it announced the changes.
func redelivered(entries []*entry) (ids []string) {
	for _, e := range entries {
		if e.verdict == recorded && e.meta.NumDelivered > 1 {
			if id := cmp.Or(e.record.ID, e.progress.ID); id != "" {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// record records one batch, retrying as long as necessary, and acknowledges its messages.
func (r *Recorder) record(ctx context.Context, messages []jetstream.Msg) {
	began := time.Now()
	entries := decode(messages, began)
	applied := r.commit(ctx, entries)
	// Announce before acknowledging: if this executor is killed in between, the recorded messages
	// are redelivered and announced then.
	if err := r.changes.Publish(append(applied.Changed, redelivered(entries)...)); err != nil {
		r.log.WithError(err).Debug("watchers were not told of changes")
	}
	connection := r.connection()
	for i, e := range entries {
		yield(i)
		if e.verdict == recorded {
			r.marks.acknowledged(connection, e)
		}
		if err := r.acknowledge(e); err != nil {
			r.log.WithError(err).Debug("an acknowledgement was not sent; the message comes again")
		}
	}
	if len(applied.Foreign) > 0 {
		r.log.WithField("executions", applied.Foreign[:min(len(applied.Foreign), 10)]).
			Warn("progress was reported on another queue or workflow than the execution's; it " +
				"changed nothing")
	}
	if applied.Dropped > 0 {
		r.log.WithField("reports", applied.Dropped).
			Warn("reports of executions that are not recorded were dropped: too many are kept " +
				"already")
	}
	took := time.Since(began)
	r.metrics.observe(entries, applied, took)
	if meta, err := messages[0].Metadata(); err == nil {
		// The server's clock may be ahead.
		r.metrics.delay.Observe(max(0, time.Since(meta.Timestamp)).Seconds())
	}
	r.trace(ctx, entries, began)
	count := map[kind]int{}
	decided := 0
	for _, e := range entries {
		count[e.kind]++
		if e.verdict == recorded || e.verdict == putAside {
			decided++
		}
	}
	r.log.WithFields(logrus.Fields{
		"messages":    len(messages),
		"decided":     decided,
		"starts":      count[start] + count[rejection],
		"progress":    count[progress],
		"unreadable":  count[unreadable],
		"changed":     len(applied.Changed),
		"duration_ms": float64(took.Microseconds()) / 1000,
	}).Info("recorded")
}

// acknowledge acknowledges an entry's message according to its verdict.
func (r *Recorder) acknowledge(e *entry) error {
	switch e.verdict {
	case recorded:
		return e.msg.Ack()
	case putAside:
		return e.msg.TermWithReason("put aside as a dead letter")
	case suspected:
		return e.msg.NakWithDelay(r.suspectPause)
	case undecided:
	}
	return nil
}

// applyTimeout is the maximum duration of one transaction. A batch that exceeds it is split.
const applyTimeout = 30 * time.Second

// commit records entries and sets their verdicts. It retries until every entry has a verdict or the
// context is done. It rejects an entry only if the entry's data caused the error and the entry was
// alone in its transaction.
func (r *Recorder) commit(ctx context.Context, entries []*entry) (all store.Applied) {
	todo := [][]*entry{entries} // in order; a batch that fails is split
	for failures := 0; len(todo) > 0; {
		group := todo[0]
		applied, late, err := r.apply(ctx, batchOf(group))
		divide := false
		switch {
		case err == nil:
			r.database.noteSuccess()
			failures = 0
			todo = todo[1:]
			r.suspects.clear(group)
			setVerdicts(group)
			all.Changed = append(all.Changed, applied.Changed...)
			all.Foreign = append(all.Foreign, applied.Foreign...)
			all.Unknown = append(all.Unknown, applied.Unknown...)
			all.Dropped += applied.Dropped
		case ctx.Err() != nil:
			return all
		case store.IsDataError(err):
			r.database.noteSuccess()
			failures = 0
			if divide = len(group) > 1; !divide {
				todo = todo[1:]
				r.handleRefused(ctx, group[0], err)
			}
		default:
			r.database.noteFailure(err)
			if divide = late && len(group) > 1; !divide {
				retry.Sleep(ctx, backoff(failures))
				failures++
			}
		}
		if divide {
			half := len(group) / 2
			todo = append([][]*entry{group[:half], group[half:]}, todo[1:]...)
		}
	}
	return all
}

// apply runs one transaction. late reports whether the context expired, by applyTimeout or
// otherwise.
func (r *Recorder) apply(
	ctx context.Context, b store.Batch,
) (applied store.Applied, late bool, err error) {
	defer r.database.expect(r.ackWait)()
	ctx, cancel := context.WithTimeout(ctx, r.applyTimeout)
	defer cancel()
	applied, err = r.store.Apply(ctx, b)
	return applied, ctx.Err() != nil, err
}

// setVerdicts sets the verdicts of the entries of a committed transaction.
func setVerdicts(group []*entry) {
	for _, e := range group {
		// Includes progress that arrived before its start: the store keeps it until the start
		// arrives.
		e.verdict = recorded
		if e.kind == unreadable {
			e.verdict = putAside
		}
	}
}

// handleRefused handles an entry that the database rejected when it was alone in its transaction.
// It retries the entry for a while and then quarantines it. If the database rejects the quarantine
// as well, the entry is retried indefinitely.
func (r *Recorder) handleRefused(ctx context.Context, e *entry, why error) {
	e.verdict = suspected
	if e.kind == unreadable || !r.suspects.mustQuarantine(e, time.Now()) {
		return
	}
	aside := store.Batch{
		Unreadable: []store.Unreadable{e.deadLetter(store.RefusedReason + why.Error())},
		Audit:      e.audit,
		Decided:    rangesOf([]*entry{e}),
	}
	if _, _, err := r.apply(ctx, aside); err != nil {
		if ctx.Err() == nil {
			r.log.WithError(err).WithField("stream_sequence",
				e.meta.Sequence.Stream).Error("what the database refuses could not be put aside; " +
				"it is tried again")
		}
		return
	}
	r.database.noteSuccess()
	e.verdict = putAside
	r.suspects.clear([]*entry{e})
	r.metrics.refused.Inc()
	r.log.WithError(why).WithField("stream_sequence",
		e.meta.Sequence.Stream).Error("the database refuses a message; it is put aside as a dead " +
		"letter")
}
