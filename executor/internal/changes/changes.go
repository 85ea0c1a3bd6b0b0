// Package changes notifies watchers when execution records change, no matter which executor
// recorded the change. If a watcher may have missed a change, the package ends its watch, so that
// the client reads the records again.
//
// Each executor announces its changes in numbered messages, and repeats the last number in
// heartbeats. The other executors therefore notice when a message has not reached them, for example
// because the connection between two NATS servers broke. A stream keeps the announcements of the
// last few minutes. A newly started executor reads them, so a client that reconnects to it misses
// nothing.
package changes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

const subject = "hookstart.executions.changed"

// maxIDsPerMessage is the maximum number of IDs in one message, which keeps messages well below the
// server's size limit.
const maxIDsPerMessage = 2000

// flushTimeout is how long to wait, after a reconnect, for the server to confirm that it has the
// subscription again.
const flushTimeout = 2 * time.Second

// heartbeatInterval is how often a Notifier repeats the number of its last announcement.
const heartbeatInterval = 5 * time.Second

// watcherBufferSize is how many batches can wait for a slow watcher. If there are more, the watch
// ends.
const watcherBufferSize = 64

// StreamName is the name of the stream that holds the announcements of the last few minutes.
const StreamName = "CHANGES"

// Limits of the stream of announcements. Within these limits, the stream holds the announcements of
// the last few minutes even in a busy installation.
const (
	streamMaxAge   = 10 * time.Minute
	streamMaxBytes = 16 << 20
)

// loadTimeout is the maximum time that LoadRecent spends reading the stream at startup.
const loadTimeout = 5 * time.Second

// EnsureStream creates the stream of announcements if it does not exist. The stream is small and
// kept in memory, so it is empty after the restart of a single NATS server. Clients that reconnect
// are then told that they may have missed changes: see Subscription.CatchUpComplete.
func EnsureStream(ctx context.Context, js jetstream.JetStream, replicas int) error {
	_, err := js.Stream(ctx, StreamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: StreamName,
			Description: "hookstart: which executions changed in the last minutes, for those who " +
				"come back to an event stream",
			Subjects:  []string{subject},
			Retention: jetstream.LimitsPolicy,
			Discard:   jetstream.DiscardOld,
			Storage:   jetstream.MemoryStorage,
			Replicas:  replicas,
			MaxAge:    streamMaxAge,
			MaxBytes:  streamMaxBytes,
			// Publishers need no acknowledgement: the executors receive an announcement whether or
			// not the stream stores it.
			NoAck: true,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil // another executor created it first
		}
	}
	return err
}

// Notifier announces changed records to all executors, and distributes their announcements to the
// watchers in this process. It is safe for concurrent use.
type Notifier struct {
	nc  *nats.Conn
	sub *nats.Subscription
	id  string // identifies this Notifier in its announcements

	publishMu         sync.Mutex // held until an announcement has been numbered and published
	announcementCount uint64     // number of announcements so far

	stopOnce sync.Once
	stop     chan struct{}
	done     chan struct{}

	mu            sync.Mutex
	watchers      map[chan Batch]struct{}
	recent        recentBatches
	lastBatchTime time.Time // the last result of nextBatchTime
	// lastAnnouncements maps the ID of each Notifier to the number of the last announcement that
	// this process has received from it.
	lastAnnouncements map[string]uint64
}

// New returns a Notifier that subscribes to announcements on nc.
func New(nc *nats.Conn) (*Notifier, error) { return newNotifier(nc, heartbeatInterval) }

func newNotifier(nc *nats.Conn, heartbeat time.Duration) (*Notifier, error) {
	c := &Notifier{
		nc:                nc,
		id:                rand.Text(),
		lastAnnouncements: map[string]uint64{},
		watchers:          map[chan Batch]struct{}{},
		recent:            recentBatches{completeSince: now()},
		stop:              make(chan struct{}),
		done:              make(chan struct{}),
	}
	var err error
	if c.sub, err = nc.Subscribe(subject, c.receive); err != nil {
		return nil, fmt.Errorf("listen for changes: %w", err)
	}
	go c.run(nc.StatusChanged(nats.CONNECTED), c.sub.StatusChanged(nats.SubscriptionSlowConsumer),
		heartbeat)
	return c, nil
}

// run publishes heartbeats. It also ends all watches after a reconnect, and when the NATS client
// has dropped messages, because the watches may have missed changes.
func (c *Notifier) run(
	connected <-chan nats.Status, slow <-chan nats.SubStatus, heartbeat time.Duration,
) {
	defer close(c.done)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
			if c.nc.IsConnected() {
				_ = c.announce(nil)
			}
			continue
		case <-connected:
			// Flush, to be certain that the server has the subscription again. A watch that begins
			// afterwards misses nothing.
			_ = c.nc.FlushTimeout(flushTimeout)
		case _, open := <-slow:
			if !open {
				slow = nil // unsubscribed
				continue
			}
		}
		c.endAllWatches()
	}
}

// Stop ends the subscription and all watches, and waits until the Notifier's goroutine has exited,
// but not for the watchers. It may be called more than once.
func (c *Notifier) Stop() {
	c.stopOnce.Do(func() {
		close(c.stop)
		<-c.done
		_ = c.sub.Unsubscribe()
		c.endAllWatches()
	})
}

func (c *Notifier) endAllWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endAllWatchesLocked()
}

// endAllWatchesLocked ends all watches and discards the recent batches. mu must be held.
func (c *Notifier) endAllWatchesLocked() {
	c.recent.reset(c.nextBatchTime())
	for w := range c.watchers {
		delete(c.watchers, w)
		close(w)
	}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// nextBatchTime returns the current time in whole microseconds. If this time is not later than the
// previous result, nextBatchTime returns the previous result plus one microsecond, so that its
// results always increase. mu must be held.
func (c *Notifier) nextBatchTime() time.Time {
	at := now()
	if !at.After(c.lastBatchTime) {
		at = c.lastBatchTime.Add(time.Microsecond)
	}
	c.lastBatchTime = at
	return at
}

// Publish announces changed records to all executors. If that fails, it ends the watches of this
// process, because their clients would not learn of the change.
func (c *Notifier) Publish(ids []string) error {
	err := c.announceInParts(ids)
	if err != nil {
		c.endAllWatches()
	}
	return err
}

func (c *Notifier) announceInParts(ids []string) error {
	for len(ids) > 0 {
		n := min(len(ids), maxIDsPerMessage)
		if err := c.announce(ids[:n]); err != nil {
			return fmt.Errorf("tell of changes: %w", err)
		}
		ids = ids[n:]
	}
	return nil
}

// announce publishes one announcement, or a heartbeat if there are no IDs. An announcement that
// fails still uses up its number, so that the other processes notice that they have missed it.
func (c *Notifier) announce(ids []string) error {
	c.publishMu.Lock()
	defer c.publishMu.Unlock()
	if len(ids) > 0 {
		c.announcementCount++
	}
	data, err := proto.Marshal(&hookstartv1.ExecutionsChanged{
		ExecutionIds: ids, Publisher: c.id, Number: c.announcementCount,
	})
	if err != nil {
		return err
	}
	return c.nc.Publish(subject, data)
}

// Subscription is a watch that Watch has begun. Its channel Batches delivers the changes from then
// on.
type Subscription struct {
	// Since is when the watch began. Batches delivers every batch after that time.
	Since time.Time
	// CatchUpBatches holds the batches between the time that was passed to Watch and Since. It also
	// includes a few older batches, because the clocks of executors differ and the client may have
	// watched on another executor before.
	CatchUpBatches []Batch
	// CatchUpComplete reports whether CatchUpBatches includes all changes between the time that was
	// passed to Watch and Since. It is always true if the zero time was passed.
	CatchUpComplete bool
	// Batches delivers all batches after Since. It is closed when changes may have been missed, or
	// when the Notifier is stopped.
	Batches <-chan Batch
	// Cancel ends the watch. The caller must eventually call it.
	Cancel func()
}

// Watch begins to watch for changes. If after is not zero, it must be the At of the last batch that
// the client has received, from this or another process. The client then also receives the changes
// since that batch.
func (c *Notifier) Watch(after time.Time) Subscription {
	w := make(chan Batch, watcherBufferSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[w] = struct{}{}
	watching := Subscription{
		Since: c.nextBatchTime(), Batches: w, CatchUpComplete: true,
		Cancel: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.watchers, w)
		},
	}
	if !after.IsZero() {
		watching.CatchUpBatches, watching.CatchUpComplete = c.recent.after(after)
	}
	return watching
}

func (c *Notifier) receive(msg *nats.Msg) {
	var changed hookstartv1.ExecutionsChanged
	if proto.Unmarshal(msg.Data, &changed) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.detectGap(&changed) {
		c.endAllWatchesLocked()
	}
	if len(changed.GetExecutionIds()) == 0 {
		return // a heartbeat
	}
	batch := Batch{At: c.nextBatchTime(), IDs: changed.GetExecutionIds()}
	c.recent.add(batch)
	for w := range c.watchers {
		select {
		case w <- batch:
		default:
			delete(c.watchers, w)
			close(w)
		}
	}
}

// detectGap stores the number in an announcement or heartbeat. It reports whether the executor that
// sent this message has also sent an earlier announcement that has not reached this process. mu
// must be held.
func (c *Notifier) detectGap(changed *hookstartv1.ExecutionsChanged) bool {
	publisher, before := changed.GetPublisher(), changed.GetNumber()
	if publisher == "" {
		return false
	}
	last, known := c.lastAnnouncements[publisher]
	c.lastAnnouncements[publisher] = before
	if len(changed.GetExecutionIds()) > 0 {
		before--
	}
	return known && before > last
}

// LoadRecent reads the announcements that the stream has kept, including those from before this
// Notifier was created, so that clients can resume from them. If LoadRecent fails, clients that
// resume from a time before this Notifier was created are told that they may have missed changes.
func (c *Notifier) LoadRecent(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	s, err := js.Stream(ctx, StreamName)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	before := recentBatches{completeSince: info.TimeStamp.Add(-streamMaxAge)}
	if info.Created.After(before.completeSince) {
		before.completeSince = info.Created
	}
	if info.State.Bytes > streamMaxBytes/2 && info.State.FirstTime.After(before.completeSince) {
		// The stream may have dropped older announcements for lack of space, so it is complete only
		// from its oldest message on.
		before.completeSince = info.State.FirstTime
	}
	last := info.State.LastSeq
	if info.State.Msgs > 0 {
		consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverAllPolicy,
		})
		if err != nil {
			return err
		}
		messages, err := consumer.Messages()
		if err != nil {
			return err
		}
		defer messages.Stop()
		for done := false; !done; {
			msg, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return err
			}
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			done = meta.Sequence.Stream >= last || meta.NumPending == 0
			var changed hookstartv1.ExecutionsChanged
			if proto.Unmarshal(msg.Data(), &changed) == nil && len(changed.GetExecutionIds()) > 0 {
				before.add(Batch{
					At:  meta.Timestamp.UTC().Truncate(time.Microsecond),
					IDs: changed.GetExecutionIds(),
				})
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Append the announcements received since New. The stream may also contain some of these. The
	// list then contains them twice, which does no harm.
	for _, b := range c.recent.batches {
		before.add(b)
	}
	c.recent = before
	return nil
}
