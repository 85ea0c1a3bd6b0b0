package registry

import (
	"sync"
	"sync/atomic"
	"time"
)

// Place is the place where the starts of a queue are stored.
type Place uint32

// These are the places.
const (
	PlaceShared Place = iota // the stream that all queues share
	PlaceOwn                 // the queue's own stream
	PlaceClosed              // none, for seconds at most
)

// These are the limits of the time for which nothing of a queue, or of a workflow, is accepted
// while delivery IDs are copied. An executor ends it within ClosedFor, or gives up. If the executor
// is killed and no other one ends it, then from reopenAfter on everything goes where it went
// before. That is safe, because the later of the two cannot be overlooked: an executor that has
// copied everything has stored the new place within ClosedFor, and a process that answers requests
// has applied everything that was stored longer ago than its lease is valid, which is 2 s.
const (
	ClosedFor   = 1800 * time.Millisecond
	reopenAfter = 4 * time.Second
)

// clock returns a monotonic time in nanoseconds that is never 0.
func clock() int64 { return int64(time.Since(origin)) + 1 }

var origin = time.Now() //nolint:gochecknoglobals // the beginning of the monotonic clock

// queueDoor is the place of one queue, and the number of requests that are storing in it. A request
// that enters reads the place after it was counted. A change of the place is in force when the
// requests that were counted before it have left.
type queueDoor struct {
	place  atomic.Uint32 // a Place
	before atomic.Uint32 // the place before it was closed
	closed atomic.Int64  // clock at which the queue was closed; 0 means that it is open
	hasOwn atomic.Bool   // the queue has an own stream, which may hold earlier starts

	epoch  atomic.Uint32
	inside [2]atomic.Int64 // number of requests by the epoch's lowest bit
	left   chan struct{}   // gets a value when the last request of an epoch leaves
	drain  sync.Mutex      // held while one epoch ends
}

func newQueueDoor() *queueDoor { return &queueDoor{left: make(chan struct{}, 1)} }

// set sets the place by the queue's record. It reports whether the place is another one.
func (q *queueDoor) set(record *Queue) (changed bool) {
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
		q.closed.Store(clock())
	} else {
		q.closed.Store(0)
	}
	q.place.Store(uint32(place))
	return true
}

// now returns the place at present.
func (q *queueDoor) now() Place {
	place := Place(q.place.Load())
	if place == PlaceClosed && hasReopened(q.closed.Load()) {
		return Place(q.before.Load())
	}
	return place
}

// hasReopened reports whether a door that was closed at a time is open again, because no executor
// has ended the copying.
func hasReopened(closed int64) bool { return closed != 0 && clock()-closed > int64(reopenAfter) }

// enter counts a request.
func (q *queueDoor) enter() (epoch uint32) {
	for {
		epoch = q.epoch.Load()
		q.inside[epoch&1].Add(1)
		if q.epoch.Load() == epoch {
			return epoch
		}
		q.leave(epoch)
	}
}

func (q *queueDoor) leave(epoch uint32) {
	if q.inside[epoch&1].Add(-1) == 0 && q.epoch.Load() != epoch {
		select {
		case q.left <- struct{}{}:
		default:
		}
	}
}

// empty reports whether no request is inside.
func (q *queueDoor) empty() bool { return q.inside[0].Load() == 0 && q.inside[1].Load() == 0 }

// await waits until all requests that are inside have left.
func (q *queueDoor) await() {
	q.drain.Lock()
	defer q.drain.Unlock()
	select {
	case <-q.left: // a value that is left over from an earlier epoch
	default:
	}
	epoch := q.epoch.Add(1) - 1
	for q.inside[epoch&1].Load() > 0 {
		<-q.left
	}
}

// door decides where the starts of one workflow are stored.
type door struct {
	queue *queueDoor
	// closed is the clock at which the workflow was closed. 0 means that it is open; moved means
	// that a later record of the workflow has another queue, or is closed.
	closed atomic.Int64
}

const moved = -1

func (d *door) init(queue *queueDoor, closed bool) {
	d.queue = queue
	if closed {
		d.closed.Store(clock())
	}
}

// replace marks the door as moved if the next one differs. It reports whether it did.
func (d *door) replace(next *door) (differs bool) {
	if d.queue == next.queue && (d.closed.Load() != 0) == (next.closed.Load() != 0) {
		return false
	}
	d.closed.Store(moved)
	return true
}

// Pass is the permission to store one start of a workflow.
type Pass struct {
	Place Place // where it is to be stored; PlaceClosed means that it must be refused for now
	// HasOwn means that the queue has its own stream, in which starts may be whatever the place is.
	HasOwn bool
	// Moved means that the workflow has another record, which must be looked up.
	Moved bool
	queue *queueDoor
	epoch uint32
}

// Enter returns the place where a start or a rejection of the workflow is to be stored. Leave must
// be called when its storing has ended.
func (w *Webhook) Enter() Pass {
	q := w.door.queue
	if q == nil {
		return Pass{}
	}
	p := Pass{queue: q, epoch: q.enter(), HasOwn: q.hasOwn.Load()}
	switch closed := w.door.closed.Load(); {
	case closed == moved:
		p.Place, p.Moved = PlaceClosed, true
	case closed != 0 && !hasReopened(closed):
		p.Place = PlaceClosed
	default:
		p.Place = q.now()
	}
	return p
}

// Leave marks that the start of the pass was stored, or will not be.
func (p Pass) Leave() {
	if p.queue != nil {
		p.queue.leave(p.epoch)
	}
}

// queue returns the door of a queue.
func (t *tables) queue(name string) *queueDoor {
	q := t.queues[name]
	if q == nil {
		q = newQueueDoor()
		t.queues[t.shared(name)] = q
	}
	return q
}

// PlaceOf returns the place of a queue's starts at present. It is for messages; what is stored
// needs a Pass.
func (s *Snapshot) PlaceOf(queue string) Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.current.Load().queues[queue]; q != nil {
		return q.now()
	}
	return PlaceShared
}

// OwnStreams returns the queues whose starts are stored in their own streams.
func (s *Snapshot) OwnStreams() (queues []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, q := range s.current.Load().queues {
		if q.now() == PlaceOwn {
			queues = append(queues, name)
		}
	}
	return queues
}

// drains holds the changes that are applied, but not in force yet.
type drains struct {
	mu      sync.Mutex
	pending map[uint64]int // number of queues by revision
	settled chan struct{}  // closed and replaced when a change is in force
}

// add waits in the background until a change of a queue's place is in force.
func (d *drains) add(q *queueDoor, revision uint64) {
	if q.empty() {
		return
	}
	d.mu.Lock()
	if d.pending == nil {
		d.pending, d.settled = map[uint64]int{}, make(chan struct{})
	}
	d.pending[revision]++
	d.mu.Unlock()
	go func() {
		q.await()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.pending[revision]--; d.pending[revision] == 0 {
			delete(d.pending, revision)
		}
		close(d.settled)
		d.settled = make(chan struct{})
	}()
}

func (d *drains) unsettled() (since uint64, settled <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for revision := range d.pending {
		if since == 0 || revision < since {
			since = revision
		}
	}
	return since, d.settled
}
