package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// quartiles holds the lower quartile, the median and the upper quartile of a list of values.
type quartiles struct{ low, median, high float64 }

func quartilesOf(values []float64) quartiles {
	sorted := slices.Sorted(slices.Values(values))
	return quartiles{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)}
}

// quantile returns the q quantile of sorted values, interpolated between the two nearest values. q
// is from 0 to 1, and there must be at least one value.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func (q quartiles) format(verb string) string {
	return fmt.Sprintf(verb+" ("+verb+"–"+verb+")", q.median, q.low, q.high)
}

// valuesOf returns number(t) for each turn t, in the order of turns.
func valuesOf(turns []turnResult, number func(turnResult) float64) []float64 {
	values := make([]float64, len(turns))
	for i, t := range turns {
		values[i] = number(t)
	}
	return values
}

// ratioQuartiles compares each turn with the turn of yardstick in the same round: it returns the
// quartiles of number(turns[i]) / number(yardstick[i]).
func ratioQuartiles(turns, yardstick []turnResult, number func(turnResult) float64) quartiles {
	ratios := make([]float64, len(turns))
	for i := range turns {
		ratios[i] = number(turns[i]) / number(yardstick[i])
	}
	return quartilesOf(ratios)
}

// latencyQuantile returns a function that returns the q quantile of a turn's latencies, in
// milliseconds.
func latencyQuantile(q float64) func(turnResult) float64 {
	return func(t turnResult) float64 { return durationQuantileMS(t.latencies, q) }
}

// durationQuantileMS returns the q quantile of sorted durations in milliseconds, or NaN if there
// are none.
func durationQuantileMS(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[at]) / float64(time.Millisecond)
}

func writeTable(out io.Writer, title string, header string, rows func(w io.Writer)) {
	_, _ = fmt.Fprintf(out, "\n%s\n\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, header)
	rows(w)
	_ = w.Flush()
}

func writeClosedLoop(out io.Writer, names []string, turns map[string][]turnResult) {
	writeTable(out,
		"Every connection sends as soon as it has its answer. Median of the rounds (quartiles); "+
			"CPU of all server processes.",
		"\treq/s\tCPU ms/1,000\tof it NATS\texecutor\tp50 ms\tp99 ms\treq/s x bare\tCPU x bare",
		func(w io.Writer) {
			for _, name := range names {
				t := turns[name]
				part := func(cpu func(cpuUsage) time.Duration) string {
					each := quartilesOf(valuesOf(t, func(t turnResult) float64 {
						return cpu(t.cpu).Seconds() / float64(t.answered) * 1e6
					}))
					if each.median == 0 {
						return "-"
					}
					return each.format("%.0f")
				}
				nats, executor := part(func(u cpuUsage) time.Duration {
					return u.nats
				}), part(func(u cpuUsage) time.Duration { return u.executor })
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%s\t%s\n", name,
					quartilesOf(valuesOf(t, turnResult.requestsPerSecond)).format("%.0f"),
					quartilesOf(valuesOf(t, func(t turnResult) float64 {
						return t.cpuPerThousandRequests() * 1000
					})).format("%.0f"), nats, executor,
					quartilesOf(valuesOf(t, latencyQuantile(0.5))).median,
					quartilesOf(valuesOf(t, latencyQuantile(0.99))).median,
					ratioQuartiles(t, turns[variantBare],
						turnResult.requestsPerSecond).format("%.2f"),
					ratioQuartiles(t, turns[variantBare],
						turnResult.cpuPerThousandRequests).format("%.2f"))
			}
		})
	writeExtraCPU(out, turns)
	_, _ = fmt.Fprintln(out)
	for _, name := range names {
		_, _ = fmt.Fprintf(out, "%s: %s\n", name, findVariant(name).description)
	}
}

func writeOpenLoop(out io.Writer, names []string, loop openLoopResult) {
	turns := loop.resultsByVariant
	title := loop.rateDescription + " requests per second, in ms, " + loop.latencyDescription +
		". Median of the rounds (quartiles)."
	writeTable(out, title,
		"\treq/s\tp50\tp99\tp99.9\tp99 x bare\tp99.9 x bare\tall recorded after",
		func(w io.Writer) {
			for _, name := range names {
				t := turns[name]
				recorded := "-"
				if lag := quartilesOf(valuesOf(t, func(t turnResult) float64 {
					return float64(t.lag) / float64(time.Millisecond)
				})); lag.median > 1 {
					recorded = lag.format("%.0f")
				}
				_, _ = fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\n", name,
					loop.rateByVariant[name],
					quartilesOf(valuesOf(t, latencyQuantile(0.5))).format("%.2f"),
					quartilesOf(valuesOf(t, latencyQuantile(0.99))).format("%.2f"),
					quartilesOf(valuesOf(t, latencyQuantile(0.999))).format("%.2f"),
					ratioQuartiles(t, turns[variantBare], latencyQuantile(0.99)).format("%.2f"),
					ratioQuartiles(t, turns[variantBare], latencyQuantile(0.999)).format("%.2f"),
					recorded)
			}
		})
}

// writeMemoryAndReadyTimes writes the memory that each process uses now, and how long each ingress
// took to become ready.
func writeMemoryAndReadyTimes(out io.Writer, systems []*system) error {
	_, _ = fmt.Fprintln(out, "\nMemory after the rounds, in MB:")
	for _, s := range systems {
		_, _ = fmt.Fprint(out, s.name, ":")
		for _, p := range s.processes {
			size, err := residentMB(p.PID())
			if err != nil {
				return err
			}
			_, _ = fmt.Fprint(out, " ", strings.TrimPrefix(p.name, s.name+"-"), " ", size)
		}
		if s.ingressReadyAfter > 0 {
			_, _ = fmt.Fprintf(out, "; the ingress was ready after %.2f s",
				s.ingressReadyAfter.Seconds())
		}
		_, _ = fmt.Fprintln(out)
	}
	return nil
}

// writeExtraCPU writes, for pairs of variants that differ only in one setting or in the build, how
// much more CPU a request costs in the first variant than in the second. It compares turns of the
// same round.
func writeExtraCPU(out io.Writer, turns map[string][]turnResult) {
	for _, pair := range [][2]string{
		{"hookstart-stripe", "hookstart"},
		{"hookstart-bearer", "hookstart"},
		{"hookstart-filter", "hookstart"},
		{"hookstart-order", "hookstart"},
		{"hookstart-other", "hookstart"},
		{"hookstart-answer", "hookstart-running"},
	} {
		name, same := pair[0], turns[pair[1]]
		if len(same) == 0 || len(turns[name]) != len(same) {
			continue
		}
		more := make([]float64, len(same))
		for i, t := range turns[name] {
			more[i] = (t.cpuPerThousandRequests() - same[i].cpuPerThousandRequests()) * 1000
		}
		_, _ = fmt.Fprintf(out, "\n%s: %s µs of CPU per request more than %s in the same round\n",
			name, quartilesOf(more).format("%.1f"), pair[1])
	}
}
