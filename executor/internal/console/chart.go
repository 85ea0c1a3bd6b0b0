package console

import (
	"context"
	"errors"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// countTimeout is how long the database may count for a page. Past it, the page comes
// without the chart.
const countTimeout = time.Second

// chart are bars over time, the oldest first. The template draws it: a bar is one wide,
// Height is the tallest.
type chart struct {
	Bars     []bar
	Step     time.Duration
	Total    int64
	Failed   int64
	Rejected int64
	Missing  bool // the database was too slow
}

type bar struct {
	X                       int
	At                      time.Time
	Started                 int64 // neither failed nor rejected
	Failed, Rejected, Total int64
	// From the top of the chart to each part's own top, and how high it is.
	StartedY, StartedHeight   float64
	FailedY, FailedHeight     float64
	RejectedY, RejectedHeight float64
}

// chartHeight is the height of the tallest bar, in the chart's own units.
const chartHeight = 40

// Max is the tallest bar's count.
func (c chart) Max() int64 {
	var most int64
	for _, b := range c.Bars {
		most = max(most, b.Total)
	}
	return most
}

// Width is the chart's width in its own units.
func (c chart) Width() int { return len(c.Bars) }

// chartOf counts what a filter shows in the last steps, up to now.
func (c *Console) chartOf(ctx context.Context, filter store.Filter, steps int, step time.Duration, now time.Time) (chart, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	first := now.UTC().Truncate(step).Add(-time.Duration(steps-1) * step)
	filter.Since = first
	drawn := chart{Step: step, Bars: make([]bar, steps)}
	for i := range drawn.Bars {
		drawn.Bars[i] = bar{X: i, At: first.Add(time.Duration(i) * step)}
	}
	for _, part := range []struct {
		status execution.Status
		add    func(*bar, int64)
	}{
		{"", func(b *bar, n int64) { b.Total = n }},
		{execution.Failed, func(b *bar, n int64) { b.Failed = n }},
		{execution.Rejected, func(b *bar, n int64) { b.Rejected = n }},
	} {
		filter.Status = part.status
		counts, err := c.Store.CountByTime(ctx, filter, step)
		if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return chart{Step: step, Missing: true}, nil
		}
		if err != nil {
			return chart{}, err
		}
		for _, n := range counts {
			if i := int(n.At.Sub(first) / step); i >= 0 && i < steps {
				part.add(&drawn.Bars[i], n.Records)
			}
		}
	}
	drawn.stack()
	return drawn, nil
}

func (c *chart) stack() {
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Started = max(0, b.Total-b.Failed-b.Rejected) // counted one after the other: one may have moved on
		b.Total = b.Started + b.Failed + b.Rejected
		c.Total, c.Failed, c.Rejected = c.Total+b.Total, c.Failed+b.Failed, c.Rejected+b.Rejected
	}
	most := float64(max(1, c.Max()))
	for i := range c.Bars {
		b := &c.Bars[i]
		height := func(n int64) float64 { return float64(n) / most * chartHeight }
		b.StartedHeight, b.FailedHeight, b.RejectedHeight = height(b.Started), height(b.Failed), height(b.Rejected)
		b.StartedY = chartHeight - b.StartedHeight
		b.FailedY = b.StartedY - b.FailedHeight
		b.RejectedY = b.FailedY - b.RejectedHeight
	}
}
