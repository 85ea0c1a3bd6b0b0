package recorder

import (
	"sync"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	// A search reads executions in windows of acceptance times. One query reads all executions of a
	// window, ended or not: an index of the unfinished ones would have to be updated with every
	// step of every execution. The first window has the length firstLostWindow. The next window is
	// shorter if a query takes longer than slowLostQueryDuration, and longer if it takes less than
	// a tenth of that, but always between minLostWindow and maxLostWindow.
	maxLostWindow         = 24 * time.Hour
	minLostWindow         = time.Second
	firstLostWindow       = 10 * time.Minute
	slowLostQueryDuration = time.Second
	// lostSearchOverlap is how far a search goes back into the acceptance times that the previous
	// search has covered. It finds executions there that the previous search has missed, because
	// executions are not recorded exactly in the order of acceptance, and the clocks of the
	// ingresses differ.
	lostSearchOverlap = time.Hour
	// fullSearchInterval is how often a search reads all executions.
	fullSearchInterval = 24 * time.Hour
)

// lostSearch is the state of a search for executions that no runner will end. A search goes from
// the newest executions to the oldest, because executions that a power failure has lost are among
// the newest. It usually stops at the oldest execution that the previous search found unfinished,
// because all older ones have ended. Every fullSearchInterval, and after the recorder's consumers
// have been rewound, a search reads all executions.
type lostSearch struct {
	lowerBound time.Time // acceptance time at which the search stops; zero means no limit
	upperBound time.Time // acceptance time at which the search starts; zero: it has not begun
	readDownTo time.Time // acceptance time down to which the search has read
	// acceptance time of the oldest unfinished execution; zero: none found
	oldestUnfinished time.Time
	lastFullSearch   time.Time // when the last search of all executions began
	windowLength     time.Duration
	// unreadableStreams holds the names of the streams that could not be read at some point of the
	// search. Executions whose start messages may be in these streams were ignored.
	unreadableStreams map[string]bool
	skippingConsumers []SkippingConsumer // result of Config.SkippingConsumers when the search began
}

// begin begins the next search. late is zero, or the acceptance time of the oldest execution that
// was recorded too late for the previous search to find it. The new search goes back at least to
// late.
func (p *lostSearch) begin(now, late time.Time) {
	p.upperBound, p.readDownTo, p.oldestUnfinished = time.Time{}, time.Time{}, time.Time{}
	p.unreadableStreams = map[string]bool{}
	if !late.IsZero() && late.Before(p.lowerBound) {
		p.lowerBound = late
	}
	if now.Sub(p.lastFullSearch) >= fullSearchInterval {
		p.lowerBound, p.lastFullSearch = time.Time{}, now
	}
}

// beginFull begins a search that reads all executions.
func (p *lostSearch) beginFull(now time.Time) {
	p.lastFullSearch = time.Time{}
	p.begin(now, time.Time{})
}

// nextWindow returns the next window to read. newest is the acceptance time of the newest execution
// that the search has not read yet. The window ends just after newest, so that times without
// executions are skipped.
func (p *lostSearch) nextWindow(newest time.Time) store.RecordFilter {
	window := store.RecordFilter{
		Since: newest.Add(-p.windowLength), Until: newest.Add(time.Millisecond),
	}
	if window.Since.Before(p.lowerBound) {
		window.Since = p.lowerBound
	}
	if window.Until.After(p.readDownTo) {
		window.Until = p.readDownTo
	}
	return window
}

// noteUnfinished notes the acceptance time of an execution that has not ended.
func (p *lostSearch) noteUnfinished(accepted time.Time) {
	if p.oldestUnfinished.IsZero() || accepted.Before(p.oldestUnfinished) {
		p.oldestUnfinished = accepted
	}
}

// adjustWindowLength makes the next window shorter if a query was slow or failed, and longer if it
// was fast.
func (p *lostSearch) adjustWindowLength(took time.Duration, err error) {
	switch {
	case err != nil || took > slowLostQueryDuration:
		p.windowLength = max(p.windowLength/2, minLostWindow)
	case took < slowLostQueryDuration/10:
		p.windowLength = min(p.windowLength*2, maxLostWindow)
	}
}

// end ends a search and sets the acceptance time at which the next search stops. Searches run
// backwards in time. If a stream could not be read, the next search goes as far back as this one.
func (p *lostSearch) end() {
	if len(p.unreadableStreams) > 0 {
		return
	}
	p.lowerBound = p.upperBound.Add(-lostSearchOverlap)
	if !p.oldestUnfinished.IsZero() && p.oldestUnfinished.Before(p.lowerBound) {
		p.lowerBound = p.oldestUnfinished
	}
}

// oldestLateAcceptance collects the acceptance times of executions that were recorded so late that
// searches may already have passed these times. It keeps only the oldest one, because the next
// search then goes back at least that far.
type oldestLateAcceptance struct {
	mu     sync.Mutex
	oldest time.Time // zero: there are none
}

func (l *oldestLateAcceptance) add(accepted time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.oldest.IsZero() || accepted.Before(l.oldest) {
		l.oldest = accepted
	}
}

// take returns the oldest time that was added since the last call of take, or zero if there is
// none.
func (l *oldestLateAcceptance) take() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.oldest = time.Time{} }()
	return l.oldest
}

// NoteRecordedLate makes the next search of EndLostExecutions go back to the given acceptance time.
// Call it for an execution that was recorded after a search had already passed that time.
func (r *Recorder) NoteRecordedLate(accepted time.Time) { r.oldestLateAcceptance.add(accepted) }
