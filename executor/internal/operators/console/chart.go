package console

import (
	"context"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// countQueryTimeout is how long a page waits for a query that may be slow, such as counting
// executions. If the query takes longer, the page is shown without its result.
const countQueryTimeout = time.Second

// chartHeight is the height of the chart's scale, in units of the SVG's viewBox.
const chartHeight = 40

// chart is a stacked bar chart over time. The oldest bar comes first. Each bar is one unit wide.
// The scale goes from 0 to ScaleMax and is chartHeight units high.
type chart struct {
	Parts   []chartPart // categories that are counted; the first is the lowest part of a bar
	Bars    []bar
	Step    time.Duration // time that a bar covers
	Max     int64         // total of the tallest bar
	Missing bool          // the counts could not be read because the database was too slow
}

// chartPart is one of the categories that a chart counts, such as failed executions.
type chartPart struct {
	Name  string
	Class string // CSS class that sets its color
	Total int64
}

type bar struct {
	X     int
	At    time.Time // when the bar's time span begins
	Total int64
	Parts []barPart // parts with a count above 0
}

// Text describes a bar's values in words, such as "12 accepted, 3 failed".
func (b bar) Text() string {
	if b.Total == 0 {
		return "none"
	}
	texts := make([]string, len(b.Parts))
	for i, p := range b.Parts {
		texts[i] = formatCount(p.N) + " " + p.Name
	}
	return strings.Join(texts, ", ")
}

type barPart struct {
	chartPart
	N         int64
	Y, Height float64
}

// Width returns the width of the chart, in units of the SVG's viewBox.
func (c chart) Width() int { return len(c.Bars) }

// BarSeconds returns the number of seconds that a bar covers.
func (c chart) BarSeconds() int64 { return int64(c.Step / time.Second) }

// ScaleMax returns the upper end of the scale: a round number that no bar exceeds.
func (c chart) ScaleMax() int64 {
	if c.Max <= 1 {
		return 1
	}
	power := int64(1)
	for power <= (c.Max-1)/10 {
		power *= 10
	}
	for _, digit := range []int64{2, 4, 6, 8} {
		if digit*power >= c.Max {
			return digit * power
		}
	}
	return 10 * power
}

// Half returns the value in the middle of the scale, or 0 if ScaleMax is 1.
func (c chart) Half() int64 { return c.ScaleMax() / 2 }

// Middle returns the vertical position of the line at Half, in units of the SVG's viewBox.
func (chart) Middle() int { return chartHeight / 2 }

// Empty reports whether all counts are 0.
func (c chart) Empty() bool { return c.Max == 0 }

// newChart returns a chart with n bars. first is the time at which the first bar begins, and step
// is the time that each bar covers. counts holds n counts for each part, keyed by the part's name.
// newChart sets the Total of each element of parts.
func newChart(
	first time.Time, step time.Duration, n int, parts []chartPart, counts map[string][]int64,
) chart {
	drawn := chart{Parts: parts, Bars: make([]bar, n), Step: step}
	for i := range parts {
		parts[i].Total = sum(counts[parts[i].Name])
	}
	for at := range drawn.Bars {
		bar := bar{X: at, At: first.Add(time.Duration(at) * step)}
		for _, p := range parts {
			if series := counts[p.Name]; series != nil && series[at] > 0 {
				bar.Parts = append(bar.Parts, barPart{chartPart: p, N: series[at]})
				bar.Total += series[at]
			}
		}
		drawn.Bars[at], drawn.Max = bar, max(drawn.Max, bar.Total)
	}
	scale := float64(drawn.ScaleMax())
	for at := range drawn.Bars {
		top := float64(chartHeight)
		for i := range drawn.Bars[at].Parts {
			p := &drawn.Bars[at].Parts[i]
			p.Height = float64(p.N) / scale * chartHeight
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

// activityChart is a chart of executions by status, with totals.
type activityChart struct {
	chart
	Total, Failed, Rejected int64
}

// activityChart returns a chart of the executions that match filter. steps is the number of bars,
// and step is the time that each bar covers. The last bar covers the current time. If the database
// is too slow, the chart has no counts, and its Missing is true.
func (c *Console) activityChart(
	ctx context.Context, filter operate.ExecutionFilter, steps int, step time.Duration,
) (activityChart, error) {
	ctx, cancel := context.WithTimeout(ctx, countQueryTimeout)
	defer cancel()
	counted, err := c.Operate.CountExecutions(ctx, signin.Caller(ctx), filter, steps, step)
	if err != nil && ctx.Err() != nil {
		return activityChart{chart: chart{Missing: true}}, nil
	}
	if err != nil {
		return activityChart{}, err
	}
	started, failed, rejected := make([]int64, steps), make([]int64, steps), make([]int64, steps)
	for i, n := range counted {
		// The counts are from different moments, so the difference may be negative.
		started[i] = max(0, n.Total-n.Failed-n.Rejected)
		failed[i], rejected[i] = n.Failed, n.Rejected
	}
	parts := []chartPart{
		{Name: "accepted", Class: "started"},
		{Name: "failed", Class: "failed"},
		{Name: "rejected", Class: "rejected"},
	}
	drawn := activityChart{
		chart: newChart(counted[0].IntervalStart, step, steps, parts, map[string][]int64{
			"accepted": started, "failed": failed, "rejected": rejected,
		}),
	}
	drawn.Failed, drawn.Rejected = parts[1].Total, parts[2].Total
	drawn.Total = parts[0].Total + drawn.Failed + drawn.Rejected
	return drawn, nil
}
