package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// takeoverResult summarizes the losses and duplicates of a takeover.
type takeoverResult struct {
	acknowledgedCount int      // executions acknowledged before the first site was lost
	lost              []string // acknowledged executions that are missing at the second site
	// lostBeforeNewestCopied holds the lost executions that were acknowledged before the last
	// copied message was stored.
	lostBeforeNewestCopied []string
	// duplicates holds the executions with two messages or records, and the deliveries with two
	// executions.
	duplicates      []string
	unrecorded      []string // executions that are stored but not recorded
	wrongStatus     []string // executions whose recorded status is not the reported one
	reacceptedCount int      // lost executions whose delivery the second site accepted as new
	ranAtBoth       []string // executions that ran at both sites
	// ranAfterReportedEnd holds the executions that ran at both sites although the copied streams
	// contain the report of their end, so that the second site should not have run them.
	ranAfterReportedEnd []string
}

// computeTakeoverResult compares the responses to senders with what the second site has. all is the
// contents of the second site's streams, and records is what its executor has recorded. ranAtFirst
// and ranAtSecond hold the IDs of the executions that ran at the first and at the second site.
func (s *takeoverRun) computeTakeoverResult(
	all streamContents,
	records map[string]recordSummary,
	ranAtFirst map[string]bool,
	ranAtSecond map[string]bool,
) (c takeoverResult) {
	for _, d := range s.ledger.deliveries {
		before := !d.ended.After(s.killedAt)
		for _, id := range d.executionIDs {
			if before {
				c.acknowledgedCount++
			}
			if _, ok := all.starts[id]; ok {
				continue
			}
			line := fmt.Sprintf("%s (delivery %s), answered %s before the end", id, d.marker,
				s.killedAt.Sub(d.ended).Round(time.Millisecond))
			c.lost = append(c.lost, line)
			if d.ended.Before(s.newestCopiedAt) {
				c.lostBeforeNewestCopied = append(c.lostBeforeNewestCopied, line)
			}
		}
		switch {
		case len(d.executionIDs) > 1:
			c.duplicates = append(c.duplicates,
				fmt.Sprintf("delivery %s has the executions %v", d.marker, d.executionIDs))
		case d.originals > 1:
			c.reacceptedCount++
		}
	}
	for id, start := range all.starts {
		r := records[id]
		end, ended := all.finalStatuses[id]
		switch {
		case start.messageCount > 1 || r.count > 1:
			c.duplicates = append(c.duplicates, fmt.Sprintf("%s has %d messages and %d records", id,
				start.messageCount, r.count))
		case r.count == 0:
			c.unrecorded = append(c.unrecorded, id)
		case !ended || r.status != end:
			c.wrongStatus = append(c.wrongStatus, fmt.Sprintf("%s is %s, a runner reported %q", id,
				r.status, end))
		}
		if !ranAtFirst[id] || !ranAtSecond[id] {
			continue
		}
		c.ranAtBoth = append(c.ranAtBoth, id)
		if all.finalStatusTimes[id].Before(s.killedAt) {
			c.ranAfterReportedEnd = append(c.ranAfterReportedEnd,
				fmt.Sprintf("%s, whose end was reported at %s", id,
					all.finalStatusTimes[id].Format("15:04:05.000")))
		}
	}
	return c
}

// auditTakeover reads the streams and the records of the second site and the runs of both sites,
// and prints the ledger of the takeover. It returns an error if a promise is broken.
func (s *takeoverRun) auditTakeover(ctx context.Context) error {
	all, err := readStreams(ctx, s.second.js)
	if err != nil {
		return err
	}
	records, err := readRecords(ctx, s.second.client())
	if err != nil {
		return err
	}
	aside, err := deadLetteredStarts(ctx, s.second.client())
	if err != nil {
		return err
	}
	runs, err := s.first.receivedExecutionIDs()
	if err != nil {
		return err
	}
	again, err := s.second.receivedExecutionIDs()
	if err != nil {
		return err
	}
	c := s.computeTakeoverResult(all, records, runs, again)
	t := s.ledger.currentTotals()
	var broken []string
	line := func(name string, value any, why string) {
		_, _ = fmt.Fprintf(s.config.Out, "%-14s %8v  %s\n", name, value, why)
	}
	never := func(name string, lines []string, why string) {
		line(name, len(lines), why)
		printFirstLines(s.config.Out, lines)
		if len(lines) > 0 {
			broken = append(broken, fmt.Sprintf("%d %s", len(lines), name))
		}
	}
	since := func(at time.Time) string {
		return at.Sub(s.killedAt).Round(time.Millisecond).String()
	}
	_, _ = fmt.Fprintf(s.config.Out, "\nLedger of the takeover, seed %d\n", s.config.Seed)
	line("sent", t.sent, "requests, repeats too")
	line("acknowledged", t.acknowledged,
		fmt.Sprintf("answers 200; %d executions before the first site was lost",
			c.acknowledgedCount))
	line("copied until", since(s.newestCopiedAt),
		"when the last copied start was stored, from the loss")
	line("take-over", since(s.takenOverAt), "when the command had ended, from the loss")
	line("back", since(s.firstAcceptedAt), "the second site accepts requests, from the loss")
	line("lost", len(c.lost), "acknowledged at the first site after the last copied start")
	line("sent again", c.reacceptedCount, "of what was lost, accepted again as the same execution")
	line("ran twice", len(c.ranAtBoth), "at both sites: their end was not copied")
	line("repeats", s.repeatCount, "of copied deliveries, sent to the second site")
	never("lost earlier", c.lostBeforeNewestCopied,
		"acknowledged before the last copied start, and lost")
	never("unrecognised", s.unrecognizedRepeats, "of these repeats, taken for new deliveries")
	never("doubled", c.duplicates, "")
	never("unrecorded", c.unrecorded, "in the stream, and not recorded")
	never("wrong", c.wrongStatus, "not in the state that a runner reported")
	never("ran again", c.ranAfterReportedEnd, "at both sites though the copy has their end")
	never("put aside", aside, "starts that executors took for unreadable")
	never("ended", s.second.problems(), "processes of the second site that ended by themselves")
	if c.acknowledgedCount == 0 || s.repeatCount == 0 {
		broken = append(broken, "nothing to compare")
	}
	if len(broken) == 0 {
		return nil
	}
	slices.Sort(broken)
	return fmt.Errorf("seed %d: %w", s.config.Seed, errors.New(fmt.Sprint(broken)))
}
