package registry

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// StoreTarget identifies where the start messages of a queue are stored at the moment.
type StoreTarget uint32

// The places where the start messages of a queue may be stored:
const (
	StoreTargetShared StoreTarget = iota // the stream that all queues share
	StoreTargetOwn                       // the queue's own stream
	StoreTargetClosed                    // the queue is closed, for a few seconds at most
)

// A queue or workflow is closed while its last delivery IDs are being copied to another stream: an
// ingress then accepts nothing for it. These constants limit how long it stays closed.
//
// The executor that copies the IDs stores the new target, or gives up, within MaxGateClosedTime
// after the queue or workflow was closed. MaxGateClosedTime must exceed leaseDuration of package
// consistency (2 s), because the closing alone can take that long: if a process in a cluster has
// fallen silent, the closing is confirmed only once the lease of that process has expired.
//
// If that executor is killed and no other one takes over, each ingress opens the queue or workflow
// again after gateReopenTimeout, and stores messages where it stored them before. It cannot miss a
// new target that the executor stored just before it was killed: gateReopenTimeout exceeds
// MaxGateClosedTime + leaseDuration, and an ingress with a valid lease has applied every change
// that was stored more than leaseDuration ago.
const (
	MaxGateClosedTime = 2300 * time.Millisecond
	gateReopenTimeout = 4500 * time.Millisecond
)

// monotonicNanos returns the time since monotonicOrigin in nanoseconds, plus 1. The 1 keeps the
// result from being 0, which in a closedAtNanos field means that the queue or workflow is open.
func monotonicNanos() int64 { return int64(time.Since(monotonicOrigin)) + 1 }

var monotonicOrigin = time.Now() //nolint:gochecknoglobals // the beginning of the monotonic clock

// queueGate holds the StoreTarget of one queue, and counts the requests that are storing something
// for the queue. Each request is counted before it reads the target. So after a change of the
// target, the old one is out of use once all requests that were counted before the change have
// finished.
type queueGate struct {
	target              atomic.Uint32 // a StoreTarget
	targetBeforeClosing atomic.Uint32 // the target before the queue was closed
	closedAtNanos       atomic.Int64  // monotonicNanos when the queue was closed; 0 means open
	hasOwnStream        atomic.Bool   // the queue has its own stream, which may hold messages

	epoch           atomic.Uint32
	runningRequests [2]atomic.Int64 // requests between enter and leave, by the epoch's lowest bit
	epochDrained    chan struct{}   // receives a value when no request of an earlier epoch is left
	drainMu         sync.Mutex      // held while an epoch is being drained
}

func newQueueGate() *queueGate { return &queueGate{epochDrained: make(chan struct{}, 1)} }

// applyQueue sets the target according to the queue's record. It reports whether the target
// changed.
func (q *queueGate) applyQueue(record *Queue) (changed bool) {
	q.hasOwnStream.Store(record.Stream != nil)
	target := record.StoreTarget()
	was := StoreTarget(q.target.Load())
	if target == was {
		return false
	}
	if target == StoreTargetClosed {
		before := StoreTargetShared
		if record.Stream.Phase == QueuePhaseClosedMovingToShared {
			before = StoreTargetOwn
		}
		q.targetBeforeClosing.Store(uint32(before))
		q.closedAtNanos.Store(monotonicNanos())
	} else {
		q.closedAtNanos.Store(0)
	}
	q.target.Store(uint32(target))
	return true
}

// currentTarget returns the target that is in effect now. If the queue was closed more than
// gateReopenTimeout ago, it counts as open again, and currentTarget returns targetBeforeClosing.
func (q *queueGate) currentTarget() StoreTarget {
	target := StoreTarget(q.target.Load())
	if target == StoreTargetClosed && hasReopened(q.closedAtNanos.Load()) {
		return StoreTarget(q.targetBeforeClosing.Load())
	}
	return target
}

// hasReopened reports whether a queue or workflow counts as open again because it was closed more
// than gateReopenTimeout ago. closedAtNanos is the result of monotonicNanos when it was closed; 0
// means that it is not closed, and hasReopened then returns false.
func hasReopened(closedAt int64) bool {
	return closedAt != 0 && monotonicNanos()-closedAt > int64(gateReopenTimeout)
}

// enter counts a request as running. Call it before the request reads the target, and call leave
// with the returned epoch when the request has finished. The epoch lets drain tell earlier
// requests from later ones.
func (q *queueGate) enter() (epoch uint32) {
	for {
		epoch = q.epoch.Load()
		q.runningRequests[epoch&1].Add(1)
		if q.epoch.Load() == epoch {
			return epoch
		}
		q.leave(epoch)
	}
}

func (q *queueGate) leave(epoch uint32) {
	if q.runningRequests[epoch&1].Add(-1) == 0 && q.epoch.Load() != epoch {
		select {
		case q.epochDrained <- struct{}{}:
		default:
		}
	}
}

// isIdle reports whether every request that has called enter has also called leave.
func (q *queueGate) isIdle() bool {
	return q.runningRequests[0].Load() == 0 && q.runningRequests[1].Load() == 0
}

// drain waits until all requests counted so far have finished. It starts a new epoch for later
// requests, so it does not wait for them.
func (q *queueGate) drain() {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	select {
	case <-q.epochDrained: // a value left over from an earlier epoch
	default:
	}
	epoch := q.epoch.Add(1) - 1
	for q.runningRequests[epoch&1].Load() > 0 {
		<-q.epochDrained
	}
}

// workflowGate determines where the start messages of one workflow are stored.
type workflowGate struct {
	queue *queueGate
	// closedAtNanos is the result of monotonicNanos when the workflow was closed; 0 means that it
	// is open. closedAtSuperseded means that this gate is no longer in use: the workflow has a
	// later record, the workflow was deleted, or the registry was reloaded.
	closedAtNanos atomic.Int64
}

const closedAtSuperseded = -1

func (g *workflowGate) init(queue *queueGate, closed bool) {
	g.queue = queue
	if closed {
		g.closedAtNanos.Store(monotonicNanos())
	}
}

// supersedeWith marks g as superseded by next, the gate of the workflow's next record. differs
// reports whether the next record changes the queue, or closes or opens the workflow. g is marked
// even if differs is false: a request that holds an old record checks only the gate of that record,
// so it would otherwise miss a later change of the queue or a later closing.
func (g *workflowGate) supersedeWith(next *workflowGate) (differs bool) {
	wasClosed := g.closedAtNanos.Swap(closedAtSuperseded) != 0
	return g.queue != next.queue || wasClosed != (next.closedAtNanos.Load() != 0)
}

// supersede marks g as superseded although there is no next record. Call it when the workflow was
// deleted (it may be created again later) and when the registry was reloaded.
func (g *workflowGate) supersede() { g.closedAtNanos.Store(closedAtSuperseded) }

// StorePermit is the permission to store one start message of a workflow.
type StorePermit struct {
	Target StoreTarget // where to store the message; StoreTargetClosed means nowhere for now
	// HasOwnStream means that the queue has its own stream, which may hold start messages even if
	// Target is not StoreTargetOwn.
	HasOwnStream bool
	// Superseded means that the workflow has a later record or was deleted, or that the registry
	// was reloaded. The caller must look the workflow up again.
	Superseded bool
	queue      *queueGate
	epoch      uint32
}

// AcquirePermit returns a permit that states where to store a start message, or a rejection, for
// the workflow. Changes of the queue's target wait for the permit, so the caller must call Release
// once the message has been stored or could not be stored.
func (w *CompiledWorkflow) AcquirePermit() StorePermit {
	q := w.gate.queue
	if q == nil {
		return StorePermit{}
	}
	p := StorePermit{queue: q, epoch: q.enter(), HasOwnStream: q.hasOwnStream.Load()}
	switch closed := w.gate.closedAtNanos.Load(); {
	case closed == closedAtSuperseded:
		p.Target, p.Superseded = StoreTargetClosed, true
	case closed != 0 && !hasReopened(closed):
		p.Target = StoreTargetClosed
	default:
		p.Target = q.currentTarget()
	}
	return p
}

// Release ends the permit: the message has been stored, or will not be stored. Changes of the
// queue's target then no longer wait for the permit.
func (p StorePermit) Release() {
	if p.queue != nil {
		p.queue.leave(p.epoch)
	}
}

// ensureQueueGate returns the gate of the queue with the given name, and creates it if there is
// none.
func (t *tables) ensureQueueGate(name string) *queueGate {
	q := t.queueGates[name]
	if q == nil {
		q = newQueueGate()
		t.queueGates[t.intern(name)] = q
	}
	return q
}

// StoreTargetOf returns the current target of a queue's start messages. Use it only to show the
// target to people: it may change at any moment. Code that stores a start message needs a
// StorePermit.
func (s *Snapshot) StoreTargetOf(queue string) StoreTarget {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.current.Load().queueGates[queue]; q != nil {
		return q.currentTarget()
	}
	return StoreTargetShared
}

// QueuesStoringInOwnStreams returns the names of the queues whose start messages are stored in
// their own streams.
func (s *Snapshot) QueuesStoringInOwnStreams() (queues []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, q := range s.current.Load().queueGates {
		if q.currentTarget() == StoreTargetOwn {
			queues = append(queues, name)
		}
	}
	return queues
}

// QueuesWithOwnStreams returns the names of the queues that have their own streams. These may hold
// earlier start messages even if new ones are stored in the shared stream. The caller must not
// change the slice.
func (s *Snapshot) QueuesWithOwnStreams() []string { return *s.current.Load().ownStreams.Load() }

// setHasOwnStream adds the queue to the list that QueuesWithOwnStreams returns, or removes it if
// hasOwnStream is false.
func (t *tables) setHasOwnStream(queue string, hasOwnStream bool) {
	queues := *t.ownStreams.Load()
	if slices.Contains(queues, queue) == hasOwnStream {
		return
	}
	if hasOwnStream {
		queues = append(slices.Clone(queues), t.intern(queue))
	} else {
		queues = slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return q == queue })
	}
	t.ownStreams.Store(&queues)
}

// pendingRevisions tracks the revisions that have been applied but are not in force yet, because
// requests that read a queue's previous target are still storing messages there.
type pendingRevisions struct {
	mu                 sync.Mutex
	drainingByRevision map[uint64]int // number of queues still draining, by revision
	queueDrained       chan struct{}  // closed and replaced whenever a queue has drained
}

// trackUntilDrained records that a revision is not in force until all requests that are now storing
// messages for q have finished. It returns immediately; a goroutine waits for the requests.
func (d *pendingRevisions) trackUntilDrained(q *queueGate, revision uint64) {
	if q.isIdle() {
		return
	}
	d.mu.Lock()
	if d.drainingByRevision == nil {
		d.drainingByRevision, d.queueDrained = map[uint64]int{}, make(chan struct{})
	}
	d.drainingByRevision[revision]++
	d.mu.Unlock()
	go func() {
		q.drain()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.drainingByRevision[revision]--; d.drainingByRevision[revision] == 0 {
			delete(d.drainingByRevision, revision)
		}
		close(d.queueDrained)
		d.queueDrained = make(chan struct{})
	}()
}

// firstRevision returns the lowest revision that is not in force yet, or 0 if all are in force.
// settled is closed when that result may have changed. settled may be nil if all revisions are in
// force.
func (d *pendingRevisions) firstRevision() (since uint64, settled <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for revision := range d.drainingByRevision {
		if since == 0 || revision < since {
			since = revision
		}
	}
	return since, d.queueDrained
}
