package storetest

import (
	"slices"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/store"
)

func handledRange(stream string, first, last uint64) store.HandledRange {
	return store.HandledRange{Stream: stream, StreamCreated: "then", First: first, Last: last}
}

func wantHandled(t *testing.T, s store.Store, stream string, want ...store.HandledRange) {
	t.Helper()
	got, err := s.HandledRanges(t.Context(), stream, "then")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("decided: %v, want %v", got, want)
	}
}

var handledRangeTests = map[string]func(*testing.T, store.Store){
	"ranges of batches are merged, by stream": func(t *testing.T, s store.Store) {
		wantHandled(t, s, "A")
		for _, r := range [][]store.HandledRange{
			{handledRange("A", 5, 7), handledRange("B", 1, 1)}, {handledRange("A", 1, 2)}, {
				handledRange("A", 3, 4), handledRange("A", 6, 6),
			}, {handledRange("A", 10, 12)},
		} {
			applyBatch(t, s, store.Batch{Handled: r})
		}
		wantHandled(t, s, "A", handledRange("A", 1, 7), handledRange("A", 10, 12))
		wantHandled(t, s, "B", handledRange("B", 1, 1))
	},
	"many ranges stay what they are": func(t *testing.T, s store.Store) {
		for n := range uint64(200) {
			once := handledRange("A", 2*n+1, 2*n+1)
			applyBatch(t, s, store.Batch{Handled: []store.HandledRange{once, once}})
			if n%50 == 0 { // when 50 more rows can be merged
				got, err := s.HandledRanges(t.Context(), "A", "then")
				if err != nil || len(got) != int(n)+1 {
					t.Fatalf("%d ranges after %d, %v", len(got), n+1, err)
				}
			}
		}
		for range 2 {
			got, err := s.HandledRanges(t.Context(), "A", "then")
			if err != nil || len(got) != 200 || got[0] != handledRange("A", 1, 1) ||
				got[199] != handledRange("A", 399, 399) {
				t.Fatalf("%d ranges, %v", len(got), err)
			}
		}
		applyBatch(t, s, store.Batch{Handled: []store.HandledRange{handledRange("A", 1, 1000)}})
		wantHandled(t, s, "A", handledRange("A", 1, 1000))
		wantHandled(t, s, "A", handledRange("A", 1, 1000))
	},
	"another stream of the same name is another one": func(t *testing.T, s store.Store) {
		applyBatch(
			t,
			s,
			store.Batch{
				Handled: []store.HandledRange{handledRange("A", 1, 9), handledRange("B", 1, 9)},
			},
		)
		if got, err := s.HandledRanges(t.Context(), "A", "later"); err != nil || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
		wantHandled(t, s, "A")
		wantHandled(t, s, "B", handledRange("B", 1, 9))
	},
	"what was taken back is forgotten": func(t *testing.T, s store.Store) {
		applyBatch(t, s, store.Batch{
			Handled: []store.HandledRange{
				handledRange(
					"A",
					1,
					9,
				), handledRange("A", 20, 30), handledRange("A", 40, 41), handledRange("B", 1, 50),
			},
		})
		if err := s.ForgetHandled(t.Context(), "A", "then", 25); err != nil {
			t.Fatal(err)
		}
		wantHandled(t, s, "A", handledRange("A", 1, 9), handledRange("A", 20, 24))
		wantHandled(t, s, "B", handledRange("B", 1, 50))
	},
}
