package soak

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
)

// delivery counts and summarizes all responses that a sender got for one delivery.
type delivery struct {
	// marker is a unique text in the request's body, which identifies the delivery in the stream.
	// If hasID is true, it is also the delivery ID.
	marker string
	hasID  bool

	began, ended        time.Time
	executionIDs        []string // distinct execution IDs in the responses
	originals           int      // accepted responses that were not marked as deduplicated
	repeats             int      // accepted responses that were marked as deduplicated
	refusals            int      // responses that refused the request
	unanswered          int      // requests that may have arrived but got no response
	alwaysActive        bool     // whether the delivery's workflow is active all the time
	cannotBeStoredYet   bool     // whether no request sent so far can have been stored
	wronglyDeduplicated bool     // whether a response was wrongly marked as deduplicated

	// permanentRefusal is the status and error code of a permanent refusal, after which a sender
	// does not retry, or "" if there was none. It is set only if the delivery's workflow is active
	// all the time, because otherwise such a refusal is correct.
	permanentRefusal string
}

// ledger records the responses that all senders got.
type ledger struct {
	mu         sync.Mutex
	deliveries map[string]*delivery // keyed by marker
	totals     requestTotals
}

// requestTotals counts the requests of all senders, by outcome.
type requestTotals struct {
	sent          int
	acknowledged  int
	deduplicated  int
	refusedByCode map[string]int // number of refused requests, by status and code
	errorsByKind  map[string]int // number of requests without a response, by kind of error
}

func newLedger() *ledger {
	return &ledger{
		deliveries: map[string]*delivery{},
		totals:     requestTotals{refusedByCode: map[string]int{}, errorsByKind: map[string]int{}},
	}
}

func (b *ledger) addDelivery(marker string, hasID bool) *delivery {
	d := &delivery{marker: marker, hasID: hasID, began: time.Now(), cannotBeStoredYet: true}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliveries[marker] = d
	return d
}

// countSent counts a request that is about to be sent.
func (b *ledger) countSent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.sent++
}

// recordAccepted records a response with status 200. If the response was marked as deduplicated
// although no earlier request can have been stored, recordAccepted sets wronglyDeduplicated.
func (b *ledger) recordAccepted(d *delivery, a deliver.Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.acknowledged++
	d.ended = time.Now()
	if d.cannotBeStoredYet && a.Deduplicated {
		d.wronglyDeduplicated = true
	}
	d.cannotBeStoredYet = false
	if !slices.Contains(d.executionIDs, a.ExecutionID) {
		d.executionIDs = append(d.executionIDs, a.ExecutionID)
	}
	if a.Deduplicated {
		d.repeats++
		b.totals.deduplicated++
	} else {
		d.originals++
	}
}

// recordRefusal records a response that refuses a request. code is its status and error code, and
// final is true if the sender does not retry after it.
func (b *ledger) recordRefusal(d *delivery, code string, final bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if final && d.alwaysActive {
		d.permanentRefusal = code
	}
	b.totals.refusedByCode[code]++
	d.ended = time.Now()
	d.refusals++
	d.cannotBeStoredYet = false // a message may have been stored before the request was refused
}

// recordNoResponse records a request for d that got no response. what is the kind of error under
// which the totals count it. neverConnected means that no connection was established, so that
// nothing was sent.
func (b *ledger) recordNoResponse(d *delivery, what string, neverConnected bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.errorsByKind[what]++
	d.ended = time.Now()
	if !neverConnected {
		d.unanswered++
		d.cannotBeStoredYet = false
	}
}

// markConcurrent must be called before two requests for the same delivery are sent at the same
// time. Whichever response arrives first may then be marked as deduplicated, which is not reported
// as a false repeat.
func (b *ledger) markConcurrent(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.cannotBeStoredYet = false
}

// currentTotals returns a copy of the totals.
func (b *ledger) currentTotals() requestTotals {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.totals
	t.refusedByCode, t.errorsByKind = maps.Clone(t.refusedByCode), maps.Clone(t.errorsByKind)
	return t
}
