package recorder

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// arrivalBuffer holds the messages that have arrived in this process and are not recorded yet:
// those that wait for the next batch, and those of the batch that is being recorded. It is safe for
// concurrent use.
type arrivalBuffer struct {
	mu           sync.Mutex
	waiting      []arrival
	waitingBytes int // total length of the bodies in waiting
	currentBatch []arrival
	closed       bool // no more messages will arrive
	// changed is closed when one of the fields above changes. It is nil while no goroutine is
	// waiting.
	changed chan struct{}
}

// arrival is a message with the time of its arrival.
type arrival struct {
	msg       jetstream.Msg
	arrivedAt time.Time
}

// notifyWaiters wakes the goroutines that wait for a change. It must be called with mu held.
func (a *arrivalBuffer) notifyWaiters() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// changeSignal returns a channel that is closed at the next change. It must be called with mu held.
func (a *arrivalBuffer) changeSignal() <-chan struct{} {
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// add adds messages that have arrived. It never blocks: the caller must call awaitRoom before it
// fetches more.
func (a *arrivalBuffer) add(messages ...jetstream.Msg) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, msg := range messages {
		a.waiting = append(a.waiting, arrival{msg, now})
		a.waitingBytes += len(msg.Data())
	}
	a.notifyWaiters()
}

// close signals that no more messages will arrive. nextBatch then returns the messages that are
// left, and finally nil.
func (a *arrivalBuffer) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.notifyWaiters()
}

// nextBatch waits for messages and returns the ones that have arrived, at most maxBatchMessages. It
// treats the messages returned by the previous call as recorded. It returns nil once close has been
// called and no messages are left.
func (a *arrivalBuffer) nextBatch() []jetstream.Msg {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.currentBatch = nil
	for len(a.waiting) == 0 {
		if a.closed {
			return nil
		}
		moved := a.changeSignal()
		a.mu.Unlock()
		<-moved
		a.mu.Lock()
	}
	n := min(len(a.waiting), maxBatchMessages)
	a.currentBatch, a.waiting = a.waiting[:n:n], a.waiting[n:]
	if len(a.waiting) == 0 {
		a.waiting = nil
	}
	a.notifyWaiters()
	messages := make([]jetstream.Msg, n)
	for i, arrived := range a.currentBatch {
		messages[i] = arrived.msg
		a.waitingBytes -= len(arrived.msg.Data())
	}
	return messages
}

// awaitRoom waits until the waiting messages no longer fill a batch (maxBatchMessages messages or
// maxBatchBytes), or until the context is done.
func (a *arrivalBuffer) awaitRoom(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for (len(a.waiting) >= maxBatchMessages || a.waitingBytes >= maxBatchBytes) &&
		ctx.Err() == nil {
		moved := a.changeSignal()
		a.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
}

// arrivedBefore returns the messages that arrived before t and are not recorded yet.
func (a *arrivalBuffer) arrivedBefore(t time.Time) (messages []jetstream.Msg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, list := range [][]arrival{a.currentBatch, a.waiting} {
		for _, a := range list {
			if a.arrivedAt.Before(t) {
				messages = append(messages, a.msg)
			}
		}
	}
	return messages
}

// extendAckWaits sends heartbeats for messages that wait for a slow database, so that the server
// does not redeliver them. While the database is failing, extendAckWaits sends no heartbeats. The
// server then redelivers the messages to another executor, which may be able to reach the database.
func (r *Recorder) extendAckWaits(ctx context.Context, arrived *arrivalBuffer) {
	every := r.timings.consumerAckWait / 4
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if r.databaseHealth.isFailing(recordingLoop) {
				continue
			}
			for _, msg := range arrived.arrivedBefore(now.Add(-every)) {
				// A lost heartbeat, or one that is sent after the acknowledgement, does no harm.
				_ = msg.InProgress()
			}
		}
	}
}
