package soak

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for n := range 100 {
		hundred = append(hundred, time.Duration(n+1))
	}
	for _, c := range []struct {
		sorted []time.Duration
		share  float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.01, 7},
		{[]time.Duration{7}, 1, 7},
		{[]time.Duration{1, 2}, 0.5, 1},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
	} {
		if got := quantile(c.sorted, c.share); got != c.want {
			t.Errorf("the quantile %v of %v is %d, not %d", c.share, c.sorted, got, c.want)
		}
	}
}

func TestLongestRefusal(t *testing.T) {
	t.Parallel()
	// Each character stands for a request: + for an accepted one, - for a refused one. A request
	// begins one second after the previous one, and takes a quarter of a second.
	for answers, want := range map[string]time.Duration{
		"":      0,
		"++":    0,
		"-":     time.Second / 4,
		"+-":    time.Second / 4,
		"+-+":   time.Second,
		"+--++": 2 * time.Second,
		"-+-+":  3 * time.Second,
		"-+-":   2*time.Second + time.Second/4,
	} {
		var all []probe
		for n, mark := range answers {
			began := time.Unix(int64(n), 0)
			all = append(all, probe{
				began: began, ended: began.Add(time.Second / 4), accepted: mark == '+',
			})
		}
		if got := refusalSpan(all); got != want {
			t.Errorf("%q: refused for %s, not %s", answers, got, want)
		}
	}
}
