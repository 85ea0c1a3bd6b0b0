package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// nthAuditEntry returns the n-th audit entry. Its time is n seconds after the epoch.
func nthAuditEntry(n int, account, workflow string) store.AuditEntry {
	return store.AuditEntry{
		ID:         nthID(n),
		At:         epoch.Add(time.Duration(n) * time.Second),
		ActorKind:  "key",
		ActorID:    fmt.Sprint("key_", n%2),
		ActorName:  fmt.Sprint("CI ", n%2),
		Action:     "workflow.update",
		AccountID:  account,
		WorkflowID: workflow,
		NodeID:     "node",
		Changes:    `[{"field":"name","to":"x"}]`,
	}
}

// dismissalEntry returns the audit entry for a dismissed dead letter: the record with the given ID
// or, if id is "", the given message.
func dismissalEntry(id string, message store.MessageKey) store.AuditEntry {
	e := store.AuditEntry{
		ID:        fmt.Sprint("of ", id),
		At:        epoch.Add(time.Hour),
		ActorKind: "admin-token",
		Action:    "dead-letter.dismiss",
		Changes:   `[]`,
	}
	if id == "" {
		e.ID = fmt.Sprintf("message %d %v", message.StreamSequence, message.Progress)
	}
	return e
}

func addAudit(t *testing.T, s store.Store, entries ...store.AuditEntry) {
	t.Helper()
	if err := s.AddAudit(t.Context(), entries); err != nil {
		t.Fatalf("AddAudit: %v", err)
	}
}

func listAuditIDs(t *testing.T, s store.Store, filter store.AuditFilter) (ids []string) {
	t.Helper()
	var after store.AuditPosition
	for {
		page, err := s.ListAudit(t.Context(), filter, after, 2)
		if err != nil {
			t.Fatalf("ListAudit: %v", err)
		}
		for _, e := range page {
			ids, after = append(ids, e.ID), store.AuditPosition{At: e.At, ID: e.ID}
		}
		if len(page) < 2 {
			return ids
		}
	}
}

var auditTests = map[string]func(*testing.T, store.Store){
	"an entry is read as it was written, once": func(t *testing.T, s store.Store) {
		want := nthAuditEntry(1, "a", "w")
		other := nthAuditEntry(1, "b", "other")
		other.At = want.At.Add(time.Hour)
		addAudit(t, s, want)
		addAudit(t, s, other, want)
		addAudit(t, s)
		got, err := s.ListAudit(t.Context(), store.AuditFilter{}, store.AuditPosition{}, 10)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%+v, %v", got, err)
		}
	},
	"an entry of a batch is there with its record, once": func(t *testing.T, s store.Store) {
		batch := store.Batch{
			NewRecords: []store.Record{nthRecord(1)},
			Audit:      []store.AuditEntry{nthAuditEntry(2, "a", "w"), nthAuditEntry(1, "a", "w")},
		}
		applyBatch(t, s, batch)
		other := nthAuditEntry(2, "b", "other")
		applyBatch(t, s, store.Batch{
			NewRecords: batch.NewRecords,
			Audit:      []store.AuditEntry{other, nthAuditEntry(1, "a", "w")},
		})
		got, err := s.ListAudit(t.Context(), store.AuditFilter{}, store.AuditPosition{}, 10)
		if err != nil || len(got) != 2 || got[0] != nthAuditEntry(2, "a", "w") ||
			got[1] != nthAuditEntry(1, "a", "w") {
			t.Errorf("%+v, %v", got, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Apply(ended, store.Batch{
			NewRecords: []store.Record{nthRecord(3)},
			Audit:      []store.AuditEntry{nthAuditEntry(3, "a", "w")},
		}); err == nil {
			t.Error("a batch whose time is up was recorded")
		}
		if got := listAuditIDs(t, s, store.AuditFilter{}); !slices.Equal(got, []string{
			nthID(2),
			nthID(1),
		}) {
			t.Errorf("%q", got)
		}
	},
	"the newest first, filtered, by pages": func(t *testing.T, s store.Store) {
		for n := range 7 {
			addAudit(t, s, nthAuditEntry(n, []string{"a", "b"}[n%2], []string{"v", "w", ""}[n%3]))
		}
		for _, c := range []struct {
			filter store.AuditFilter
			want   []int
		}{
			{store.AuditFilter{}, []int{6, 5, 4, 3, 2, 1, 0}},
			{store.AuditFilter{AccountID: "b"}, []int{5, 3, 1}},
			{store.AuditFilter{WorkflowID: "v"}, []int{6, 3, 0}},
			{store.AuditFilter{Actor: "key_1"}, []int{5, 3, 1}},
			{store.AuditFilter{Actor: "CI 0"}, []int{6, 4, 2, 0}},
			{store.AuditFilter{Actor: "key"}, []int{6, 5, 4, 3, 2, 1, 0}},
			{store.AuditFilter{Actor: "nobody"}, nil},
			{
				store.AuditFilter{
					Since: epoch.Add(2 * time.Second),
					Until: epoch.Add(4 * time.Second),
				}, []int{3, 2},
			},
			{store.AuditFilter{AccountID: "a", WorkflowID: "w"}, []int{4}},
		} {
			var want []string
			for _, n := range c.want {
				want = append(want, nthID(n))
			}
			if got := listAuditIDs(t, s, c.filter); !slices.Equal(got, want) {
				t.Errorf("%+v: %q, want %q", c.filter, got, want)
			}
		}
	},
	"old entries are deleted, the oldest first": func(t *testing.T, s store.Store) {
		for n := range 5 {
			addAudit(t, s, nthAuditEntry(n, "a", "w"))
		}
		for _, want := range []int{2, 1, 0} {
			if n, err := s.PruneAudit(t.Context(), epoch.Add(3*time.Second), 2); err != nil ||
				n != want {
				t.Errorf("%d, %v, want %d", n, err, want)
			}
		}
		if got := listAuditIDs(t, s, store.AuditFilter{}); !slices.Equal(got, []string{
			nthID(4),
			nthID(3),
		}) {
			t.Errorf("%q", got)
		}
	},
}
