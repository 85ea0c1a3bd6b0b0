package sizing

import (
	"math"
	"testing"
	"time"
)

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*max(1, math.Abs(want)) }

// If an installation is less than a week old, the mean per day covers only the time since the
// installation began. The growth is computed from whole days only.
func TestWeek(t *testing.T) {
	t.Parallel()
	steady := [7]float64{100, 100, 100, 100, 100, 100, 100}
	for name, c := range map[string]struct {
		periods [7]float64
		covered time.Duration
		want    WeekStats
	}{
		"a whole week": {steady, 30 * day, WeekStats{7, 100, 0}},
		"growth by 10 a day": {
			[7]float64{70, 60, 50, 40, 30, 20, 10}, 7 * day, WeekStats{7, 40, 10},
		},
		"decline by 10 a day": {
			[7]float64{10, 20, 30, 40, 50, 60, 70}, 7 * day, WeekStats{7, 40, -10},
		},
		"a weekend that has just been": {
			[7]float64{0, 0, 70, 70, 70, 70, 70}, 7 * day, WeekStats{7, 50, 0},
		},
		"a weekend in the middle": {
			[7]float64{70, 70, 0, 0, 70, 70, 70}, 7 * day, WeekStats{7, 50, 0},
		},
		"two days, too few to see growth": {
			[7]float64{30, 10}, 2 * day, WeekStats{2, 20, 0},
		},
		"half a day more than three whole days": {
			[7]float64{30, 20, 10, 4}, 84 * time.Hour, WeekStats{3.5, 64 / 3.5, 10},
		},
		"an hour at least":              {[7]float64{5}, time.Second, WeekStats{1. / 24, 120, 0}},
		"a beginning after the present": {[7]float64{5}, -time.Hour, WeekStats{1. / 24, 120, 0}},
		"nothing":                       {[7]float64{}, 7 * day, WeekStats{7, 0, 0}},
		"nothing, and no time":          {[7]float64{}, 0, WeekStats{1. / 24, 0, 0}},
	} {
		got := NewWeekStats(c.periods, c.covered)
		if !near(got.CoveredDays, c.want.CoveredDays) || !near(got.PerDay, c.want.PerDay) ||
			!near(got.DailyGrowth, c.want.DailyGrowth) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if (WeekStats{CoveredDays: 2.9}).GrowthKnown() || !(WeekStats{CoveredDays: 3}).GrowthKnown() {
		t.Error("growth is known from three whole days on")
	}
}

// AmountAfter returns the amount that is still kept after a number of days. If the retention is
// limited, the amount grows until as much expires as arrives. After that, it changes only if the
// rate of arrivals changes.
func TestHolding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h     RetainedAmount
		after map[float64]float64
	}{
		"kept forever": {
			RetainedAmount{CurrentAmount: 50, PerDay: 10},
			map[float64]float64{0: 50, 1: 60, 100: 1050},
		},
		"kept forever, at a rate that grows": {
			RetainedAmount{CurrentAmount: 50, PerDay: 10, DailyGrowth: 2},
			map[float64]float64{1: 61, 10: 250},
		},
		"a window that is full: it stays": {
			RetainedAmount{CurrentAmount: 70, PerDay: 10, KeepDays: 7, AccumulatedDays: 7},
			map[float64]float64{0: 70, 1: 70, 3.5: 70, 7: 70, 8: 70, 300: 70},
		},
		"a window of 7 days that is 2 days old: full after 5 more": {
			RetainedAmount{CurrentAmount: 20, PerDay: 10, KeepDays: 7, AccumulatedDays: 2},
			map[float64]float64{0: 20, 1: 30, 5: 70, 6: 70, 7: 70, 50: 70},
		},
		"a window with more than the last week brought: it shrinks": {
			RetainedAmount{CurrentAmount: 140, PerDay: 10, KeepDays: 7, AccumulatedDays: 7},
			map[float64]float64{0: 140, 3.5: 105, 7: 70, 8: 70},
		},
		"a window at a rate that grows": {
			RetainedAmount{
				CurrentAmount: 10, PerDay: 10, DailyGrowth: 1, KeepDays: 1, AccumulatedDays: 1,
			},
			map[float64]float64{0: 10, 1: 10.5, 2: 11.5, 11: 20.5},
		},
		"a rate that declines to nothing": {
			RetainedAmount{CurrentAmount: 0, PerDay: 10, DailyGrowth: -5},
			map[float64]float64{1: 7.5, 2: 10, 3: 10, 300: 10},
		},
		"nothing arrives any more: the window runs empty": {
			RetainedAmount{CurrentAmount: 70, KeepDays: 7, AccumulatedDays: 7},
			map[float64]float64{0: 70, 3.5: 35, 7: 0, 8: 0},
		},
		"nothing at all": {
			RetainedAmount{DailyGrowth: -1},
			map[float64]float64{0: 0, 1: 0, 365: 0},
		},
		"a present without a span goes at once, at its end": {
			RetainedAmount{CurrentAmount: 70, PerDay: 10, KeepDays: 7},
			map[float64]float64{0: 70, 1: 80, 7: 70},
		},
		"older than the window: what the server has not deleted yet": {
			RetainedAmount{CurrentAmount: 80, PerDay: 10, KeepDays: 7, AccumulatedDays: 8},
			map[float64]float64{0: 80, 7: 70},
		},
	} {
		for days, want := range c.after {
			if got := c.h.AmountAfter(days); !near(got, want) {
				t.Errorf("%s: after %v days %v, want %v", name, days, got, want)
			}
		}
	}
}

func TestDaysUntil(t *testing.T) {
	t.Parallel()
	line := func(perDay float64) func(float64) float64 {
		return RetainedAmount{CurrentAmount: 50, PerDay: perDay}.AmountAfter
	}
	for name, c := range map[string]struct {
		limit float64
		after func(float64) float64
		want  float64
		ok    bool
	}{
		"reached":                   {50, line(10), 0, true},
		"passed":                    {10, line(10), 0, true},
		"within the first day":      {55, line(10), 0.5, true},
		"between two days":          {125, line(10), 7.5, true},
		"on the last day of a year": {50 + 365, line(1), 365, true},
		"after a year":              {50 + 366, line(1), 0, false},
		"never, without growth":     {51, line(0), 0, false},
		"never: the window is full": {
			71, RetainedAmount{
				CurrentAmount: 20, PerDay: 10, KeepDays: 7, AccumulatedDays: 2,
			}.AmountAfter,
			0, false,
		},
		"while the window fills": {
			60, RetainedAmount{
				CurrentAmount: 20, PerDay: 10, KeepDays: 7, AccumulatedDays: 2,
			}.AmountAfter,
			4, true,
		},
		"when the rate has grown": {
			20.5, RetainedAmount{
				CurrentAmount: 10, PerDay: 10, DailyGrowth: 1, KeepDays: 1,
				AccumulatedDays: 1,
			}.AmountAfter, 11, true,
		},
		"reached before it declines": {
			12, RetainedAmount{CurrentAmount: 10, PerDay: 10, DailyGrowth: -10}.AmountAfter, 0.4,
			true,
		},
	} {
		if got, ok := DaysUntilLimit(c.limit, c.after); ok != c.ok || !near(got, c.want) {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}
