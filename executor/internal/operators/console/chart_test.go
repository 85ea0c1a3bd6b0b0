package console

import (
	"testing"
	"time"
)

// The scale of a chart ends at a round number that no bar exceeds and whose half is a whole number.
func TestScale(t *testing.T) {
	t.Parallel()
	for highest, want := range map[int64]int64{
		0: 1, 1: 1, 2: 2, 3: 4, 5: 6, 7: 8, 9: 10, 10: 10,
		11: 20, 21: 40, 81: 100, 101: 200, 99_999: 100_000, 1 << 62: 6e18,
	} {
		if got := (chart{Max: highest}).ScaleMax(); got != want {
			t.Errorf("%d: the scale ends at %d, want %d", highest, got, want)
		}
	}
	drawn := newChart(time.Time{}, time.Hour, 3, []chartPart{{Name: "accepted"}, {Name: "failed"}},
		map[string][]int64{"accepted": {0, 3, 1}, "failed": {0, 0, 2000}})
	for i, want := range []string{"none", "3 accepted", "1 accepted, 2,000 failed"} {
		if got := drawn.Bars[i].Text(); got != want {
			t.Errorf("bar %d says %q, want %q", i, got, want)
		}
	}
	if h := drawn.Bars[2].Parts[1].Height; h != 2000.0/4000*chartHeight ||
		drawn.BarSeconds() != 3600 {
		t.Errorf("the bar is %v high on a scale to %d", h, drawn.ScaleMax())
	}
}
