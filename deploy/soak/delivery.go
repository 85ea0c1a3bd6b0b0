package soak

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// delivery holds all the answers that a sender got to one delivery.
type delivery struct {
	// marker identifies the delivery in the body; it is also the delivery ID, if there is one.
	marker string
	hasID  bool

	began, ended time.Time
	executions   []string // distinct executions in the answers
	originals    int      // answers without deduplicated
	repeats      int      // answers with deduplicated
	refused      int      // answers that refused the request
	unheard      int      // requests that may have arrived, without an answer
	always       bool     // its workflow is active all the time
	clear        bool     // when the first answer came, no earlier request could have been stored
	early        bool     // clear is true, and the first answer was deduplicated

	// refusedForGood is the status and code of an answer after which a sender does not try again,
	// though always is true. "" means that there was none.
	refusedForGood string
}

// ledger holds what each sender was answered.
type ledger struct {
	mu         sync.Mutex
	deliveries map[string]*delivery
	totals     totals
}

// totals holds counts of requests.
type totals struct {
	sent         int
	acknowledged int
	deduplicated int
	refused      map[string]int // counts of refused requests, by status and code
	errors       map[string]int // counts of requests without an answer, by the kind of error
}

func newLedger() *ledger {
	return &ledger{
		deliveries: map[string]*delivery{},
		totals:     totals{refused: map[string]int{}, errors: map[string]int{}},
	}
}

func (b *ledger) addDelivery(marker string, hasID bool) *delivery {
	d := &delivery{marker: marker, hasID: hasID, began: time.Now(), clear: true}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliveries[marker] = d
	return d
}

// countSent counts a request that goes out.
func (b *ledger) countSent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.sent++
}

// accepted notes an answer 200.
func (b *ledger) accepted(d *delivery, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.acknowledged++
	d.ended = time.Now()
	if d.clear && a.Deduplicated {
		d.early = true
	}
	d.clear = false
	if !slices.Contains(d.executions, a.ExecutionID) {
		d.executions = append(d.executions, a.ExecutionID)
	}
	if a.Deduplicated {
		d.repeats++
		b.totals.deduplicated++
	} else {
		d.originals++
	}
}

// noteRefusal notes an answer that refuses a request. final means that the sender does not try
// again.
func (b *ledger) noteRefusal(d *delivery, code string, final bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if final && d.always {
		d.refusedForGood = code
	}
	b.totals.refused[code]++
	d.ended = time.Now()
	d.refused++
	d.clear = false // a message may have been stored before the request was refused
}

// noteFailure notes a request that got no answer. If the connection was never made, nothing was
// sent.
func (b *ledger) noteFailure(d *delivery, what string, neverMade bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.errors[what]++
	d.ended = time.Now()
	if !neverMade {
		d.unheard++
		d.clear = false
	}
}

// markConcurrent notes that a delivery is sent twice at the same time, so that either request may
// be the first.
func (b *ledger) markConcurrent(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.clear = false
}

// soFar returns a copy of the totals.
func (b *ledger) soFar() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.totals
	t.refused, t.errors = maps.Clone(t.refused), maps.Clone(t.errors)
	return t
}
