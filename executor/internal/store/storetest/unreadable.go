package storetest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var unreadableTests = map[string]func(*testing.T, store.Store){
	"kept once, listed the newest first, by pages": func(t *testing.T, s store.Store) {
		message := func(n uint64) store.Unreadable {
			return store.Unreadable{StreamSequence: n, Subject: "subject", Reason: "reason", At: epoch}
		}
		apply(t, s, store.Batch{Unreadable: []store.Unreadable{message(3), message(1), message(7)}})
		again := message(3)
		again.Reason = "another"
		apply(t, s, store.Batch{Unreadable: []store.Unreadable{again, message(4), again}})
		for _, c := range []struct {
			below uint64
			limit int
			want  []uint64
		}{
			{0, 10, []uint64{7, 4, 3, 1}},
			{0, 2, []uint64{7, 4}},
			{4, 2, []uint64{3, 1}},
			{1, 2, nil},
			{math.MaxUint64, 1, []uint64{7}},
			{0, 0, nil},
		} {
			found, err := s.ListUnreadable(t.Context(), c.below, c.limit)
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for _, u := range found {
				got = append(got, u.StreamSequence)
				if u != message(u.StreamSequence) {
					t.Errorf("%+v, want %+v", u, message(u.StreamSequence))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("below %d, at most %d: %d, want %d", c.below, c.limit, got, c.want)
			}
		}
		prune(t, s, epoch.Add(time.Microsecond), 1)
		if left, err := s.ListUnreadable(t.Context(), 0, 10); err != nil || len(left) != 0 {
			t.Errorf("after pruning: %v, %v", left, err)
		}
	},
}
