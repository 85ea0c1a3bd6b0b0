package recorder

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
)

// redeliveredIDs returns the IDs of the recorded executions that have a message that was delivered
// more than once. These executions must be announced as changed even if nothing has changed now:
// another executor may have recorded them, and may have been killed before it announced them.
func redeliveredIDs(entries []*entry) (ids []string) {
	for _, e := range entries {
		if e.verdict == verdictRecorded && e.meta.NumDelivered > 1 {
			ids = append(ids, affectedExecutionIDs(e)...)
		}
	}
	return ids
}

// affectedExecutionIDs returns the IDs of the executions whose records the entries may insert or
// change.
func affectedExecutionIDs(entries ...*entry) (ids []string) {
	for _, e := range entries {
		if id := cmp.Or(e.record.ID, e.progress.ID); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// applyTimeout is the maximum duration of one transaction. A batch that exceeds it is split.
const applyTimeout = 30 * time.Second

// commit records entries and sets their verdicts. It retries until every entry has a verdict or the
// context is done. If the database refuses a transaction because of its data, commit splits the
// batch and tries the parts. An entry counts as refused only if it is refused when it is alone in
// its transaction.
func (r *Recorder) commit(ctx context.Context, entries []*entry) (all store.ApplyResult) {
	todo := [][]*entry{entries} // the batches to commit, in order; a batch that fails is split
	// uncertain is true if the database's response to a transaction was lost, so that the
	// transaction may have been committed. A retry then changes nothing and reports no changes, so
	// commit reports all executions of the entries as changed.
	uncertain := false
	for failures := 0; len(todo) > 0; {
		group := todo[0]
		applied, late, err := r.apply(ctx, newStoreBatch(group))
		divide := false
		switch {
		case err == nil:
			r.databaseHealth.noteSuccess(recordingLoop)
			failures = 0
			todo = todo[1:]
			r.suspects.remove(group)
			setVerdicts(group)
			r.noteLateStarts(group)
			if uncertain {
				applied.ChangedIDs = affectedExecutionIDs(group...)
			}
			all.ChangedIDs = append(all.ChangedIDs, applied.ChangedIDs...)
			all.MismatchedIDs = append(all.MismatchedIDs, applied.MismatchedIDs...)
			all.UnrecordedIDs = append(all.UnrecordedIDs, applied.UnrecordedIDs...)
			all.DroppedProgress += applied.DroppedProgress
		case ctx.Err() != nil:
			return all
		case store.IsDataError(err):
			r.databaseHealth.noteSuccess(recordingLoop)
			failures = 0
			if divide = len(group) > 1; !divide {
				todo = todo[1:]
				r.handleRefusedEntry(ctx, group[0], err)
			}
		default:
			r.databaseHealth.noteFailure(recordingLoop, err)
			uncertain = true
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

// apply writes b to the database in one transaction. timedOut is true if the transaction took
// longer than applyTimeout, or if ctx is done.
func (r *Recorder) apply(
	ctx context.Context, b store.Batch,
) (applied store.ApplyResult, timedOut bool, err error) {
	defer r.databaseHealth.watchTransaction(r.timings.slowTransactionThreshold)()
	ctx, cancel := context.WithTimeout(ctx, r.timings.applyTimeout)
	defer cancel()
	applied, err = r.store.Apply(ctx, b)
	return applied, ctx.Err() != nil, err
}

// setVerdicts sets the verdicts of entries whose transaction has been committed.
func setVerdicts(group []*entry) {
	for _, e := range group {
		// This verdict also applies to progress that arrived before its start message: the store
		// keeps the progress until it records the start message.
		e.verdict = verdictRecorded
		if e.kind == kindUnreadable {
			e.verdict = verdictPutAside
		}
	}
}

// noteLateStarts handles start messages that were stored long after their executions were accepted,
// for example because an operator event started an execution in a queue that accepted no messages
// for hours. The searches of EndLostExecutions may already have passed the acceptance times of
// these executions, so noteLateStarts makes the next search go back to them.
func (r *Recorder) noteLateStarts(group []*entry) {
	for _, e := range group {
		if e.kind == kindStart &&
			e.meta.Timestamp.Sub(e.record.AcceptedAt) > lostSearchOverlap/2 {
			r.oldestLateAcceptance.add(e.record.AcceptedAt)
		}
	}
}

// handleRefusedEntry handles an entry that the database has refused although it was alone in its
// transaction. The entry is retried for a while and then put aside as a dead letter. If it is an
// unreadable report, its execution is not marked as failed. If the database refuses even the dead
// letter, the entry is retried indefinitely.
func (r *Recorder) handleRefusedEntry(ctx context.Context, e *entry, why error) {
	e.verdict = verdictPoisonSuspect
	if !r.suspects.mustPutAside(e, time.Now()) {
		return
	}
	message := e.aside
	if e.kind != kindUnreadable {
		message = e.asideMessage(store.RefusedReasonPrefix + why.Error())
	}
	aside := store.Batch{
		PutAside: []store.AsideMessage{message},
		Audit:    e.audit,
		Handled:  handledRangesOf([]*entry{e}),
	}
	if _, _, err := r.apply(ctx, aside); err != nil {
		if ctx.Err() == nil {
			r.log.WithError(err).WithField("stream_sequence",
				e.meta.Sequence.Stream).Error("could not put aside a message that the database " +
				"refuses; retrying")
		}
		return
	}
	r.databaseHealth.noteSuccess(recordingLoop)
	e.verdict = verdictPutAside
	r.suspects.remove([]*entry{e})
	r.metrics.refusedMessages.Inc()
	r.log.WithError(why).WithField("stream_sequence",
		e.meta.Sequence.Stream).Error("the database refuses a message; it is put aside as a dead " +
		"letter")
}

// newStoreBatch combines entries into one batch for the store.
func newStoreBatch(entries []*entry) store.Batch {
	var count [kindExpired + 1]int
	for _, e := range entries {
		count[e.kind]++
	}
	b := store.Batch{
		NewRecords: slices.Grow([]store.Record(nil), count[kindStart]+count[kindRejection]),
		Progress:   slices.Grow([]execution.Progress(nil), count[kindProgress]),
		Handled:    handledRangesOf(entries),
	}
	for _, e := range entries {
		switch e.kind {
		case kindStart, kindRejection:
			b.NewRecords = append(b.NewRecords, e.record)
			b.Audit = append(b.Audit, e.audit...)
		case kindProgress:
			b.Progress = append(b.Progress, e.progress)
		case kindUnreadable:
			b.PutAside = append(b.PutAside, e.aside)
			if e.progress.ID != "" {
				b.Progress = append(b.Progress, e.progress)
			}
		case kindExpired:
			b.Audit = append(b.Audit, e.audit...) // audit entries have a retention of their own
		case kindDedupMarker:
		}
	}
	pointRecordsAtCopies(entries, b.NewRecords)
	return b
}
