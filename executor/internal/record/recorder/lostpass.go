package recorder

import (
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	// maxLostWindow, minLostWindow and firstLostWindow are the longest, the shortest and the first
	// window of time in which one query looks for executions that have not ended. No index finds
	// them: it would be written to at each step of every execution. So a query reads all
	// executions of its window. A window that takes longer than slowLostWindow is followed by a
	// shorter one, and a window that takes a tenth of that by a longer one.
	maxLostWindow   = 24 * time.Hour
	minLostWindow   = time.Second
	firstLostWindow = 10 * time.Minute
	slowLostWindow  = time.Second
	// lostSearchOverlap is how much of what a search has read the next one reads again. An
	// execution can be recorded later than one that was accepted after it, and the clocks of the
	// ingresses differ.
	lostSearchOverlap = time.Hour
	// fullSearchInterval is how often a search reads all executions.
	fullSearchInterval = 24 * time.Hour
)

// lostPass is the state of a search for executions that no runner will end. A search reads the
// executions from the newest to the oldest, in windows of their acceptance times, because what a
// power cut has lost is among the newest. It stops at the oldest execution that the previous search
// found unfinished, because all older ones have already ended. After the recorder's consumers were
// moved back, and every fullSearchInterval, it reads all executions.
type lostPass struct {
	since   time.Time // acceptance time at which the search stops; zero: it reads all executions
	until   time.Time // acceptance time from which it goes back; zero: it has not begun
	next    time.Time // it has read everything from this acceptance time on
	unended time.Time // when the oldest execution that has not ended was accepted; zero: none found
	full    time.Time // when the last search of all executions began
	window  time.Duration
	// unread holds the streams that could not be read at least once during the search. Their
	// executions may be recorded later.
	unread  map[string]bool
	skipped []SkippedConsumer // what Config.SkippedConsumers returned when the search began
}

// begin begins the next search. late is the acceptance time of the oldest execution that was
// recorded late, and to which the search must therefore go back. Zero means that there is none.
func (p *lostPass) begin(now, late time.Time) {
	p.until, p.next, p.unended = time.Time{}, time.Time{}, time.Time{}
	p.unread = map[string]bool{}
	if !late.IsZero() && late.Before(p.since) {
		p.since = late
	}
	if now.Sub(p.full) >= fullSearchInterval {
		p.since, p.full = time.Time{}, now
	}
}

// beginFull begins a search of all executions.
func (p *lostPass) beginFull(now time.Time) {
	p.full = time.Time{}
	p.begin(now, time.Time{})
}

// windowOf returns the next window. newest is the acceptance time of the newest execution that the
// search has not read.
func (p *lostPass) windowOf(newest time.Time) store.RecordFilter {
	window := store.RecordFilter{Since: newest.Add(-p.window), Until: newest.Add(time.Millisecond)}
	if window.Since.Before(p.since) {
		window.Since = p.since
	}
	if window.Until.After(p.next) {
		window.Until = p.next
	}
	return window
}

// noteUnended notes the acceptance time of an execution that has not ended.
func (p *lostPass) noteUnended(accepted time.Time) {
	if p.unended.IsZero() || accepted.Before(p.unended) {
		p.unended = accepted
	}
}

// noteQuery sets the length of the next window by the duration and the error of a query.
func (p *lostPass) noteQuery(took time.Duration, err error) {
	switch {
	case err != nil || took > slowLostWindow:
		p.window = max(p.window/2, minLostWindow)
	case took < slowLostWindow/10:
		p.window = min(p.window*2, maxLostWindow)
	}
}

// end ends a search. The next one reads again what this one could not read.
func (p *lostPass) end() {
	if len(p.unread) > 0 {
		return
	}
	p.since = p.until.Add(-lostSearchOverlap)
	if !p.unended.IsZero() && p.unended.Before(p.since) {
		p.since = p.unended
	}
}

// lateRecords holds the acceptance time of the oldest execution that was recorded late.
type lateRecords struct {
	mu     sync.Mutex
	oldest time.Time // zero: there are none
}

func (l *lateRecords) add(accepted time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.oldest.IsZero() || accepted.Before(l.oldest) {
		l.oldest = accepted
	}
}

// take returns the oldest time, and forgets it.
func (l *lateRecords) take() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.oldest = time.Time{} }()
	return l.oldest
}

// NoteRecordedLate makes the next search of EndLostExecutions go back to the given acceptance time.
// Call it for an execution that was recorded after a search had already passed that time.
func (r *Recorder) NoteRecordedLate(accepted time.Time) { r.lateRecords.add(accepted) }
