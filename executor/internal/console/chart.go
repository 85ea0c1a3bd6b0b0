package console

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// countTimeout bounds the time for which the database counts for a page. After it the page is shown
// without the chart.
const countTimeout = time.Second

// chartHeight is the height of the tallest bar in the chart's own units.
const chartHeight = 40

// chart is a bar chart over time, oldest bar first. Each bar is divided into parts. A bar is one
// unit wide; the tallest is chartHeight high.
type chart struct {
	Parts   []part // from the bottom
	Bars    []bar
	Max     int64 // of a bar
	Missing bool  // the database was too slow
}

// part is one of the kinds of things that a chart counts.
type part struct {
	Name  string
	Class string // its colour
	Total int64
}

type bar struct {
	X     int
	At    time.Time
	Total int64
	Parts []barPart // those that are not empty
}

type barPart struct {
	part
	N         int64
	Y, Height float64
}

// Width returns the width of the chart in its own units.
func (c chart) Width() int { return len(c.Bars) }

// Empty reports whether there is nothing to show.
func (c chart) Empty() bool { return c.Max == 0 }

// draw returns a chart of counts by the names of parts, for each of n steps of time.
func draw(first time.Time, step time.Duration, n int, parts []part, counts map[string][]int64) chart {
	drawn := chart{Parts: parts, Bars: make([]bar, n)}
	for i := range parts {
		parts[i].Total = sum(counts[parts[i].Name])
	}
	for at := range drawn.Bars {
		bar := bar{X: at, At: first.Add(time.Duration(at) * step)}
		for _, p := range parts {
			if of := counts[p.Name]; of != nil && of[at] > 0 {
				bar.Parts = append(bar.Parts, barPart{part: p, N: of[at]})
				bar.Total += of[at]
			}
		}
		drawn.Bars[at], drawn.Max = bar, max(drawn.Max, bar.Total)
	}
	for at := range drawn.Bars {
		top := float64(chartHeight)
		for i := range drawn.Bars[at].Parts {
			p := &drawn.Bars[at].Parts[i]
			p.Height = float64(p.N) / float64(drawn.Max) * chartHeight
			top -= p.Height
			p.Y = max(0, top)
		}
	}
	return drawn
}

func sum(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// activity is a chart of executions by their state.
type activity struct {
	chart
	Total, Failed, Rejected int64
}

// activity counts the executions that match a filter in each of the last steps, up to now.
func (c *Console) activity(ctx context.Context, filter operate.ExecutionFilter, steps int, step time.Duration) (activity, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	counted, err := c.Operate.Activity(ctx, signin.Caller(ctx), filter, steps, step)
	if err != nil && ctx.Err() != nil {
		return activity{chart: chart{Missing: true}}, nil
	}
	if err != nil {
		return activity{}, err
	}
	started, failed, rejected := make([]int64, steps), make([]int64, steps), make([]int64, steps)
	for i, n := range counted {
		started[i] = max(0, n.Total-n.Failed-n.Rejected) // these were counted one after the other
		failed[i], rejected[i] = n.Failed, n.Rejected
	}
	parts := []part{{Name: "started", Class: "started"}, {Name: "failed", Class: "failed"}, {Name: "rejected", Class: "rejected"}}
	drawn := activity{chart: draw(counted[0].At, step, steps, parts, map[string][]int64{"started": started, "failed": failed, "rejected": rejected})}
	drawn.Failed, drawn.Rejected = parts[1].Total, parts[2].Total
	drawn.Total = parts[0].Total + drawn.Failed + drawn.Rejected
	return drawn, nil
}
