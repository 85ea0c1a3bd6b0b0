package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// computeTakeoverResult counts each kind of loss and duplicate of a takeover separately. Of the
// lost executions, it also counts those that were acknowledged before the newest copied message,
// because the copy should have contained them.
func TestCountOfATakeover(t *testing.T) {
	t.Parallel()
	killed := time.Now()
	copied := killed.Add(-time.Second)
	// told returns a delivery whose last response came at the given time. originals is the number
	// of responses that were not marked as deduplicated. All responses named the execution x.
	told := func(at time.Time, originals int) *delivery {
		return &delivery{
			marker: "m", hasID: true, ended: at, executionIDs: []string{"x"}, originals: originals,
		}
	}
	here := func(messages int, ended time.Time) streamContents {
		return streamContents{
			starts:           map[string]storedStart{"x": {marker: "m", messageCount: messages}},
			finalStatuses:    map[string]execution.Status{"x": execution.Succeeded},
			finalStatusTimes: map[string]time.Time{"x": ended},
		}
	}
	x := map[string]bool{"x": true}
	good := map[string]recordSummary{"x": {count: 1, status: execution.Succeeded}}
	for name, c := range map[string]struct {
		d           *delivery
		all         streamContents
		records     map[string]recordSummary
		runs, again map[string]bool
		want        string
	}{
		"copied":              {told(copied, 1), here(1, copied), good, x, nil, ""},
		"lost after the copy": {told(killed, 1), streamContents{}, nil, x, nil, "lost 1"},
		"lost before the copy": {
			told(copied.Add(-time.Second), 1), streamContents{}, nil, x, nil, "lost 1 older 1",
		},
		"sent again":   {told(killed, 2), here(1, killed), good, x, nil, "anew 1"},
		"two messages": {told(copied, 1), here(2, copied), good, x, nil, "doubled 1"},
		"not recorded": {told(copied, 1), here(1, copied), nil, x, nil, "unrecorded 1"},
		"ran twice":    {told(copied, 1), here(1, killed), good, x, x, "twice 1"},
		"ran after its end": {
			told(copied, 1), here(1, copied), good, x, x, "twice 1 forbidden 1",
		},
		"another state": {
			told(copied, 1), here(1, copied),
			map[string]recordSummary{"x": {count: 1, status: execution.Queued}},
			x, nil,
			"wrong 1",
		},
	} {
		s := &takeoverRun{ledger: newLedger(), killedAt: killed, newestCopiedAt: copied}
		s.ledger.deliveries["m"] = c.d
		got := s.computeTakeoverResult(c.all, c.records, c.runs, c.again)
		text := ""
		for _, part := range []struct {
			name  string
			count int
		}{
			{"lost", len(got.lost)},
			{"older", len(got.lostBeforeNewestCopied)},
			{"doubled", len(got.duplicates)},
			{"unrecorded", len(got.unrecorded)},
			{"wrong", len(got.wrongStatus)},
			{"anew", got.reacceptedCount},
			{"twice", len(got.ranAtBoth)},
			{"forbidden", len(got.ranAfterReportedEnd)},
		} {
			if part.count > 0 {
				text += fmt.Sprintf(" %s %d", part.name, part.count)
			}
		}
		if want := map[bool]string{true: "", false: " " + c.want}[c.want == ""]; text != want {
			t.Errorf("%s: counted%s, not%s", name, text, want)
		}
	}
}
