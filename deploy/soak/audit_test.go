package soak

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/shared/execution"
)

// For each kind of fault, auditLedger reports a finding of the matching kind and no other finding.
// It reports nothing if all is well.
func TestExamine(t *testing.T) {
	first := deliver.Answer{ExecutionID: "x"}
	repeat := deliver.Answer{ExecutionID: "x", Deduplicated: true}
	paused := []incident{{kind: "pause node", from: time.Now().Add(-time.Second)}}
	one := map[string]storedStart{"x": {marker: "m", messageCount: 1}}
	for name, c := range map[string]struct {
		hasID   bool
		told    func(*ledger, *delivery)
		starts  map[string]storedStart
		records map[string]recordSummary
		want    string // the expected findings, in the form that found returns
	}{
		"all is well": {true, func(b *ledger, d *delivery) {
			b.recordAccepted(d, first)
			b.recordAccepted(d, repeat)
		}, one, recorded("x"), ""},
		"first answer lost": {true, func(b *ledger, d *delivery) {
			b.recordNoResponse(d, "broke", false)
			b.recordAccepted(d, repeat)
		}, one, recorded("x"), ""},
		"refused, then stored": {true, func(b *ledger, d *delivery) {
			b.recordRefusal(d, "503", false)
			b.recordAccepted(d, repeat)
		}, one, recorded("x"), ""},
		"refused, not stored": {false, func(b *ledger, d *delivery) {
			b.recordRefusal(d, "503", false)
		}, nil, nil, ""},
		"not stored": {true, func(b *ledger, d *delivery) {
			b.recordAccepted(d, first)
		}, nil, nil, "lost"},
		"not recorded": {true, func(b *ledger, d *delivery) {
			b.recordAccepted(d, first)
		}, one, nil, "unrecorded"},
		"unheard, not recorded": {false, func(b *ledger, d *delivery) {
			b.recordNoResponse(d, "broke", false)
		}, one, nil, "unrecorded unheard"},
		"twice in the stream": {
			true,
			func(b *ledger, d *delivery) { b.recordAccepted(d, first) },
			map[string]storedStart{"x": {marker: "m", messageCount: 2}},
			recorded("x"),
			"doubled",
		},
		"two executions stored": {
			false,
			func(b *ledger, d *delivery) { b.recordAccepted(d, first) },
			map[string]storedStart{"x": {marker: "m", messageCount: 1}, "y": {
				marker:       "m",
				messageCount: 1,
			}},
			recorded("x", "y"),
			"doubled",
		},
		"two executions told": {
			true, func(b *ledger, d *delivery) {
				b.recordAccepted(d, first)
				b.recordAccepted(d, deliver.Answer{ExecutionID: "y", Deduplicated: true})
			},
			map[string]storedStart{"x": {marker: "m", messageCount: 1}, "y": {
				marker:       "m",
				messageCount: 1,
			}},
			recorded("x", "y"),
			"doubled doubled",
		},
		"twice the first": {true, func(b *ledger, d *delivery) {
			b.recordAccepted(d, first)
			b.recordAccepted(d, first)
		}, one, recorded("x"), "doubled"},
		"never before": {true, func(b *ledger, d *delivery) {
			b.recordAccepted(d, repeat)
		}, one, recorded("x"), "misjudged"},
		"not connected, repeat": {true, func(b *ledger, d *delivery) {
			b.recordNoResponse(d, "dial", true)
			b.recordAccepted(d, repeat)
		}, one, recorded("x"), "misjudged"},
		"refused for good": {true, func(b *ledger, d *delivery) {
			d.alwaysActive = true
			b.recordRefusal(d, "404", true)
		}, nil, nil, "refused"},
		"refused while it is inactive": {true, func(b *ledger, d *delivery) {
			b.recordRefusal(d, "403", true)
		}, nil, nil, ""},
		"a ghost": {false, func(b *ledger, d *delivery) {
			b.recordRefusal(d, "503", false)
		}, one, recorded("x"), "ghost:pause node"},
		"given up": {true, func(b *ledger, d *delivery) {
			b.recordRefusal(d, "503", false)
		}, one, recorded("x"), "given-up"},
		"unheard": {false, func(b *ledger, d *delivery) {
			b.recordNoResponse(d, "broke", false)
		}, one, recorded("x"), "unheard"},
		"another's": {true, func(b *ledger, d *delivery) {
			b.recordAccepted(d, first)
		}, map[string]storedStart{"x": {
			marker:       "z",
			messageCount: 1,
		}}, recorded("x"), "strange strange"},
		"recorded, not stored": {true, func(b *ledger, d *delivery) {
			b.recordRefusal(d, "503", false)
		}, nil, recorded("x"), "strange"},
	} {
		b := newLedger()
		c.told(b, b.addDelivery("m", c.hasID))
		if got := found(auditLedger(b, streamContents{starts: c.starts}, c.records,
			paused)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// auditLedger reports an execution whose recorded status is not the final status that a runner
// reported, and an execution for which no runner reported a final status. If no runner reported
// anything about any execution, it assumes that there are no runners, and reports nothing.
func TestAuditLedgerFinalStatus(t *testing.T) {
	for name, c := range map[string]struct {
		ends   map[string]execution.Status
		status execution.Status
		want   string
	}{
		"as reported": {
			map[string]execution.Status{"x": execution.Failed}, execution.Failed, "",
		},
		"another end": {
			map[string]execution.Status{"x": execution.Failed}, execution.Succeeded, "wrong",
		},
		"still queued": {
			map[string]execution.Status{"x": execution.Succeeded}, execution.Queued, "wrong",
		},
		"no runner reported": {
			map[string]execution.Status{"z": execution.Succeeded}, execution.Queued, "wrong",
		},
		"there is no runner": {nil, execution.Queued, ""},
	} {
		b := newLedger()
		b.recordAccepted(b.addDelivery("m", true), deliver.Answer{ExecutionID: "x"})
		s := streamContents{
			starts:        map[string]storedStart{"x": {marker: "m", messageCount: 1}},
			finalStatuses: c.ends,
		}
		records := map[string]recordSummary{"x": {count: 1, status: c.status}}
		if got := found(auditLedger(b, s, records, nil)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// An execution that NATS has skipped is not a finding of the kind "wrong". It must have been ended
// as failed for the lack of a report, no runner may have received it, and the disk of a NATS node
// must have been full around the time of the delivery.
func TestAuditLedgerSkippedExecutions(t *testing.T) {
	t.Parallel()
	began := time.Now()
	nodeDisk := incident{kind: faultNodeDiskFull, from: began, to: began.Add(time.Second)}
	databaseDisk, earlier := nodeDisk, nodeDisk
	databaseDisk.kind = "full disk of database"
	earlier.from, earlier.to = began.Add(-time.Hour), began.Add(-time.Hour)
	unreported := recordSummary{count: 1, status: execution.Failed, endedWithoutReport: true}
	queued := recordSummary{count: 1, status: execution.Queued}
	failed := recordSummary{count: 1, status: execution.Failed}
	for name, c := range map[string]struct {
		fault    incident
		record   recordSummary
		received bool
		skipped  int
		want     string
	}{
		"skipped":             {nodeDisk, unreported, false, 1, ""},
		"a runner had it":     {nodeDisk, unreported, true, 0, "wrong"},
		"another disk":        {databaseDisk, unreported, false, 0, "wrong"},
		"another time":        {earlier, unreported, false, 0, "wrong"},
		"still queued":        {nodeDisk, queued, false, 0, "wrong"},
		"failed for a reason": {nodeDisk, failed, false, 0, "wrong"},
	} {
		b := newLedger()
		b.recordAccepted(b.addDelivery("m", true), deliver.Answer{ExecutionID: "x"})
		b.deliveries["m"].began, b.deliveries["m"].ended = began, began
		s := streamContents{
			starts:           map[string]storedStart{"x": {marker: "m", messageCount: 1}},
			finalStatuses:    map[string]execution.Status{"other": execution.Succeeded},
			receivedByRunner: map[string]bool{"x": c.received},
		}
		a := auditLedger(b, s, map[string]recordSummary{"x": c.record}, []incident{c.fault})
		if got := found(a); got != c.want || a.skipped != c.skipped {
			t.Errorf("%s: %q, %d skipped; want %q, %d", name, got, a.skipped, c.want, c.skipped)
		}
	}
}

// recorded returns records of queued executions with the given IDs.
func recorded(ids ...string) map[string]recordSummary {
	all := map[string]recordSummary{}
	for _, id := range ids {
		all[id] = recordSummary{count: 1, status: execution.Queued}
	}
	return all
}

// found lists the audit's findings by the names of their kinds, separated by spaces. A kind with
// several findings is listed several times.
func found(a *ledgerAuditResult) string {
	all := slices.Repeat([]string{"lost"}, len(a.lost))
	all = append(all, slices.Repeat([]string{"unrecorded"}, len(a.unrecorded))...)
	all = append(all, slices.Repeat([]string{"refused"}, len(a.wrongRefusals))...)
	all = append(all, slices.Repeat([]string{"wrong"}, len(a.wrongStatus))...)
	all = append(all, slices.Repeat([]string{"doubled"}, len(a.duplicates))...)
	all = append(all, slices.Repeat([]string{"strange"}, len(a.oddities))...)
	for cause := range a.refusedButStoredByFault {
		all = append(all, "ghost:"+cause)
	}
	all = append(all, slices.Repeat([]string{"given-up"}, a.refusedButStoredWithID)...)
	all = append(all, slices.Repeat([]string{"misjudged"}, a.wronglyDeduplicatedCount)...)
	all = append(all, slices.Repeat([]string{"unheard"}, a.unansweredButStored)...)
	return strings.Join(all, " ")
}

// auditStreamPlacement reports executions that are in the wrong stream, and queues' own streams
// that hold no executions. Executions of a queue with its own stream belong in that stream, and all
// others in the shared stream.
func TestAuditStreamPlacement(t *testing.T) {
	t.Parallel()
	right := map[string]storedStart{
		"a": {queue: "default", streamName: "EXECUTIONS"},
		"b": {queue: "own-0", streamName: "QUEUE_own-0"},
	}
	for name, c := range map[string]struct {
		starts map[string]storedStart
		own    int
		want   int
	}{
		"each in its own":   {right, 1, 0},
		"an unused stream":  {right, 2, 1},
		"a stream too many": {right, 0, 1},
		"none, all in one":  {map[string]storedStart{"a": right["a"]}, 0, 0},
		"in the shared one": {
			map[string]storedStart{"a": {queue: "own-0", streamName: "EXECUTIONS"}}, 1, 2,
		},
	} {
		a := &ledgerAuditResult{}
		a.auditStreamPlacement(c.starts, &installation{ownStreamCount: c.own})
		if len(a.oddities) != c.want {
			t.Errorf("%s: %q", name, a.oddities)
		}
	}
}
