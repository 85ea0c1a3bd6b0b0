package recorder

import "time"

const (
	// maxLostWindow, minLostWindow and firstLostWindow are the longest, the shortest and the first
	// window of time in which one query looks for executions that have not ended. No index finds
	// them: it would be written to at each step of every execution. So a query reads all
	// executions of its window. A window that takes longer than slowLostWindow is followed by a
	// shorter one, and a window that takes a tenth of that by a longer one.
	maxLostWindow   = 24 * time.Hour
	minLostWindow   = time.Second
	firstLostWindow = time.Hour
	slowLostWindow  = time.Second
	// lostSearchOverlap is how much of what a search has read the next one reads again. An
	// execution can be recorded later than one that was accepted after it, and the clocks of the
	// ingresses differ.
	lostSearchOverlap = time.Hour
	// fullSearchInterval is how often a search reads all executions.
	fullSearchInterval = 24 * time.Hour
)

// lostPass is one search for executions that no runner will end, and where the next one begins. A
// search reads the executions from the oldest to the newest, in windows of their acceptance times.
// It begins with the oldest execution that had not ended in the search before: later ones alone can
// have been recorded since, or have not ended. When the recorder's consumers were moved back, and
// every fullSearchInterval, it begins with the oldest execution.
type lostPass struct {
	first   time.Time // where the search began
	next    time.Time // where it goes on after a failure
	unended time.Time // when the oldest execution that has not ended was accepted; zero: none found
	full    time.Time // when the last search of all executions began
	window  time.Duration
}

// begin begins the next search.
func (p *lostPass) begin(now time.Time) {
	if now.Sub(p.full) >= fullSearchInterval {
		p.beginFull(now)
		return
	}
	p.first, p.unended = p.next, time.Time{}
}

// beginFull begins a search of all executions.
func (p *lostPass) beginFull(now time.Time) {
	p.first, p.next, p.unended, p.full = time.Time{}, time.Time{}, time.Time{}, now
}

// noteUnended notes when an execution was accepted that has not ended.
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

// end ends a search of the executions that were accepted before until. complete reports whether
// every stream was read: executions of the others may be recorded later.
func (p *lostPass) end(until time.Time, complete bool) {
	p.next = until.Add(-lostSearchOverlap)
	if !p.unended.IsZero() && p.unended.Before(p.next) {
		p.next = p.unended
	}
	if !complete {
		p.next = p.first
	}
}
