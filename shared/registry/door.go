package registry

import (
	"sync"
	"sync/atomic"
	"time"
)

// Place identifies where the start messages of a queue are stored.
type Place uint32

// The places where start messages are stored.
const (
	PlaceShared Place = iota // the stream that all queues share
	PlaceOwn                 // the queue's own stream
	PlaceClosed              // in no stream; lasts a few seconds at most
)

// While delivery IDs are being copied, an ingress accepts nothing for the queue or the workflow
// concerned. These constants limit how long that may last. The executor that copies the IDs
// finishes, or gives up, within ClosedFor. If it is killed and no other executor takes over,
// everything is stored where it was before as soon as reopenAfter has passed. That is safe because
// no process can miss a new place: an executor that finishes the copying stores the new place
// within ClosedFor, and a process that answers requests has applied every change that is older than
// its lease, which is valid for 2 s.
const (
	ClosedFor   = 1800 * time.Millisecond
	reopenAfter = 4 * time.Second
)

// monotonicNow returns a monotonic time in nanoseconds. It never returns 0.
func monotonicNow() int64 { return int64(time.Since(origin)) + 1 }

var origin = time.Now() //nolint:gochecknoglobals // the beginning of the monotonic clock

// queuePlace holds the place of one queue, and the number of requests that are storing something
// there. A request is counted before it reads the place. A change of the place is in force once all
// requests that were counted before the change have left.
type queuePlace struct {
	place  atomic.Uint32 // a Place
	before atomic.Uint32 // the place before the queue was closed
	closed atomic.Int64  // clock reading when the queue was closed; 0 means that it is open
	hasOwn atomic.Bool   // the queue has its own stream, which may hold earlier start messages

	epoch  atomic.Uint32
	inside [2]atomic.Int64 // requests inside, indexed by the epoch's lowest bit
	left   chan struct{}   // receives a value when the last request of an epoch leaves
	drain  sync.Mutex      // held while an epoch is being drained
}

func newQueueDoor() *queuePlace { return &queuePlace{left: make(chan struct{}, 1)} }

// setPlace sets the place according to the queue's record. It reports whether the place changed.
func (q *queuePlace) setPlace(record *Queue) (changed bool) {
	q.hasOwn.Store(record.Stream != nil)
	place := record.Place()
	was := Place(q.place.Load())
	if place == was {
		return false
	}
	if place == PlaceClosed {
		before := PlaceShared
		if record.Stream.Phase == ClosedOut {
			before = PlaceOwn
		}
		q.before.Store(uint32(before))
		q.closed.Store(monotonicNow())
	} else {
		q.closed.Store(0)
	}
	q.place.Store(uint32(place))
	return true
}

// currentPlace returns the current place.
func (q *queuePlace) currentPlace() Place {
	place := Place(q.place.Load())
	if place == PlaceClosed && hasReopened(q.closed.Load()) {
		return Place(q.before.Load())
	}
	return place
}

// hasReopened reports whether a queue or workflow that was closed at the given clock reading is
// open again because no executor finished the copying in time.
func hasReopened(
	closed int64,
) bool {
	return closed != 0 && monotonicNow()-closed > int64(reopenAfter)
}

// enter counts a request that is about to read the place. The request must call leave with the
// epoch.
func (q *queuePlace) enter() (epoch uint32) {
	for {
		epoch = q.epoch.Load()
		q.inside[epoch&1].Add(1)
		if q.epoch.Load() == epoch {
			return epoch
		}
		q.leave(epoch)
	}
}

func (q *queuePlace) leave(epoch uint32) {
	if q.inside[epoch&1].Add(-1) == 0 && q.epoch.Load() != epoch {
		select {
		case q.left <- struct{}{}:
		default:
		}
	}
}

// isIdle reports whether no requests are inside.
func (q *queuePlace) isIdle() bool { return q.inside[0].Load() == 0 && q.inside[1].Load() == 0 }

// awaitIdle starts a new epoch and waits until all requests of the previous epoch have called
// leave.
func (q *queuePlace) awaitIdle() {
	q.drain.Lock()
	defer q.drain.Unlock()
	select {
	case <-q.left: // a value left over from an earlier epoch
	default:
	}
	epoch := q.epoch.Add(1) - 1
	for q.inside[epoch&1].Load() > 0 {
		<-q.left
	}
}

// workflowPlace determines where the start messages of one workflow are stored.
type workflowPlace struct {
	queue *queuePlace
	// closed is the clock reading when the workflow was closed; 0 means that it is open. The value
	// moved means that the workflow has a later record, which names another queue or differs in
	// whether the workflow is closed.
	closed atomic.Int64
}

const moved = -1

func (d *workflowPlace) init(queue *queuePlace, closed bool) {
	d.queue = queue
	if closed {
		d.closed.Store(monotonicNow())
	}
}

// replace marks d as moved if next differs from it, and reports whether it does.
func (d *workflowPlace) replace(next *workflowPlace) (differs bool) {
	if d.queue == next.queue && (d.closed.Load() != 0) == (next.closed.Load() != 0) {
		return false
	}
	d.closed.Store(moved)
	return true
}

// StorePermit is the permission to store one start message of a workflow.
type StorePermit struct {
	Place Place // where to store the message; PlaceClosed means refuse it for now
	// HasOwn means that the queue has its own stream, which may hold start messages whatever Place
	// is.
	HasOwn bool
	// Moved means that the workflow has a later record. The caller must look it up again.
	Moved bool
	queue *queuePlace
	epoch uint32
}

// AcquirePermit returns a StorePermit, whose Place is where to store a start message or a rejection
// of the workflow. The caller must call Release when it has finished storing, whether or not that
// succeeded.
func (w *Webhook) AcquirePermit() StorePermit {
	q := w.door.queue
	if q == nil {
		return StorePermit{}
	}
	p := StorePermit{queue: q, epoch: q.enter(), HasOwn: q.hasOwn.Load()}
	switch closed := w.door.closed.Load(); {
	case closed == moved:
		p.Place, p.Moved = PlaceClosed, true
	case closed != 0 && !hasReopened(closed):
		p.Place = PlaceClosed
	default:
		p.Place = q.currentPlace()
	}
	return p
}

// Release marks that the message has been stored, or will not be.
func (p StorePermit) Release() {
	if p.queue != nil {
		p.queue.leave(p.epoch)
	}
}

// queue returns the queuePlace of a queue, and creates it if there is none.
func (t *tables) queue(name string) *queuePlace {
	q := t.queues[name]
	if q == nil {
		q = newQueueDoor()
		t.queues[t.intern(name)] = q
	}
	return q
}

// PlaceOf returns the current place of a queue's start messages. Use it only in messages to people:
// code that stores a start message needs a StorePermit.
func (s *Snapshot) PlaceOf(queue string) Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.current.Load().queues[queue]; q != nil {
		return q.currentPlace()
	}
	return PlaceShared
}

// OwnStreams returns the names of the queues whose start messages are stored in their own streams.
func (s *Snapshot) OwnStreams() (queues []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, q := range s.current.Load().queues {
		if q.currentPlace() == PlaceOwn {
			queues = append(queues, name)
		}
	}
	return queues
}

// pendingMoves tracks the changes that have been applied but are not yet in force.
type pendingMoves struct {
	mu      sync.Mutex
	pending map[uint64]int // number of queues still draining, by revision
	settled chan struct{}  // closed and replaced whenever a queue has drained
}

// awaitMove waits in the background until a change of the queue's place, made by revision, is in
// force.
func (d *pendingMoves) awaitMove(q *queuePlace, revision uint64) {
	if q.isIdle() {
		return
	}
	d.mu.Lock()
	if d.pending == nil {
		d.pending, d.settled = map[uint64]int{}, make(chan struct{})
	}
	d.pending[revision]++
	d.mu.Unlock()
	go func() {
		q.awaitIdle()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.pending[revision]--; d.pending[revision] == 0 {
			delete(d.pending, revision)
		}
		close(d.settled)
		d.settled = make(chan struct{})
	}()
}

// unsettled returns the lowest revision that is not yet in force, or 0 if there is none. It also
// returns a channel that is closed when that may have changed. The channel may be nil if nothing is
// pending.
func (d *pendingMoves) unsettled() (since uint64, settled <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for revision := range d.pending {
		if since == 0 || revision < since {
			since = revision
		}
	}
	return since, d.settled
}
