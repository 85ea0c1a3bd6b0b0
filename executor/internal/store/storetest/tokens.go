package storetest

import (
	"maps"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

var tokenTests = map[string]func(*testing.T, store.Store){
	"the newest record counts, in any order": func(t *testing.T, s store.Store) {
		used := func(n int, token string, status execution.Status) store.Record {
			r := nthRecord(n)
			r.TokenID, r.Status = token, status
			return r
		}
		applyNewRecords(t, s, used(5, "a", execution.Queued), used(3, "a", execution.Queued),
			used(2, "b", execution.Queued))
		wantTokensUsed(t, s, map[string]int{"a": 5, "b": 2})
		applyNewRecords(t, s, used(4, "a", execution.Queued), used(7, "b", execution.Rejected),
			used(9, "", execution.Queued))
		wantTokensUsed(t, s, map[string]int{"a": 5, "b": 7})
		// The redelivery of a message is not another use of its token.
		again := used(5, "a", execution.Queued)
		again.AcceptedAt = epoch.Add(time.Hour)
		applyNewRecords(t, s, again)
		wantTokensUsed(t, s, map[string]int{"a": 5, "b": 7})
		// After the records of a token have been deleted, the token still counts as used.
		pruneRecords(t, s, epoch.Add(24*time.Hour), 100)
		wantTokensUsed(t, s, map[string]int{"a": 5, "b": 7})
	},
	"uses without records": func(t *testing.T, s store.Store) {
		add := func(uses ...store.TokenUse) {
			t.Helper()
			if err := s.AddTokenUses(t.Context(), uses); err != nil {
				t.Fatal(err)
			}
		}
		add()
		add(store.TokenUse{TokenID: "a", At: nthRecord(5).AcceptedAt}, store.TokenUse{
			TokenID: "b",
			At:      nthRecord(2).AcceptedAt,
		}, store.TokenUse{TokenID: "a", At: nthRecord(3).AcceptedAt})
		wantTokensUsed(t, s, map[string]int{"a": 5, "b": 2})
		add(store.TokenUse{TokenID: "a", At: nthRecord(4).AcceptedAt}, store.TokenUse{
			TokenID: "b",
			At:      nthRecord(6).AcceptedAt,
		})
		wantTokensUsed(t, s, map[string]int{"a": 5, "b": 6})
	},
	"no tokens": func(t *testing.T, s store.Store) {
		used, err := s.TokensLastUsed(t.Context(), nil)
		if err != nil || len(used) != 0 {
			t.Errorf("%v, %v", used, err)
		}
	},
}

func wantTokensUsed(t *testing.T, s store.Store, seconds map[string]int) {
	t.Helper()
	got, err := s.TokensLastUsed(t.Context(), []string{"a", "never", "b", "", "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]time.Time)
	for token, n := range seconds {
		want[token] = nthRecord(n).AcceptedAt
	}
	if !maps.Equal(got, want) {
		t.Errorf("last used %v, want %v", got, want)
	}
}
