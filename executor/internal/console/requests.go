package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// requestMinutes is how many minutes the charts of requests show.
const requestMinutes = 60

// maxCauses is how many causes a chart tells apart; what is left is one more part.
const maxCauses = 4

// requests are the requests of the last hour, by the minute: what became of them, and why
// some were refused.
type requests struct {
	Outcomes, Causes                stacked
	Accepted, Deduplicated, Refused int64
}

// stacked are bars over time, each of several parts, the oldest first. A bar is one wide,
// the tallest is chartHeight high.
type stacked struct {
	Parts   []part // from the bottom
	Bars    []stackedBar
	Max     int64 // of a bar
	Missing bool  // the database was too slow
}

// part is one of the things that a chart tells apart.
type part struct {
	Name  string
	Class string // its colour
	Total int64
}

type stackedBar struct {
	X     int
	At    time.Time
	Total int64
	Parts []stackedPart // those that are not empty
}

type stackedPart struct {
	part
	N         int64
	Y, Height float64
}

// Width is the chart's width in its own units.
func (s stacked) Width() int { return len(s.Bars) }

// Empty says whether there is nothing to show.
func (s stacked) Empty() bool { return s.Max == 0 }

// requests counts the requests of the last hour.
func (c *Console) requests(ctx context.Context, now time.Time) (requests, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	first := now.UTC().Truncate(time.Minute).Add(-(requestMinutes - 1) * time.Minute)
	counts, err := c.Operate.Requests(ctx, signin.Caller(ctx), first)
	if errors.Is(err, context.DeadlineExceeded) {
		return requests{Outcomes: stacked{Missing: true}, Causes: stacked{Missing: true}}, nil
	}
	if err != nil {
		return requests{}, err
	}

	outcomes := map[string][]int64{}
	causes := map[string][]int64{}
	add := func(to map[string][]int64, name string, at int, n int64) {
		if to[name] == nil {
			to[name] = make([]int64, requestMinutes)
		}
		to[name][at] += n
	}
	for _, count := range counts {
		at := int(count.Minute.Sub(first) / time.Minute)
		if at < 0 || at >= requestMinutes {
			continue // the clocks of two machines differ
		}
		add(outcomes, count.Outcome, at, count.Count)
		if count.Outcome == operate.Refused {
			add(causes, count.Code, at, count.Count)
		}
	}
	got := requests{
		Outcomes: stack(first, []part{{Name: operate.Accepted, Class: "started"}, {Name: operate.Deduplicated, Class: "repeated"}, {Name: operate.Refused, Class: "rejected"}}, outcomes),
		Causes:   stack(first, causeParts(causes), causes),
	}
	got.Accepted, got.Deduplicated, got.Refused = got.Outcomes.Parts[0].Total, got.Outcomes.Parts[1].Total, got.Outcomes.Parts[2].Total
	return got, nil
}

// others is the part of the causes that are not told apart.
const others = "others"

// causeParts are the causes that most requests were refused for. The others are added up
// in causes.
func causeParts(causes map[string][]int64) []part {
	codes := make([]string, 0, len(causes))
	for code := range causes {
		codes = append(codes, code)
	}
	slices.SortFunc(codes, func(a, b string) int {
		return cmp.Or(cmp.Compare(sum(causes[b]), sum(causes[a])), strings.Compare(a, b))
	})
	if len(codes) > maxCauses+1 { // one that is left has a name as well
		rest := make([]int64, requestMinutes)
		for _, code := range codes[maxCauses:] {
			for at, n := range causes[code] {
				rest[at] += n
			}
		}
		causes[others] = rest
		codes = append(codes[:maxCauses], others)
	}
	parts := make([]part, len(codes))
	for i, code := range codes {
		parts[i] = part{Name: code, Class: []string{"cause-1", "cause-2", "cause-3", "cause-4", "cause-5"}[i]}
	}
	return parts
}

// stack draws counts by their parts' names.
func stack(first time.Time, parts []part, counts map[string][]int64) stacked {
	drawn := stacked{Parts: parts, Bars: make([]stackedBar, requestMinutes)}
	for i := range parts {
		parts[i].Total = sum(counts[parts[i].Name])
	}
	for at := range drawn.Bars {
		bar := stackedBar{X: at, At: first.Add(time.Duration(at) * time.Minute)}
		for _, p := range parts {
			if of := counts[p.Name]; of != nil && of[at] > 0 {
				bar.Parts = append(bar.Parts, stackedPart{part: p, N: of[at]})
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
