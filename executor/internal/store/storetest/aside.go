package storetest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var asideMessageTests = map[string]func(*testing.T, store.Store){
	"kept once, listed the newest first, by pages": func(t *testing.T, s store.Store) {
		// Messages 1, 3 and 4 were stored at the same time.
		message := func(n uint64) store.AsideMessage {
			at := epoch.Add(time.Duration(max(n, 4)) * time.Second)
			return store.AsideMessage{
				StreamSequence: n, Subject: "subject", Reason: "reason", At: at,
			}
		}
		applyBatch(t, s, store.Batch{PutAside: []store.AsideMessage{
			message(3), message(1),
			message(7),
		}})
		again := message(3)
		again.Reason = "another"
		applyBatch(t, s, store.Batch{PutAside: []store.AsideMessage{again, message(4), again}})
		at := func(n uint64) store.AsidePosition {
			return store.AsidePosition{At: message(n).At, StreamSequence: n}
		}
		for _, c := range []struct {
			after store.AsidePosition
			limit int
			want  []uint64
		}{
			{store.AsidePosition{}, 10, []uint64{7, 4, 3, 1}},
			{store.AsidePosition{}, 2, []uint64{7, 4}},
			{at(4), 2, []uint64{3, 1}},
			{at(1), 2, nil},
			{
				store.AsidePosition{At: message(4).At, StreamSequence: math.MaxUint64},
				1,
				[]uint64{4},
			},
			{store.AsidePosition{}, 0, nil},
		} {
			found := listAside(t, s, "", c.after, c.limit)
			var got []uint64
			for _, u := range found {
				got = append(got, u.StreamSequence)
				if u != message(u.StreamSequence) {
					t.Errorf("%+v, want %+v", u, message(u.StreamSequence))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("after %+v, at most %d: %d, want %d", c.after, c.limit, got, c.want)
			}
		}
		pruneRecords(t, s, epoch.Add(time.Hour), 1)
		if left := listAside(t, s, "", store.AsidePosition{}, 10); len(left) != 0 {
			t.Errorf("after pruning: %v", left)
		}
	},
	"recovered with the record that it becomes": func(t *testing.T, s store.Store) {
		want := store.AsideMessage{
			StreamSequence: 2,
			Subject:        "executions.start.q.wf.node",
			Reason:         store.RefusedReasonPrefix + "why",
			At:             epoch,
		}
		applyBatch(t, s, store.Batch{
			PutAside: []store.AsideMessage{want, {StreamSequence: 3, At: epoch}},
		})
		if got, err := s.GetAside(t.Context(),
			store.MessageKey{StreamSequence: 2}); err != nil || got != want ||
			!got.RefusedByDatabase() {
			t.Errorf("%+v, %v", got, err)
		}
		for range 2 { // the second time, nothing changes
			applyBatch(t, s, store.Batch{
				NewRecords:     []store.Record{nthRecord(1)},
				RecoveredAside: []store.MessageKey{{StreamSequence: 2}, {StreamSequence: 99}},
			})
			wantRecord(t, getRecord(t, s, nthID(1)), nthRecord(1))
			if _, err := s.GetAside(t.Context(),
				store.MessageKey{StreamSequence: 2}); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%v", err)
			}
			if got, err := s.GetAside(t.Context(),
				store.MessageKey{StreamSequence: 3}); err != nil || got.RefusedByDatabase() {
				t.Errorf("%+v, %v", got, err)
			}
		}
		applyBatch(t, s, store.Batch{RecoveredAside: []store.MessageKey{{StreamSequence: 3}}})
		if left := listAside(t, s, "", store.AsidePosition{}, 10); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	},
	"the subject may be as long as NATS takes it": func(t *testing.T, s store.Store) {
		// Use random bytes, because PostgreSQL compresses repetitive values before it checks their
		// length.
		random := make([]byte, 1_500)
		_, _ = rand.Read(random)
		subject := "executions.progress.q.wf." + hex.EncodeToString(random)
		message := store.AsideMessage{StreamSequence: 7, Subject: subject, At: epoch}
		applyBatch(t, s, store.Batch{PutAside: []store.AsideMessage{message}})
		applyBatch(t, s, store.Batch{PutAside: []store.AsideMessage{message}})
		key := store.MessageKey{StreamSequence: 7, Progress: true}
		if got, err := s.GetAside(t.Context(), key); err != nil ||
			got.Subject != store.StoredSubject(subject) ||
			!strings.HasPrefix(subject, got.Subject) {
			t.Errorf("%+v, %v", got, err)
		}
		if found := listAside(t, s, "wf", store.AsidePosition{}, 10); len(found) != 1 {
			t.Errorf("%+v", found)
		}
	},
	"of workflows whose IDs differ only in case": func(t *testing.T, s store.Store) {
		var all []store.AsideMessage
		for _, subject := range []string{
			"executions.start.q.orders.node", "executions.start.q.Orders.node",
			"executions.ordered.1.q.orders.node", "executions.queue.q.start.orders.node",
		} {
			all = append(all, store.AsideMessage{
				StreamSequence: uint64(len(all) + 1), Subject: subject, At: epoch,
			})
		}
		applyBatch(t, s, store.Batch{PutAside: all})
		for workflowID, want := range map[string]int{"orders": 3, "Orders": 1, "ORDERS": 0} {
			if got := listAside(t, s, workflowID, store.AsidePosition{},
				10); len(got) != want {
				t.Errorf("of workflow %s: %+v", workflowID, got)
			}
		}
	},
	"the own streams of queues may have one sequence, too": func(t *testing.T, s store.Store) {
		subjects := map[string]store.MessageKey{
			"executions.start.q_1.wf.node":           {StreamSequence: 7},
			"executions.progress.q_1.wf.id":          {StreamSequence: 7, Progress: true},
			"executions.queue.q_1.start.wf.node":     {StreamSequence: 7, Queue: "q_1"},
			"executions.queue.qx1.ordered.3.wf.node": {StreamSequence: 7, Queue: "qx1"},
			"executions.reports.q_1.wf.id": {
				StreamSequence: 7,
				Progress:       true,
				Queue:          "q_1",
			},
			"executions.queue.q_12.rejected.other.3":   {StreamSequence: 7, Queue: "q_12"},
			"executions.queue.wf.start.start.ordered":  {StreamSequence: 7, Queue: "wf"},
			"executions.queue.2.ordered.1.start.start": {StreamSequence: 7, Queue: "2"},
		}
		var all []store.AsideMessage
		for subject := range subjects {
			all = append(all, store.AsideMessage{StreamSequence: 7, Subject: subject, At: epoch})
		}
		applyBatch(t, s, store.Batch{PutAside: all})
		for subject, key := range subjects {
			if got, err := s.GetAside(t.Context(), key); err != nil || got.Subject != subject {
				t.Errorf("%+v: %+v, %v", key, got, err)
			}
		}
		for workflowID, want := range map[string]int{
			"wf":    5,
			"other": 1,
			"start": 2,
			"3":     0,
			"1":     0,
		} {
			if got := listAside(t, s, workflowID, store.AsidePosition{},
				10); len(got) != want {
				t.Errorf("of workflow %s: %+v", workflowID, got)
			}
		}
		one := subjects["executions.queue.q_1.start.wf.node"]
		_, of, err := s.Dismiss(t.Context(), nil, []store.MessageKey{
			one, subjects["executions.reports.q_1.wf.id"],
		}, epoch, dismissalEntry)
		if err != nil || len(of) != 2 || !slices.Contains(of, one) {
			t.Errorf("dismissed %+v, %v", of, err)
		}
		applyBatch(t, s, store.Batch{
			RecoveredAside: []store.MessageKey{subjects["executions.queue.qx1.ordered.3.wf.node"]},
		})
		if left := listAside(t, s, "", store.AsidePosition{}, 10); len(left) != len(subjects)-
			3 {
			t.Errorf("left: %+v", left)
		}
	},
	"one of each stream may have one sequence": func(t *testing.T, s store.Store) {
		applyBatch(t, s, store.Batch{PutAside: []store.AsideMessage{
			{StreamSequence: 1, Subject: "executions.start.q.wf.node", At: epoch}, {
				StreamSequence: 1,
				Subject:        "executions.progress.q.wf.id",
				At:             epoch,
			},
		}})
		if found := listAside(t, s, "", store.AsidePosition{}, 10); len(found) != 2 {
			t.Errorf("%+v", found)
		}
		report := store.MessageKey{StreamSequence: 1, Progress: true}
		if got, err := s.GetAside(t.Context(), report); err != nil ||
			got.Subject != "executions.progress.q.wf.id" {
			t.Errorf("%+v, %v", got, err)
		}
		applyBatch(t, s, store.Batch{RecoveredAside: []store.MessageKey{report}})
		if left := listAside(t, s, "", store.AsidePosition{}, 10); len(left) != 1 ||
			left[0].Subject != "executions.start.q.wf.node" {
			t.Errorf("left: %+v", left)
		}
	},
	"of one workflow": func(t *testing.T, s store.Store) {
		for n, subject := range []string{
			"executions.start.default.a_b.node", "executions.start.default.axb.node",
			"executions.start.a_b.other.a_b", "executions.progress.q.a_b.x",
			"executions.start.default.%.node", "nonsense",
			"executions.ordered.default.3.ordered.node", "executions.ordered.default.7.3.node",
		} {
			applyBatch(t, s, store.Batch{
				PutAside: []store.AsideMessage{
					{StreamSequence: uint64(n) + 1, Subject: subject, At: epoch},
				},
			})
		}
		for workflow, want := range map[string]int{
			"a_b":     2,
			"axb":     1,
			"%":       1,
			"other":   1,
			"node":    0,
			`\`:       0,
			"ordered": 1,
			"default": 0,
			"3":       1, // not the message in lane 3, because a lane is not a workflow
			"7":       0,
		} {
			if found := listAside(t, s, workflow, store.AsidePosition{},
				10); len(found) != want {
				t.Errorf("%s: %+v, want %d", workflow, found, want)
			}
		}
	},
}

func listAside(
	t *testing.T, s store.Store, workflowID string, after store.AsidePosition, limit int,
) []store.AsideMessage {
	t.Helper()
	found, err := s.ListAside(t.Context(), store.AsideFilter{WorkflowID: workflowID},
		after, limit)
	if err != nil {
		t.Fatalf("ListAside: %v", err)
	}
	return found
}
