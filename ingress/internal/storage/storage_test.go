package storage_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hookstart/hookstart/ingress/internal/storage"
)

const (
	limit = 100_000
	week  = 7 * 24 * time.Hour
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// space returns the StreamSpace of a stream with the given number of used bytes, in an installation
// with three accounts.
func space(used int64) *storage.StreamSpace {
	s := storage.New(func() int { return 3 })
	s.SetUsage(limit, used, week, noon)
	return s
}

// fill reserves space for messages of 100 bytes until one is refused, and returns how many bytes it
// reserved.
func fill(s *storage.StreamSpace, accountID string) (taken int64) {
	for taken < 2*limit && s.Reserve(accountID, 100) {
		taken += 100
	}
	return taken
}

// Once the stream is nine tenths full, an account that holds an equal share is refused. An account
// that holds less can store messages until it has its share, no matter how much the others hold.
func TestTheHeaviestAreRefusedFirst(t *testing.T) {
	t.Parallel()
	s := space(0)
	if got := fill(s, "heavy"); got != limit*9/10 {
		t.Errorf("the first account took %d bytes", got)
	}
	if !s.Reserve("light", 100) {
		t.Error("an account that holds nothing finds no room")
	}
	if s.Reserve("heavy", 1) {
		t.Error("the heaviest account finds room")
	}
	if got := fill(s, "light"); got < limit/20-200 || got > limit/10-100 {
		t.Errorf("the second account took %d bytes", got)
	}
	if !s.Reserve("lightest", 100) {
		t.Error("a third account finds no room")
	}
}

// In a nearly full stream, an account that has used more than an equal share is refused, and an
// account that has used less can store messages until it reaches its share.
func TestAnEqualShare(t *testing.T) {
	t.Parallel()
	s := space(0)
	for range limit / 100 * 6 / 10 {
		s.Reserve("heavy", 100)
	}
	for range limit / 100 * 3 / 10 {
		s.Reserve("middle", 100)
	}
	s.Reserve("light", 100)
	if s.Reserve("heavy", 100) {
		t.Error("0.6 of the stream is less than a third")
	}
	if got := fill(s, "middle"); got < limit/33-200 || got > limit/30+100 {
		t.Errorf("an account with 0.3 of the stream took %d bytes more, its share is a third", got)
	}
}

func TestALoneAccountFillsTheStream(t *testing.T) {
	t.Parallel()
	s := storage.New(func() int { return 1 })
	s.SetUsage(limit, 0, week, noon)
	if got := fill(s, "alone"); got != 2*limit {
		t.Errorf("it took %d bytes", got)
	}
}

// If the stream has no size limit, Reserve always succeeds, and nothing is counted.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	s := space(0)
	fill(s, "heavy")
	s.SetUsage(-1, limit, week, noon)
	if got := fill(s, "heavy"); got != 2*limit || s.IsLimited() || len(s.DrainUnannounced()) != 0 {
		t.Errorf("it took %d bytes, %v", got, s.DrainUnannounced())
	}
	s.SetUsage(limit, 95_000, week, noon)
	if !s.Reserve("heavy", 100) {
		t.Error("what was counted under another limit counts")
	}
}

// Once Release has been called for a message that was not stored, its space is free again and is
// not announced to other ingresses.
func TestReturn(t *testing.T) {
	t.Parallel()
	s := space(0)
	for range 10_000 {
		if !s.Reserve("a", 100) {
			t.Fatal("refused")
		}
		s.Release("a", 100)
	}
	if untold := s.DrainUnannounced(); len(untold) != 0 {
		t.Errorf("%v", untold)
	}
}

// Two ingresses tell each other how much space they have reserved for each account, so that both
// refuse the same account.
func TestOfTwoIngresses(t *testing.T) {
	t.Parallel()
	a, b := space(0), space(0)
	gossip := func() {
		for id, bytes := range a.DrainUnannounced() {
			b.AddRemoteUsage(id, bytes)
		}
		for id, bytes := range b.DrainUnannounced() {
			a.AddRemoteUsage(id, bytes)
		}
	}
	for a.Reserve("heavy", 100) && b.Reserve("heavy", 100) {
		gossip()
	}
	gossip()
	if a.Reserve("heavy", 1) || b.Reserve("heavy", 1) {
		t.Error("the heaviest account finds room")
	}
	if !a.Reserve("light", 1) || !b.Reserve("light", 1) {
		t.Error("a light account finds no room")
	}
}

// An ingress that has just started does not know which accounts fill the stream. Until an executor
// tells it how many bytes each account has stored, it grants every account a little space. After
// that, it refuses messages of the heaviest account.
func TestAfterAStart(t *testing.T) {
	t.Parallel()
	s := space(92_000)
	if got := fill(s, "heavy"); got == 0 || got > 8_000/4 {
		t.Errorf("an account took %d of 8000 free bytes", got)
	}
	if !s.Reserve("light", 100) {
		t.Error("an account that holds nothing finds no room")
	}
	s.SetAccountSums(map[string]int64{"heavy": 90_000, "light": 4_000})
	if s.Reserve("heavy", 1) {
		t.Error("the heaviest account finds room")
	}
	if got := fill(s, "light"); got == 0 {
		t.Error("a light account finds no room")
	}
}

// When an executor sends sums, they replace everything that the ingress counted before the previous
// sums. Later counts are added to the sums, because the sums may not include them yet.
func TestSumsReplaceCounts(t *testing.T) {
	t.Parallel()
	s := space(71_000)
	s.AddRemoteUsage("purged", 40_000)
	s.SetUsage(limit, 91_000, week, noon)
	s.SetAccountSums(map[string]int64{"other": 88_000})
	if s.Reserve("purged", 1) {
		t.Error("what was taken just before the sums may be missing in them")
	}
	s.SetAccountSums(map[string]int64{"other": 88_000})
	if !s.Reserve("purged", 1) || s.Reserve("other", 1) {
		t.Error("the sums are not in force")
	}
	// While the stream is less than seven tenths full, executors send no sums. So once the usage
	// falls below that, the old sums are discarded, and do not count when the usage rises again.
	s.SetUsage(limit, 69_000, week, noon)
	s.SetUsage(limit, 91_000, week, noon)
	if !s.Reserve("other", 1) {
		t.Error("old sums count")
	}
}

// The bytes that were counted for a message no longer count once the message has expired.
func TestCountsExpire(t *testing.T) {
	t.Parallel()
	s := space(0)
	fill(s, "old")
	at := noon
	for step := range 8 {
		at = at.Add(week / 8)
		s.SetUsage(limit, 91_000, week, at)
		if step < 7 && s.Reserve("old", 1) {
			t.Fatalf("forgotten after %d of 8 parts of the age", step+1)
		}
		s.Reserve("new"+strconv.Itoa(step), 1)
	}
	for _, id := range []string{"new", "newer"} { // these two now hold almost everything
		s.AddRemoteUsage(id, 45_000)
	}
	s.SetUsage(limit, 91_000, week, at)
	if !s.Reserve("old", 1) {
		t.Error("expired messages count")
	}
}

// BenchmarkTake measures Reserve for a shared stream with a size limit and for a shared stream
// without one. With a limit, the ingress calls Reserve for each message that it publishes to that
// stream.
func BenchmarkTake(b *testing.B) {
	for name, size := range map[string]int64{"no limit": 0, "limit": 1 << 60} {
		b.Run(name, func(b *testing.B) {
			s := storage.New(func() int { return 1000 })
			s.SetUsage(size, 0, week, noon)
			var ids [1000]string
			for i := range ids {
				ids[i] = fmt.Sprintf("account-%d", i)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for n := 0; pb.Next(); n++ {
					s.Reserve(ids[n%len(ids)], 1000)
				}
			})
		})
	}
}
