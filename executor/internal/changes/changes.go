// Package changes tells watchers that execution records changed, whichever executor recorded them. A watch that may have missed a
// change ends, so that its client looks into the store.
package changes

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

const subject = "hookstart.executions.changed"

// maxIDs keeps a message well below the server's limit.
const maxIDs = 2000

// flushTimeout is how long the server may take to answer after a reconnect.
const flushTimeout = 2 * time.Second

// watcherBuffer is how many changes a watcher may be behind before it is cut off.
const watcherBuffer = 64

// Changes spreads the IDs of changed records. It is safe for concurrent use.
type Changes struct {
	nc  *nats.Conn
	sub *nats.Subscription

	stopping sync.Once
	stop     chan struct{}
	done     chan struct{}

	mu       sync.Mutex
	watchers map[chan Batch]struct{}
	past     past
	last     time.Time // the newest batch's
}

// New listens for changes on nc.
func New(nc *nats.Conn) (*Changes, error) {
	c := &Changes{nc: nc, watchers: map[chan Batch]struct{}{}, past: past{since: now()}, stop: make(chan struct{}), done: make(chan struct{})}
	var err error
	if c.sub, err = nc.Subscribe(subject, c.hear); err != nil {
		return nil, fmt.Errorf("listen for changes: %w", err)
	}
	go c.endAfterGaps(nc.StatusChanged(nats.CONNECTED), c.sub.StatusChanged(nats.SubscriptionSlowConsumer))
	return c, nil
}

// endAfterGaps ends every watch when changes may have been missed: after a lost connection, and when this process was too slow.
func (c *Changes) endAfterGaps(connected <-chan nats.Status, slow <-chan nats.SubStatus) {
	defer close(c.done)
	for {
		select {
		case <-c.stop:
			return
		case <-connected:
			// Whoever watches again after this does so behind a subscription that the server has.
			_ = c.nc.FlushTimeout(flushTimeout)
		case _, open := <-slow:
			if !open {
				slow = nil // unsubscribed
				continue
			}
		}
		c.endAll()
	}
}

// Stop ends listening, and every watch. It may be called again.
func (c *Changes) Stop() {
	c.stopping.Do(func() {
		close(c.stop)
		<-c.done
		_ = c.sub.Unsubscribe()
		c.endAll()
	})
}

func (c *Changes) endAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past.begin(c.next())
	for w := range c.watchers {
		delete(c.watchers, w)
		close(w)
	}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// next is a time after all before, in whole microseconds. It is called with mu held.
func (c *Changes) next() time.Time {
	at := now()
	if !at.After(c.last) {
		at = c.last.Add(time.Microsecond)
	}
	c.last = at
	return at
}

// Tell says that records changed. When that fails, the watches of this process end: only it can know.
func (c *Changes) Tell(ids []string) error {
	err := c.tell(ids)
	if err != nil {
		c.endAll()
	}
	return err
}

func (c *Changes) tell(ids []string) error {
	for len(ids) > 0 {
		n := min(len(ids), maxIDs)
		data, err := proto.Marshal(&hookstartv1.ExecutionsChanged{ExecutionIds: ids[:n]})
		if err == nil {
			err = c.nc.Publish(subject, data)
		}
		if err != nil {
			return fmt.Errorf("tell of changes: %w", err)
		}
		ids = ids[n:]
	}
	return nil
}

// Watching is a watch.
type Watching struct {
	// Since is when it began: what is watched after that is what Changed gets.
	Since time.Time
	// Before are the batches since the requested time, and a few older ones: the clocks of processes differ.
	Before []Batch
	// Complete means that nothing is missing in Before.
	Complete bool
	// Changed gets all further ones. It is closed when changes may have been missed, or when Changes stops.
	Changed <-chan Batch
	// Cancel must be called.
	Cancel func()
}

// Watch watches from now on, or, unless the time is zero, from the batch after one that a watch got, here or at
// another process.
func (c *Changes) Watch(after time.Time) Watching {
	w := make(chan Batch, watcherBuffer)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[w] = struct{}{}
	watching := Watching{Since: c.next(), Changed: w, Complete: true, Cancel: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, w)
	}}
	if !after.IsZero() {
		watching.Before, watching.Complete = c.past.after(after)
	}
	return watching
}

func (c *Changes) hear(msg *nats.Msg) {
	var changed hookstartv1.ExecutionsChanged
	if proto.Unmarshal(msg.Data, &changed) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := Batch{At: c.next(), IDs: changed.GetExecutionIds()}
	c.past.add(batch)
	for w := range c.watchers {
		select {
		case w <- batch:
		default:
			delete(c.watchers, w)
			close(w)
		}
	}
}
