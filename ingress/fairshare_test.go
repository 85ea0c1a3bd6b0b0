package ingress

import "testing"

func TestShares(t *testing.T) {
	t.Parallel()
	s := newFairShareLimiter(12, 1200)
	taken := func(account string, bytes int64) (n int) {
		for s.reserveSlot(account, bytes) {
			n++
		}
		return n
	}
	if n := taken("a", 1); n != 6 {
		t.Errorf("one alone gets %d of 12 places", n)
	}
	if n := taken("b", 1); n != 3 {
		t.Errorf("the next one gets %d of 6", n)
	}
	if !s.reserveMoreBytes("b", 500) || s.reserveMoreBytes("a", 700) {
		t.Error("an account may have as many bytes as are free, and not more")
	}
	if !s.reserveSlot("c", 600) || s.reserveSlot("d", 600) {
		t.Error("an account's only request may have what is free, and not more")
	}
	if s.inFlight.Load() != 10 || s.bytes.Load() != 6+3+500+600 {
		t.Errorf("%d in flight with %d bytes", s.inFlight.Load(), s.bytes.Load())
	}
	for range 6 {
		s.release("a", 1)
	}
	s.release("b", 501)
	s.release("b", 1)
	s.release("b", 1)
	s.release("c", 600)
	if s.inFlight.Load() != 0 || s.bytes.Load() != 0 || !s.reserveSlot("d", 1200) {
		t.Error("it is not all given back")
	}
	s.release("d", 1200)
	s.accounts.ForEach(func(held *map[string]accountUsage) {
		if n := len(*held); n != 0 {
			t.Errorf("%d accounts that hold nothing are remembered", n)
		}
	})
}
