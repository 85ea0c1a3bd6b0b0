package soak

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxLinesPerViolationKind is the maximum number of lines printed for each kind of violation.
const maxLinesPerViolationKind = 10

// report is the result of a soak.
type report struct {
	seed                uint64
	loadDuration        time.Duration
	totals              requestTotals
	audit               *ledgerAuditResult
	incidents           []incident
	processProblems     []string // problems with processes, such as an unexpected exit
	stalls              []string // descriptions of the times at which recording stalled
	contradictions      []string // responses about the registry that contradicted a change
	deadLetteredStarts  []string // start messages that executors put aside as unreadable
	restoreViolations   []string // checks that failed after the store was restored
	storeLossViolations []string // checks that failed after the store was deleted
	reruns              []string // executions that a runner received again after their end
}

func (r *report) write(out io.Writer) {
	line := func(name string, value any, why string) {
		_, _ = fmt.Fprintf(out, "%-14s %8v  %s\n", name, value, why)
	}
	t, a := r.totals, r.audit
	_, _ = fmt.Fprintf(
		out,
		"\nLedger, seed %d, %s under load\n",
		r.seed,
		r.loadDuration.Round(time.Second),
	)
	line("deliveries", a.deliveries, "")
	line("sent", t.sent, "requests, repeats too")
	line("acknowledged", t.acknowledged, fmt.Sprintf("answers 200; %d executions", a.acknowledged))
	line("deduplicated", t.deduplicated, "of these, for a delivery that came before")
	line("refused", totalCount(t.refusedByCode), formatCounts(t.refusedByCode))
	line("no answer", totalCount(t.errorsByKind), formatCounts(t.errorsByKind))
	line("stored", a.stored, "executions in the stream")
	if len(a.ownStreams) > 0 {
		line("own streams", len(a.ownStreams),
			"each of one queue; executions stored in each: "+formatCounts(a.storedByStream))
	}
	line("recorded", a.recorded, "")
	line("run", a.ended, "executions whose runner reported the end")
	line("unheard", a.unansweredButStored,
		"stored; the answer was lost, and the sender did not ask again")
	line("ghosts", totalCount(a.refusedButStoredByFault),
		"stored though refused, without a delivery ID, never sent again: a NATS server took it "+
			"and did not say so in time")
	if len(a.refusedButStoredByFault) > 0 {
		line("", "", formatCounts(a.refusedButStoredByFault))
	}
	line("given up", a.refusedButStoredWithID,
		"stored though refused, with a delivery ID: sent again, they would have been deduplicated")
	line("skipped", a.skipped,
		"given to no runner by a NATS server with a full disk, and ended as failed: dead letters")
	line("misjudged", a.wronglyDeduplicatedCount, "called deduplicated though nothing came before")
	line("faults", len(r.incidents), formatCounts(countByKind(r.incidents)))
	line("ended", len(r.processProblems), "processes that ended by themselves or not well")
	printFirstLines(out, r.processProblems)
	for _, v := range r.violations() {
		line(v.name, len(v.cases), v.explanation)
		printFirstLines(out, v.cases)
	}
}

// violationKind is a kind of violation, such as lost executions. cases holds a description of each
// violation that was found.
type violationKind struct {
	name, explanation string
	cases             []string
}

// violations returns the violations during the load. A correct installation has none.
func (r *report) violations() []violationKind {
	return []violationKind{
		{"stood still", "times that nothing was recorded though one executor was well", r.stalls},
		{
			"contradictions", "answers by another state than a confirmed change had left",
			r.contradictions,
		},
		{"strange", "", r.audit.oddities},
		{
			"refused", "deliveries to active workflows that were refused for good",
			r.audit.wrongRefusals,
		},
		{"lost", "acknowledged, and not in the stream", r.audit.lost},
		{"unrecorded", "in the stream, and not recorded", r.audit.unrecorded},
		{
			"put aside",
			"starts that executors took for unreadable, recorded or not",
			r.deadLetteredStarts,
		},
		{"doubled", "", r.audit.duplicates},
		{"wrong", "not in the state that a runner reported", r.audit.wrongStatus},
		{"ran again", "executions that a runner was given again after their end", r.reruns},
	}
}

func (r *report) writeRestoreViolations(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%-14s %8v  %s\n", "broken", len(r.restoreViolations),
		"after the store was restored")
	printFirstLines(out, r.restoreViolations)
}

// violationsErr returns an error with the number of violations of each kind, or nil if there are
// none.
func (r *report) violationsErr() error {
	var all []string
	for _, v := range append(r.violations(), violationKind{
		"broken by the restored store", "", r.restoreViolations,
	}, violationKind{"broken by the deleted store", "", r.storeLossViolations}) {
		if len(v.cases) > 0 {
			all = append(all, fmt.Sprintf("%d %s", len(v.cases), v.name))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("seed %d: %s", r.seed, strings.Join(all, ", "))
}

// falseRepeatsErr returns an error with the number of deliveries whose first response was wrongly
// marked as deduplicated, or nil if there are none.
func (r *report) falseRepeatsErr() error {
	if r.audit.wronglyDeduplicatedCount > 0 {
		return fmt.Errorf("%d first deliveries were answered deduplicated",
			r.audit.wronglyDeduplicatedCount)
	}
	return nil
}

func printFirstLines(out io.Writer, lines []string) {
	for _, text := range lines[:min(len(lines), maxLinesPerViolationKind)] {
		_, _ = fmt.Fprintln(out, "  ", text)
	}
}

func countByKind(incidents []incident) map[string]int {
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
