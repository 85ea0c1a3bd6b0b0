package recorder

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/retry"
)

// applyTimeout is the maximum duration of one transaction. A batch that takes longer is split.
const applyTimeout = 30 * time.Second

// commit records entries and gives each its verdict. It retries until every entry has a verdict or
// the context ends. It refuses an entry only for an error that the entry's data caused, and only
// when the entry was alone in its transaction.
func (r *Recorder) commit(ctx context.Context, entries []*entry) (all store.Applied) {
	todo := [][]*entry{entries} // in order; a batch that fails is split
	for failures := 0; len(todo) > 0; {
		group := todo[0]
		applied, late, err := r.apply(ctx, batchOf(group))
		divide := false
		switch {
		case err == nil:
			r.database.works()
			failures = 0
			todo = todo[1:]
			r.suspects.clear(group)
			settle(group)
			all.Changed = append(all.Changed, applied.Changed...)
			all.Foreign = append(all.Foreign, applied.Foreign...)
			all.Unknown = append(all.Unknown, applied.Unknown...)
			all.Dropped += applied.Dropped
		case ctx.Err() != nil:
			return all
		case store.IsDataError(err):
			r.database.works()
			failures = 0
			if divide = len(group) > 1; !divide {
				todo = todo[1:]
				r.refuse(ctx, group[0], err)
			}
		default:
			r.database.fails(err)
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

// apply runs one transaction. late reports whether it exceeded applyTimeout.
func (r *Recorder) apply(
	ctx context.Context, b store.Batch,
) (applied store.Applied, late bool, err error) {
	defer r.database.expect(r.ackWait)()
	ctx, cancel := context.WithTimeout(ctx, r.applyTimeout)
	defer cancel()
	applied, err = r.store.Apply(ctx, b)
	return applied, ctx.Err() != nil, err
}

// settle gives the entries of a committed transaction their verdicts.
func settle(group []*entry) {
	for _, e := range group {
		// Progress that came before its start, too: the store keeps it until the start comes.
		e.verdict = recorded
		if e.kind == unreadable {
			e.verdict = putAside
		}
	}
}

// refuse handles an entry that the database refused when it was alone in its transaction: it
// retries the entry for a while, then quarantines it. If the database refuses the quarantine, too,
// the entry is retried without end.
func (r *Recorder) refuse(ctx context.Context, e *entry, why error) {
	e.verdict = suspected
	if e.kind == unreadable || !r.suspects.certain(e, time.Now()) {
		return
	}
	aside := store.Batch{
		Unreadable: []store.Unreadable{e.aside(store.RefusedReason + why.Error())},
		Audit:      e.audit,
		Decided:    decidedBy([]*entry{e}),
	}
	if _, _, err := r.apply(ctx, aside); err != nil {
		if ctx.Err() == nil {
			r.log.WithError(err).WithField("stream_sequence",
				e.meta.Sequence.Stream).Error("what the database refuses could not be put aside; " +
				"it is tried again")
		}
		return
	}
	r.database.works()
	e.verdict = putAside
	r.suspects.clear([]*entry{e})
	r.metrics.refused.Inc()
	r.log.WithError(why).WithField("stream_sequence",
		e.meta.Sequence.Stream).Error("the database refuses a message; it is put aside as a dead " +
		"letter")
}
