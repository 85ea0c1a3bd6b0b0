// Package sizing forecasts when an installation will reach its limits. It uses the current usage,
// the arrivals of the last week, and the periods for which messages and records are kept.
package sizing

import (
	"slices"
	"time"
)

const (
	// forecastHorizonDays is how many days DaysUntilLimit looks ahead.
	forecastHorizonDays = 365
	day                 = 24 * time.Hour
	// minRatePeriod is the shortest period from which a daily rate is computed. A shorter period,
	// such as the first seconds of a new installation, would not be representative of a day.
	minRatePeriod = time.Hour
	// minTrendDays is the minimum number of whole days from which growth is computed.
	minTrendDays = 3
)

// WeekStats summarizes what arrived in the last seven days, or since the installation began.
type WeekStats struct {
	CoveredDays float64 // number of days covered: at most 7, at least an hour
	PerDay      float64 // mean number per day
	// DailyGrowth is how much more arrives each day than the day before. It is 0 if fewer than
	// minTrendDays whole days are covered.
	DailyGrowth float64
}

// NewWeekStats returns the WeekStats for the amounts that arrived in the last seven periods of 24
// hours, most recent first. covered is the time since the installation began; a time of more than a
// week counts as a week. covered may be negative, because the clocks of machines can differ.
func NewWeekStats(periods [7]float64, covered time.Duration) WeekStats {
	covered = min(max(covered, minRatePeriod), 7*day)
	sum := 0.0
	for _, n := range periods {
		sum += n
	}
	w := WeekStats{CoveredDays: covered.Hours() / 24}
	w.PerDay = sum / w.CoveredDays
	whole := slices.Clone(periods[:int(w.CoveredDays)])
	slices.Reverse(whole)
	w.DailyGrowth = medianDailyGrowth(whole)
	return w
}

// GrowthKnown reports whether enough days are covered to compute the growth.
func (w WeekStats) GrowthKnown() bool { return int(w.CoveredDays) >= minTrendDays }

// medianDailyGrowth returns the growth from one day to the next: the median of the slopes between
// all pairs of days (the Theil–Sen estimator), so that two days without traffic, such as a weekend,
// hardly affect it.
func medianDailyGrowth(days []float64) float64 {
	if len(days) < minTrendDays {
		return 0
	}
	var slopes []float64
	for i, earlier := range days {
		for j := i + 1; j < len(days); j++ {
			slopes = append(slopes, (days[j]-earlier)/float64(j-i))
		}
	}
	slices.Sort(slopes)
	middle := len(slopes) / 2
	if len(slopes)%2 == 1 {
		return slopes[middle]
	}
	return (slopes[middle-1] + slopes[middle]) / 2
}

// RetainedAmount describes an amount of something that arrives and is kept for some time, such as
// messages.
type RetainedAmount struct {
	CurrentAmount float64 // the current amount
	PerDay        float64 // the amount that now arrives per day
	DailyGrowth   float64 // how much PerDay increases per day
	// KeepDays is the number of days for which everything is kept. 0 means forever.
	KeepDays float64
	// AccumulatedDays is how many days it took for the current amount to build up. 0 means that all
	// of it has just arrived.
	AccumulatedDays float64
}

// AmountAfter returns the amount that will be stored after the given number of days: what is left
// of the current amount, plus what arrives until then and has not expired. It assumes that the
// current amount arrived at a constant rate.
func (h RetainedAmount) AmountAfter(days float64) float64 {
	left, begin := h.CurrentAmount, 0.0
	if h.KeepDays > 0 {
		begin = max(0, days-h.KeepDays)
		switch {
		case days >= h.KeepDays:
			left = 0
		case h.AccumulatedDays > 0:
			left *= min(1, (h.KeepDays-days)/h.AccumulatedDays)
		}
	}
	if days == 0 {
		left = h.CurrentAmount // it may include expired items that the server has not deleted yet
	}
	return left + h.arrivalsWithin(days) - h.arrivalsWithin(begin)
}

// arrivalsWithin returns the amount that arrives within a number of days from now. If arrivals are
// declining, none arrive after the rate has reached zero.
func (h RetainedAmount) arrivalsWithin(days float64) float64 {
	if h.DailyGrowth < 0 {
		days = min(days, h.PerDay/-h.DailyGrowth)
	}
	return h.PerDay*days + h.DailyGrowth*days*days/2
}

// DaysUntilLimit returns the number of days until an amount reaches a limit, or 0 if it has already
// reached the limit. ok is false if it does not reach the limit within forecastHorizonDays.
// after(d) must return the amount after d days.
func DaysUntilLimit(limit float64, after func(days float64) float64) (days float64, ok bool) {
	before := after(0)
	if before >= limit {
		return 0, true
	}
	for d := 1.0; d <= forecastHorizonDays; d++ {
		amount := after(d)
		if amount >= limit {
			return d - 1 + (limit-before)/(amount-before), true
		}
		before = amount
	}
	return 0, false
}
