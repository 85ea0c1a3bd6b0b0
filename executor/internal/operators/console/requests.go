package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// requestChartMinutes is the number of minutes in the charts of requests.
const requestChartMinutes = 60

// maxSeparateRefusalCauses is the number of most frequent causes that a chart always shows
// separately. The chart combines the remaining causes in one part. If only one cause remains, the
// chart shows that cause separately as well.
const maxSeparateRefusalCauses = 4

// requestCharts holds the requests of the last hour by minute: their outcomes, and the causes of
// refusals.
type requestCharts struct {
	Outcomes, Causes                chart
	Accepted, Deduplicated, Refused int64
}

// requestCharts counts the requests of the hour that ends at now. If the database is too slow, it
// returns charts that are marked as missing.
func (c *Console) requestCharts(ctx context.Context, now time.Time) (requestCharts, error) {
	ctx, cancel := context.WithTimeout(ctx, countQueryTimeout)
	defer cancel()
	first := now.UTC().Truncate(time.Minute).Add(-(requestChartMinutes - 1) * time.Minute)
	counts, err := c.Operate.RequestCounts(ctx, signin.Caller(ctx), first)
	if errors.Is(err, context.DeadlineExceeded) {
		return requestCharts{Outcomes: chart{Missing: true}, Causes: chart{Missing: true}}, nil
	}
	if err != nil {
		return requestCharts{}, err
	}

	outcomes := map[string][]int64{}
	causes := map[string][]int64{}
	add := func(to map[string][]int64, name string, at int, n int64) {
		if to[name] == nil {
			to[name] = make([]int64, requestChartMinutes)
		}
		to[name][at] += n
	}
	for _, count := range counts {
		at := int(count.Minute.Sub(first) / time.Minute)
		if at < 0 || at >= requestChartMinutes {
			continue // counted by a machine whose clock differs
		}
		add(outcomes, count.Outcome, at, count.Count)
		if count.Outcome == operate.OutcomeRefused {
			add(causes, count.Code, at, count.Count)
		}
	}
	kinds := []chartPart{
		{Name: operate.OutcomeAccepted, Class: "started"},
		{Name: operate.OutcomeDeduplicated, Class: "repeated"},
		{Name: operate.OutcomeFiltered, Class: "filtered"},
		{Name: operate.OutcomeRefused, Class: "rejected"},
	}
	got := requestCharts{
		Outcomes: newChart(first, time.Minute, requestChartMinutes, kinds, outcomes),
		Causes: newChart(first, time.Minute, requestChartMinutes, refusalCauseParts(causes),
			causes),
	}
	got.Accepted, got.Deduplicated, got.Refused = kinds[0].Total, kinds[1].Total, kinds[3].Total
	return got, nil
}

// otherCausesName labels the part of the chart that combines all less frequent causes.
const otherCausesName = "others"

// refusalCauseParts returns the most frequent causes as parts of a chart. causes holds the counts
// per minute of each cause. If there are too many causes, the last part combines the less frequent
// ones: its name is otherCausesName, and refusalCauseParts adds an entry with its counts to causes.
func refusalCauseParts(causes map[string][]int64) []chartPart {
	codes := slices.SortedFunc(maps.Keys(causes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sum(causes[b]), sum(causes[a])), strings.Compare(a, b))
	})
	if len(codes) > maxSeparateRefusalCauses+1 { // a single further cause keeps its name
		rest := make([]int64, requestChartMinutes)
		for _, code := range codes[maxSeparateRefusalCauses:] {
			for at, n := range causes[code] {
				rest[at] += n
			}
		}
		causes[otherCausesName] = rest
		codes = append(codes[:maxSeparateRefusalCauses], otherCausesName)
	}
	parts := make([]chartPart, len(codes))
	for i, code := range codes {
		parts[i] = chartPart{Name: code, Class: fmt.Sprintf("cause-%d", i+1)}
	}
	return parts
}
