package soak

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxLinesPerKind is the maximum number of lines printed for each kind of violation.
const maxLinesPerKind = 10

// report is the result of a soak.
type report struct {
	seed           uint64
	took           time.Duration
	totals         requestTotals
	audit          *ledgerAuditResult
	incidents      []incident
	ended          []string // problems with processes, such as an unexpected exit
	stood          []string // descriptions of the times at which recording stalled
	contradictions []string // responses about the registry that contradicted a change
	aside          []string // starts that were put aside
	restored       []string // checks that failed after the store was restored
	emptied        []string // checks that failed after the store was deleted
	again          []string // executions that a runner received again after their end
}

func (r *report) write(out io.Writer) {
	line := func(name string, value any, why string) {
		_, _ = fmt.Fprintf(out, "%-14s %8v  %s\n", name, value, why)
	}
	t, a := r.totals, r.audit
	_, _ = fmt.Fprintf(out, "\nLedger, seed %d, %s under load\n", r.seed, r.took.Round(time.Second))
	line("deliveries", a.deliveries, "")
	line("sent", t.sent, "requests, repeats too")
	line("acknowledged", t.acknowledged, fmt.Sprintf("answers 200; %d executions", a.executions))
	line("deduplicated", t.deduplicated, "of these, for a delivery that came before")
	line("refused", totalCount(t.refused), formatCounts(t.refused))
	line("no answer", totalCount(t.errors), formatCounts(t.errors))
	line("stored", a.stored, "executions in the stream")
	if len(a.ownStreams) > 0 {
		line("own streams", len(a.ownStreams),
			"each of one queue; executions stored in each: "+formatCounts(a.inStreams))
	}
	line("recorded", a.recorded, "")
	line("run", a.ended, "executions whose runner reported the end")
	line("unheard", a.unheard, "stored; the answer was lost, and the sender did not ask again")
	line("ghosts", totalCount(a.ghosts),
		"stored though refused, without a delivery ID, never sent again: a NATS server took it "+
			"and did not say so in time")
	if len(a.ghosts) > 0 {
		line("", "", formatCounts(a.ghosts))
	}
	line("given up", a.ghostsWithID,
		"stored though refused, with a delivery ID: sent again, they would have been deduplicated")
	line("misjudged", a.misjudged, "called deduplicated though nothing came before")
	line("faults", len(r.incidents), formatCounts(byKind(r.incidents)))
	line("ended", len(r.ended), "processes that ended by themselves or not well")
	printLines(out, r.ended)
	for _, v := range r.violations() {
		line(v.name, len(v.lines), v.why)
		printLines(out, v.lines)
	}
}

// violation is a kind of broken promise, with a line for each case that was found.
type violation struct {
	name, why string
	lines     []string
}

// violations returns the violations during the load. A correct installation has none.
func (r *report) violations() []violation {
	return []violation{
		{"stood still", "times that nothing was recorded though one executor was well", r.stood},
		{
			"contradictions", "answers by another state than a confirmed change had left",
			r.contradictions,
		},
		{"strange", "", r.audit.strange},
		{"refused", "deliveries to active workflows that were refused for good", r.audit.refused},
		{"lost", "acknowledged, and not in the stream", r.audit.lost},
		{"unrecorded", "in the stream, and not recorded", r.audit.unrecorded},
		{"put aside", "starts that executors took for unreadable, recorded or not", r.aside},
		{"doubled", "", r.audit.doubled},
		{"wrong", "not in the state that a runner reported", r.audit.wrong},
		{"ran again", "executions that a runner was given again after their end", r.again},
	}
}

func (r *report) writeRestoreViolations(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%-14s %8v  %s\n", "broken", len(r.restored),
		"after the store was restored")
	printLines(out, r.restored)
}

// err returns an error with the number of violations of each kind, or nil if there are none.
func (r *report) err() error {
	var all []string
	for _, v := range append(r.violations(), violation{
		"broken by the restored store", "", r.restored,
	}, violation{"broken by the deleted store", "", r.emptied}) {
		if len(v.lines) > 0 {
			all = append(all, fmt.Sprintf("%d %s", len(v.lines), v.name))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("seed %d: %s", r.seed, strings.Join(all, ", "))
}

// misjudgedErr returns an error with the number of deliveries whose first response was wrongly
// marked as deduplicated, or nil if there are none.
func (r *report) misjudgedErr() error {
	if r.audit.misjudged > 0 {
		return fmt.Errorf("%d first deliveries were answered deduplicated", r.audit.misjudged)
	}
	return nil
}

func printLines(out io.Writer, lines []string) {
	for _, text := range lines[:min(len(lines), maxLinesPerKind)] {
		_, _ = fmt.Fprintln(out, "  ", text)
	}
}

func byKind(incidents []incident) map[string]int {
	kinds := map[string]int{}
	for _, i := range incidents {
		kinds[i.kind]++
	}
	return kinds
}

func totalCount(counts map[string]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}

func formatCounts(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
