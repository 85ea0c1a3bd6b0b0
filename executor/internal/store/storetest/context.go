package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var contextTests = map[string]func(*testing.T, store.Store){
	"a cancelled call does nothing": func(t *testing.T, s store.Store) {
		applyNewRecords(t, s, nthRecord(1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		calls := map[string]func() error{
			"Apply": func() error {
				_, err := s.Apply(ctx, store.Batch{
					NewRecords: []store.Record{nthRecord(2)},
					Progress:   []execution.Progress{runningProgress(1, epoch)},
				})
				return err
			},
			"AddDuplicates": func() error {
				return s.AddDuplicates(ctx, "r", epoch, map[string]int64{nthID(1): 1})
			},
			"Get": func() error { _, err := s.Get(ctx, nthID(1)); return err },
			"GetMany": func() error {
				_, err := s.GetMany(ctx, []string{nthID(1)})
				return err
			},
			"List": func() error {
				_, err := s.List(ctx, store.RecordFilter{}, store.RecordPosition{}, 5)
				return err
			},
			"CountByTime": func() error {
				_, err := s.CountByTime(ctx, store.RecordFilter{}, time.Hour)
				return err
			},
			"TokensLastUsed": func() error {
				_, err := s.TokensLastUsed(ctx, []string{"token"})
				return err
			},
			"ListAside": func() error {
				_, err := s.ListAside(ctx, store.AsideFilter{},
					store.AsidePosition{}, 5)
				return err
			},
			"MarkRequeued": func() error {
				_, err := s.MarkRequeued(ctx, []store.Requeue{{
					ID:            nthID(1),
					ReplacementID: "again",
				}})
				return err
			},
			"Dismiss": func() error {
				_, _, err := s.Dismiss(ctx, []string{nthID(1)}, []store.MessageKey{
					{StreamSequence: 1},
				}, epoch, dismissalEntry)
				return err
			},
			"ListOldest": func() error {
				_, err := s.ListOldest(ctx, store.RecordFilter{}, store.RecordPosition{}, 5)
				return err
			},
			"CountDeadLetters": func() error { _, err := s.CountDeadLetters(ctx, 5); return err },
			"Prune": func() error {
				_, err := s.Prune(ctx, nthRecord(5).AcceptedAt, 5)
				return err
			},
			"Ping": func() error { return s.Ping(ctx) },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left := listRecords(t, s, store.RecordFilter{}, store.RecordPosition{},
			5); len(left) != 1 {
			t.Errorf("records: %q", recordIDs(left))
		}
		wantRecord(t, getRecord(t, s, nthID(1)), nthRecord(1))
	},
	"a batch that is cancelled on the way is recorded whole or not at all": func(
		t *testing.T, s store.Store,
	) {
		const n = 3_000
		for round := range 6 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				records := nRecords(n, func(i int, r *store.Record) {
					r.ID, r.WorkflowID = nthID(round*n+i), nthID(round)
				})
				_, err := s.Apply(ctx, store.Batch{NewRecords: records})
				done <- err
			}()
			for range 1 << (3 * round) { // the context is canceled later in each round
				_ = ctx.Err()
			}
			_ = s.Ping(t.Context())
			cancel()
			err := <-done
			found := listRecords(t, s, store.RecordFilter{WorkflowID: nthID(round)},
				store.RecordPosition{}, 2*n)
			if len(found) != 0 && len(found) != n {
				t.Errorf("%d of %d records", len(found), n)
			}
			if err == nil && len(found) != n {
				t.Errorf("no error, and %d of %d records", len(found), n)
			}
		}
	},
}
