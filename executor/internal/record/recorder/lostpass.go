package recorder

import (
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	// A search reads the executions in windows of acceptance times, one query per window. The query
	// reads all executions of the window, because there is no index of unfinished executions: every
	// step of every execution would have to write to it. The first window has the length
	// firstLostWindow. A query that takes longer than slowLostWindow makes the next window shorter,
	// and one that takes less than a tenth of that makes it longer, between minLostWindow and
	// maxLostWindow.
	maxLostWindow   = 24 * time.Hour
	minLostWindow   = time.Second
	firstLostWindow = 10 * time.Minute
	slowLostWindow  = time.Second
	// lostSearchOverlap is the period, in acceptance times, that a search reads again although the
	// previous search has read it. An execution can be recorded later than one that was accepted
	// after it, and the clocks of the ingresses differ.
	lostSearchOverlap = time.Hour
	// fullSearchInterval is how often a search reads all executions.
	fullSearchInterval = 24 * time.Hour
)

// lostPass is the state of a search for executions that no runner will end. A search goes from the
// newest to the oldest executions, because those that a power failure has lost are among the
// newest. It usually stops at the oldest execution that the previous search found unfinished,
// because all older ones have ended. It reads all executions every fullSearchInterval, and after
// the recorder's consumers have been rewound.
type lostPass struct {
	since   time.Time // acceptance time at which the search stops; zero: it reads all
	until   time.Time // acceptance time at which the search starts; zero: it has not begun
	next    time.Time // acceptance time down to which the search has read
	unended time.Time // acceptance time of the oldest unfinished execution; zero: none found
	full    time.Time // when the last search of all executions began
	window  time.Duration
	// unread holds the names of the streams that could not be read at some point of the search. The
	// search has ignored the executions whose start messages may be in these streams.
	unread  map[string]bool
	skipped []SkippedConsumer // result of Config.SkippedConsumers when the search began
}

// begin begins the next search. late is the acceptance time of the oldest execution that was
// recorded after the previous search had passed that time; the new search goes back at least that
// far. Zero means that there is none.
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

// windowOf returns the next window to read. newest is the acceptance time of the newest execution
// that the search has not read yet, so the window skips times without executions.
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

// noteQuery adapts the length of the next window to the duration of a query. A failed query counts
// as slow.
func (p *lostPass) noteQuery(took time.Duration, err error) {
	switch {
	case err != nil || took > slowLostWindow:
		p.window = max(p.window/2, minLostWindow)
	case took < slowLostWindow/10:
		p.window = min(p.window*2, maxLostWindow)
	}
}

// end ends a search, and sets where the next one stops. If a stream could not be read, the next
// search goes back as far as this one.
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

// take returns the oldest time and resets it, so that the next call returns zero unless there are
// new late records.
func (l *lateRecords) take() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.oldest = time.Time{} }()
	return l.oldest
}

// NoteRecordedLate makes the next search of EndLostExecutions go back to the given acceptance time.
// Call it for an execution that was recorded after a search had already passed that time.
func (r *Recorder) NoteRecordedLate(accepted time.Time) { r.lateRecords.add(accepted) }
