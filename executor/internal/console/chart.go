package console

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// countTimeout bounds the database's counting for a page. After it, the page is shown without the chart.
const countTimeout = time.Second

// chart is a bar chart over time, the oldest bar first. The template draws it: a bar is one unit wide, and the tallest is
// Height units high.
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
func (c *Console) chartOf(ctx context.Context, filter operate.ExecutionFilter, steps int, step time.Duration) (chart, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	counted, err := c.Operate.Activity(ctx, signin.Caller(ctx), filter, steps, step)
	if err != nil && ctx.Err() != nil {
		return chart{Step: step, Missing: true}, nil
	}
	drawn := chart{Step: step, Bars: make([]bar, len(counted))}
	for i, n := range counted {
		drawn.Bars[i] = bar{X: i, At: n.At, Total: n.Total, Failed: n.Failed, Rejected: n.Rejected}
	}
	drawn.stack()
	return drawn, err
}

func (c *chart) stack() {
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Started = max(0, b.Total-b.Failed-b.Rejected) // these were counted one after the other
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
