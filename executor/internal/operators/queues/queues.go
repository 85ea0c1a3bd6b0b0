// Package queues determines how many executions wait in each queue, and which runners serve it.
package queues

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/hookstart/hookstart/executor/internal/starts"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Queue is the state of a queue: the executions that wait in it, and the groups that serve it.
type Queue struct {
	Name string
	// Waiting is the number of start messages that wait in the queue. Each group receives every
	// message, and a message no longer waits once one of the groups has received it. Waiting is
	// therefore the smallest Waiting of the groups. Without groups, it is the number of the queue's
	// start messages in all its streams.
	Waiting uint64
	// OldestAcceptedAt is when the oldest waiting execution was accepted; zero if none waits.
	OldestAcceptedAt time.Time
	// PausedSince is when the queue was paused; zero means that it is not paused. PausedUntil is
	// when the pause ends automatically; zero means never.
	PausedSince, PausedUntil time.Time
	Groups                   []Group // the groups, sorted by name
	// Incomplete means that the queue's own stream did not respond, so Waiting, OldestAcceptedAt
	// and Groups describe only the shared stream.
	Incomplete bool
}

// Group is a group of runners that serve a queue together. Each group receives every execution.
type Group struct {
	Name string
	// Members is the number of processes that have sent a heartbeat recently. If the runners send
	// no heartbeats, it is the number of their pull requests that are waiting for messages.
	Members int
	// MembersUnknown means that no member has sent a heartbeat, but that the Watcher has not yet
	// listened long enough to know that there are no members. Members is 0 in this case.
	MembersUnknown bool
	// Waiting is the number of start messages that no member has received. If there are no members,
	// it includes start messages that a former member received but did not complete.
	Waiting uint64
	// LastSeen is when a member last sent a heartbeat or received a start message; zero if unknown.
	LastSeen time.Time
	// MaxInFlight is the maximum number of executions that the group may have in flight, as set by
	// an operator. 0 means no limit.
	MaxInFlight int64
	// Blocking contains the executions that a runner of the group has received but not completed,
	// and that block the executions behind them in their lane. It has at most one entry per lane.
	Blocking []BlockingExecution
	// waitingFilters says where start messages wait for the group: it has an entry for each lane
	// with waiting messages, and one per stream for messages without an order key. If the group has
	// no consumer in a stream, a single entry stands for all lanes of that stream.
	waitingFilters []startMessageFilter
}

// BlockingExecution is an execution with an order key that a runner has received and that has not
// ended, so that the executions behind it in its lane must wait.
type BlockingExecution struct {
	Lane        int
	WorkflowID  string
	OrderKey    string
	ExecutionID string
	AcceptedAt  time.Time
	Waiting     uint64 // how many executions, with any order key, wait behind this one in its lane
}

// startMessageFilter selects start messages in one of a queue's streams: those of one lane, those
// of all lanes, or those without an order key, which are in no lane.
type startMessageFilter struct {
	stream         jetstream.Stream
	subject        string
	oldestSequence uint64 // the first waiting start message is at or after this stream sequence
}

// streamState is the state of one of a queue's streams: its layout and its consumers.
type streamState struct {
	stream.Layout
	stream    jetstream.Stream
	consumers []*jetstream.ConsumerInfo // sorted by name
}

// Members returns the total number of members of all groups.
func (q Queue) Members() (n int) {
	for _, g := range q.Groups {
		n += g.Members
	}
	return n
}

// MembersUnknown reports whether no group has a known member, but at least one may have members.
func (q Queue) MembersUnknown() bool {
	return q.Members() == 0 &&
		slices.ContainsFunc(q.Groups, func(g Group) bool { return g.MembersUnknown })
}

// UnattendedDuration returns how long executions have waited without a runner. It returns 0 if no
// execution waits, if the queue has a runner or may have one, or if the queue is paused or its
// state is incomplete.
func (q Queue) UnattendedDuration(now time.Time) time.Duration {
	if q.Waiting == 0 || q.Members() > 0 || q.MembersUnknown() || !q.PausedSince.IsZero() ||
		q.Incomplete {
		return 0
	}
	since := q.OldestAcceptedAt
	for _, g := range q.Groups {
		if g.LastSeen.After(since) {
			since = g.LastSeen
		}
	}
	return max(now.Sub(since), time.Millisecond)
}

// Config holds the dependencies of a Watcher, which does not own them.
type Config struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	// QueueNames returns the names of the queues to poll, sorted. These are the queues that
	// workflows use, and the queues whose settings have an effect.
	QueueNames func() []string
	// Settings returns the settings of all queues that have settings, in a fixed order. A change
	// replaces a record and never modifies it. A nil function means that no queue has any.
	Settings func() []*registry.Queue
	// RecorderConsumer is the name of the recorder's consumer. The Watcher ignores this consumer,
	// because it is not a group of runners.
	RecorderConsumer string
}

// Watcher determines the state of the queues. It is safe for concurrent use.
type Watcher struct {
	config        Config
	startStreams  *starts.Streams
	members       memberTracker
	announcements *nats.Subscription

	pollMu sync.Mutex // held by the caller that polls; other callers wait for its result
	// pollMu also guards listeningSince, reconnects and listenedLongEnough. listeningSince is when
	// the Watcher was created, or when a poll first noticed the last reconnect. reconnects is the
	// number of reconnects up to that time. listenedLongEnough means that every runner has had
	// enough time since then to send a heartbeat.
	listeningSince     time.Time
	reconnects         uint64
	listenedLongEnough bool

	mu           sync.Mutex
	lastQueues   []Queue
	lastSettings []*registry.Queue // the settings before the last poll began
	lastPolledAt time.Time
}

// pollTimeout is the maximum duration of a poll. pollResultTTL is how long the result of a poll is
// reused, as long as the set of queues and the settings stay the same.
const (
	pollTimeout   = 4 * time.Second
	pollResultTTL = time.Second
)

// New returns a Watcher that subscribes to runners' announcements. The caller must call Stop to
// release it.
func New(c Config) (*Watcher, error) {
	w := &Watcher{
		config:       c,
		startStreams: starts.New(c.JetStream),
		members:      memberTracker{groups: map[stream.RunnerGroup]*groupMembers{}},

		reconnects: c.Conn.Stats().Reconnects,
	}
	var err error
	if w.announcements, err = c.Conn.Subscribe(stream.RunnerPresencePrefix+"*.*.*",
		w.members.handleAnnouncement); err != nil {
		return nil, fmt.Errorf("listen to runners: %w", err)
	}
	w.listeningSince = time.Now()
	return w, nil
}

// Stop ends the subscription to the announcements. It does not wait for a poll that is in progress,
// or for an announcement that is being handled.
func (w *Watcher) Stop() { _ = w.announcements.Unsubscribe() }

// LastPoll returns the result and the time of the last successful poll, or nil if there was none.
func (w *Watcher) LastPoll() ([]Queue, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastQueues, w.lastPolledAt
}

// Poll returns the state of the queues that the Config names, sorted by name. It may return the
// result of another poll that is less than a second old, unless settings have changed since.
func (w *Watcher) Poll(ctx context.Context) ([]Queue, error) {
	w.pollMu.Lock()
	defer w.pollMu.Unlock()
	named, settings := w.config.QueueNames(), w.settings()
	if last, at := w.LastPoll(); last != nil && time.Since(at) < pollResultTTL &&
		slices.Equal(w.lastSettings, settings) &&
		slices.EqualFunc(last, named, func(q Queue, name string) bool {
			return q.Name == name
		}) {
		return last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	found, err := w.pollQueues(ctx, named)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastQueues, w.lastSettings, w.lastPolledAt = found, settings, time.Now()
	return found, nil
}

// StartMessage describes the start message of an execution.
type StartMessage struct {
	Subject string
	// Traceparent is the message's traceparent header. It is "" if the message was not read.
	Traceparent string
	// Delivered is true if the message has been delivered to a group.
	Delivered bool

	// lookedUp is true once the streams have responded to a request for the message, even if none
	// of them has the message. storedSubject is the message's subject, and storedAt is when the
	// server stored the message. storedSubject and storedAt are zero if the message was not read or
	// does not exist.
	lookedUp      bool
	storedSubject string
	storedAt      time.Time
}

// StartMessages returns the records' start messages, keyed by record ID. If it returns an error,
// the result lacks the records whose streams did not respond.
//
// If a start message is not Delivered, it is safe to set its record to canceled, provided that the
// cancellation was stored before this call: a group that receives the message later will see the
// cancellation.
func (w *Watcher) StartMessages(
	ctx context.Context, records []store.Record,
) (map[string]*StartMessage, error) {
	names, err := w.startStreamNames(ctx)
	if err != nil {
		return nil, err
	}
	messages, failed := w.findStartMessages(ctx, names, records)
	byStream := map[string][]store.Record{}
	for _, r := range records {
		if msg := messages[r.ID]; msg != nil {
			name := stream.StreamOf(msg.Subject)
			byStream[name] = append(byStream[name], r)
		}
	}
	for name, list := range byStream {
		failed = errors.Join(failed, w.setDelivered(ctx, name, list, messages))
	}
	return messages, failed
}

// setDelivered sets Delivered for the given records, whose start messages are all in the stream
// with the given name. messages holds the entries, keyed by record ID. If setDelivered returns an
// error, it has removed the entries whose Delivered it could not determine.
func (w *Watcher) setDelivered(
	ctx context.Context, streamName string, records []store.Record,
	messages map[string]*StartMessage,
) error {
	consumers, err := w.groupConsumers(ctx, streamName)
	if err != nil {
		for _, r := range records {
			delete(messages, r.ID)
		}
		return err
	}
	passed := func(r store.Record, consumer *jetstream.ConsumerInfo) bool {
		return r.StreamSequence <= consumer.Delivered.Stream &&
			stream.ConsumerReceives(consumer.Config, messages[r.ID].Subject)
	}
	// beganLater reports whether a consumer may have been configured to begin after the stream's
	// oldest message. Such a consumer never receives the messages before its starting point. Their
	// sequences are nevertheless lower than the sequence of the consumer's last delivered message.
	beganLater := func(consumer *jetstream.ConsumerInfo) bool {
		return consumer.Config.DeliverPolicy != jetstream.DeliverAllPolicy
	}
	var uncertain []store.Record // records passed only by consumers for which beganLater is true
	for _, r := range records {
		byLater := false
		for _, consumer := range consumers {
			if !passed(r, consumer) {
				continue
			}
			if !beganLater(consumer) {
				messages[r.ID].Delivered = true
				break
			}
			byLater = true
		}
		if byLater && !messages[r.ID].Delivered {
			uncertain = append(uncertain, r)
		}
	}
	err = w.readStartMessages(ctx, uncertain, messages)
	for _, r := range uncertain {
		msg := messages[r.ID]
		if msg == nil {
			continue
		}
		msg.Delivered = slices.ContainsFunc(consumers, func(c *jetstream.ConsumerInfo) bool {
			return passed(r, c) && (msg.storedAt.IsZero() ||
				!stream.ConsumerBeginsAfter(c, r.StreamSequence,
					msg.storedAt.Add(maxClockDifference)))
		})
	}
	return err
}

// groupConsumers returns the consumers of a stream that belong to groups. It omits the executors'
// consumers, and consumers that need no acknowledgements: these only read messages without starting
// executions, for example for a backup.
func (w *Watcher) groupConsumers(
	ctx context.Context, streamName string,
) (consumers []*jetstream.ConsumerInfo, err error) {
	executions, err := w.config.JetStream.Stream(ctx, streamName)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", streamName, err)
	}
	names := executions.ConsumerNames(ctx)
	for name := range names.Name() {
		if name == w.config.RecorderConsumer || name == stream.AccountStorageConsumerName {
			continue
		}
		consumer, err := executions.Consumer(ctx, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", name, err)
		}
		if consumer.CachedInfo().Config.AckPolicy != jetstream.AckNonePolicy {
			consumers = append(consumers, consumer.CachedInfo())
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("consumers of %s: %w", streamName, err)
	}
	return consumers, nil
}

const (
	// maxClockDifference is the assumed maximum difference between the clocks of two NATS servers.
	// The difference matters because one server may set the time of a consumer and another one the
	// time of a message.
	maxClockDifference = time.Minute
	// maxConcurrentReads is the maximum number of start messages that are read at the same time.
	maxConcurrentReads = 16
	// readTimeout is how long reading one start message may take.
	readTimeout = 5 * time.Second
)

// readStartMessages reads the start messages of records from the streams, unless they were already
// read. If it returns an error, it has deleted from messages the start messages that it could not
// read.
func (w *Watcher) readStartMessages(
	ctx context.Context, records []store.Record, messages map[string]*StartMessage,
) (failed error) {
	byQueue := map[string][]store.Record{}
	for _, r := range records {
		if !messages[r.ID].lookedUp {
			byQueue[r.Queue] = append(byQueue[r.Queue], r)
		}
	}
	slots, failures := make(chan struct{}, maxConcurrentReads), make(chan error, len(byQueue))
	for _, list := range byQueue {
		go func() { failures <- w.readQueueStartMessages(ctx, list, messages, slots) }()
	}
	for range byQueue {
		failed = errors.Join(failed, <-failures)
	}
	for _, r := range records {
		if !messages[r.ID].lookedUp {
			delete(messages, r.ID)
		}
	}
	return failed
}

// readQueueStartMessages reads the start messages of one queue's records. It stops after the first
// error, because all messages of the queue would probably fail for the same reason. Each read
// occupies one of the slots, which limit the number of concurrent reads.
func (w *Watcher) readQueueStartMessages(
	ctx context.Context, records []store.Record, messages map[string]*StartMessage,
	slots chan struct{},
) error {
	reading, ctx := errgroup.WithContext(ctx)
	for _, r := range records {
		to := messages[r.ID]
		reading.Go(func() error {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			msg, err := w.startStreams.GetStart(ctx, r.Queue, r.StreamSequence, r.ID)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				to.lookedUp = true
				return nil
			}
			if err != nil {
				return err
			}
			to.lookedUp, to.storedSubject, to.storedAt = true, msg.Subject, msg.Time
			to.Traceparent = msg.Header.Get(stream.HeaderTrace)
			return nil
		})
	}
	return reading.Wait()
}

// startStreamNames returns the names of the existing streams for start messages.
func (w *Watcher) startStreamNames(ctx context.Context) ([]string, error) {
	names, _, err := stream.StreamNames(ctx, w.config.JetStream)
	return names, err
}

// findStartMessages returns the records' start messages, keyed by record ID, without setting
// Delivered. It reads a start message only if its queue has lanes or its own stream; otherwise, the
// subject follows from the record. If it returns an error, the result lacks the messages that it
// could not read.
func (w *Watcher) findStartMessages(
	ctx context.Context, names []string, records []store.Record,
) (map[string]*StartMessage, error) {
	settings, messages := w.settingsByQueue(), make(map[string]*StartMessage, len(records))
	var toRead []store.Record
	for _, r := range records {
		messages[r.ID] = &StartMessage{
			Subject: stream.StartSubject(r.Queue, r.WorkflowID, r.NodeID),
		}
		if queue := settings[r.Queue]; queue != nil && queue.LaneCount > 0 ||
			slices.Contains(names, stream.OwnStreamName(r.Queue)) {
			toRead = append(toRead, r)
		}
	}
	err := w.readStartMessages(ctx, toRead, messages)
	for _, r := range toRead {
		if msg := messages[r.ID]; msg != nil {
			msg.Subject = cmp.Or(msg.storedSubject, msg.Subject)
		}
	}
	return messages, err
}

// EnforceSettings updates the consumers of a queue's groups to match the queue's settings. If it
// returns nil, the consumers match, and the next call of Poll queries the server again. If the
// queue's own stream is unreachable, EnforceSettings updates the consumers in the shared stream and
// returns an error.
func (w *Watcher) EnforceSettings(ctx context.Context, settings *registry.Queue) error {
	names, err := w.startStreamNames(ctx)
	if err != nil {
		return err
	}
	shared, err := w.readStreamState(ctx, stream.Layout{}, settings.Name)
	if err != nil {
		return err
	}
	var own *streamState
	if slices.Contains(names, stream.OwnStreamName(settings.Name)) {
		// Limit this read, so that an unreachable stream does not use up the time for the shared
		// stream.
		asking, cancel := context.WithTimeout(ctx, pollTimeout/2)
		own, err = w.readStreamState(asking, stream.Layout{Own: true}, settings.Name)
		cancel()
		if err != nil {
			shared, own, err = w.enforceSharedStreamFirst(ctx, settings, shared)
		}
		if err != nil {
			return err
		}
	}
	inShared, inOwn := splitLimits(settings, shared, own)
	err = w.enforceSettings(ctx, settings, inShared, shared.consumers)
	if own != nil {
		err = errors.Join(err, w.enforceSettings(ctx, settings, inOwn, own.consumers))
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastPolledAt = time.Time{}
	return nil
}

// enforceSharedStreamFirst is called when a queue's own stream has not responded within a short
// time. It first updates the consumers in the shared stream. Then it reads the states of both
// streams. Reading the queue's own stream may take all the time that is left in ctx, because that
// stream may be far away or have many consumers.
func (w *Watcher) enforceSharedStreamFirst(
	ctx context.Context, settings *registry.Queue, before *streamState,
) (shared, own *streamState, err error) {
	limits := loweredLimits(settings, before)
	failed := w.enforceSettings(ctx, settings, limits, before.consumers)
	own, err = w.readStreamState(ctx, stream.Layout{Own: true}, settings.Name)
	if err == nil && failed == nil {
		shared, err = w.readStreamState(ctx, stream.Layout{}, settings.Name)
	}
	return shared, own, errors.Join(failed, err)
}

// readStreamState reads the state of one of a queue's streams and its consumers.
func (w *Watcher) readStreamState(
	ctx context.Context, at stream.Layout, queue string,
) (*streamState, error) {
	in, err := w.config.JetStream.Stream(ctx, at.StreamName(queue))
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", at.StreamName(queue), err)
	}
	consumers, err := w.durableConsumers(ctx, in)
	if err != nil {
		return nil, err
	}
	return &streamState{at, in, consumers}, nil
}

// groupLimits returns the groups' in-flight limits, keyed by group.
func groupLimits(settings *registry.Queue) map[string]int64 {
	all := map[string]int64{}
	for _, g := range settings.Groups {
		all[g.Group] = g.MaxInFlight
	}
	return all
}

func (w *Watcher) enforceSettings(
	ctx context.Context, settings *registry.Queue, maxInFlight map[string]int64,
	consumers []*jetstream.ConsumerInfo,
) error {
	enforced := stream.QueueSettings{
		Paused:             !settings.PausedSince.IsZero(),
		PausedUntil:        settings.PausedUntil,
		MaxInFlightByGroup: maxInFlight,
		Lanes:              int(settings.LaneCount),
	}
	if err := w.addLaneConsumers(ctx, settings, consumers); err != nil {
		return err
	}
	for _, c := range consumers {
		if !stream.IsQueueConsumer(c.Config, settings.Name) {
			continue
		}
		if err := stream.EnforceQueueSettings(ctx, w.config.JetStream, c,
			groupName(settings.Name, c), enforced); err != nil &&
			!errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return nil
}

// addLaneConsumers creates the missing lane consumers of a queue's groups. The executor must do
// this, because runners with their own NATS account cannot create consumers.
func (w *Watcher) addLaneConsumers(
	ctx context.Context, settings *registry.Queue, consumers []*jetstream.ConsumerInfo,
) error {
	if settings.LaneCount == 0 {
		return nil
	}
	exists := map[string]bool{}
	for _, c := range consumers {
		exists[c.Name] = true
	}
	for _, c := range consumers {
		name, ours := strings.CutPrefix(c.Name, stream.RunnerConsumerPrefix+settings.Name+"-")
		at, _ := stream.LayoutOf(c.Config.FilterSubject)
		if !ours || c.Config.FilterSubject != at.QueueFilterSubject(settings.Name) {
			continue
		}
		group := stream.RunnerGroup{Queue: settings.Name, Group: name}
		for lane := range int(settings.LaneCount) {
			if exists[group.LaneConsumerName(lane)] {
				continue
			}
			if _, err := stream.EnsureRunnerConsumer(ctx, w.config.JetStream, group,
				group.LaneConsumerConfig(lane, c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupName returns the name of the group that a consumer belongs to. If the consumer's name does
// not have the form that hookstart's runners use, groupName returns the whole name.
func groupName(queue string, c *jetstream.ConsumerInfo) string {
	return strings.TrimPrefix(c.Name, stream.RunnerConsumerPrefix+queue+"-")
}

// settings returns the settings of all queues that have settings. A record that has changed since
// an earlier call has another address.
func (w *Watcher) settings() []*registry.Queue {
	if w.config.Settings == nil {
		return nil
	}
	return w.config.Settings()
}

// settingsByQueue returns the queues' settings, keyed by queue name.
func (w *Watcher) settingsByQueue() map[string]*registry.Queue {
	all := map[string]*registry.Queue{}
	for _, settings := range w.settings() {
		all[settings.Name] = settings
	}
	return all
}

func (w *Watcher) pollQueues(ctx context.Context, named []string) ([]Queue, error) {
	names, err := w.startStreamNames(ctx)
	if err != nil {
		return nil, err
	}
	shared, err := w.readStreamState(ctx, stream.Layout{}, "")
	if err != nil {
		return nil, err
	}
	all := w.settingsByQueue()
	for _, settings := range all {
		if slices.Contains(names, stream.OwnStreamName(settings.Name)) &&
			slices.Contains(named, settings.Name) {
			continue // read below, together with its own stream
		}
		if err := w.enforceSettings(ctx, settings, groupLimits(settings),
			shared.consumers); err != nil {
			return nil, err
		}
	}
	w.listenedLongEnough = w.hasListenedLongEnough(time.Now())
	last, _ := w.LastPoll()
	queues := make([]Queue, len(named))
	failed := make([]error, len(named))
	var own sync.WaitGroup
	for i, name := range named {
		if !slices.Contains(names, stream.OwnStreamName(name)) {
			if queues[i], err = w.queueFromStates(ctx, name, all[name], shared); err != nil {
				return nil, err
			}
			continue
		}
		// Read this queue in a goroutine, so that an unreachable stream neither delays nor hides
		// other queues.
		own.Go(func() {
			queues[i], failed[i] = w.readQueueWithOwnStream(ctx, name, all[name], shared)
		})
	}
	own.Wait()
	for i, name := range named {
		if failed[i] == nil {
			continue
		}
		known := slices.IndexFunc(last, func(q Queue) bool { return q.Name == name })
		if known >= 0 && !last[known].Incomplete && len(named) > 1 {
			queues[i] = last[known]
			continue
		}
		if queues[i], err = w.queueFromStates(ctx, name, all[name], shared); err != nil {
			return nil, err
		}
		queues[i].Incomplete = true
	}
	return queues, nil
}

// hasListenedLongEnough reports whether every runner has had enough time to send a heartbeat since
// New or the last reconnect. Until then, the Watcher may not know of a runner whose handlers are
// all busy, because such a runner sends no pull requests.
func (w *Watcher) hasListenedLongEnough(now time.Time) bool {
	if n := w.config.Conn.Stats().Reconnects; n != w.reconnects {
		w.reconnects, w.listeningSince = n, now
	}
	return now.Sub(w.listeningSince) > memberTimeout
}

// readQueueWithOwnStream returns the state of a queue that has its own stream.
func (w *Watcher) readQueueWithOwnStream(
	ctx context.Context, name string, settings *registry.Queue, shared *streamState,
) (Queue, error) {
	asking, cancel := context.WithTimeout(ctx, pollTimeout/2)
	defer cancel()
	own, err := w.readStreamState(asking, stream.Layout{Own: true}, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) { // deleted since it was listed
		return w.queueFromStates(asking, name, settings, shared)
	}
	if err == nil {
		own, err = w.addGroupConsumers(asking, name, shared, own)
	}
	if err != nil {
		if settings != nil {
			err = errors.Join(err, w.enforceSettings(ctx, settings,
				loweredLimits(settings, shared), shared.consumers))
		}
		return Queue{}, err
	}
	if settings != nil {
		inShared, inOwn := splitLimits(settings, shared, own)
		if err := errors.Join(w.enforceSettings(ctx, settings, inShared, shared.consumers),
			w.enforceSettings(asking, settings, inOwn, own.consumers)); err != nil {
			return Queue{}, err
		}
	}
	return w.queueFromStates(asking, name, settings, shared, own)
}

// queueFromStates returns the state of a queue, combined from the given states of its streams.
func (w *Watcher) queueFromStates(
	ctx context.Context, name string, settings *registry.Queue, states ...*streamState,
) (Queue, error) {
	q := Queue{Name: name}
	if settings != nil && settings.IsPaused(time.Now()) {
		q.PausedSince, q.PausedUntil = settings.PausedSince, settings.PausedUntil
	}
	for _, at := range states {
		for _, c := range at.consumers {
			if stream.ConsumerReceives(c.Config, at.StartSubject(name, "*", "*")) {
				q.addGroup(w.newGroup(name, c, at))
			}
		}
	}
	slices.SortFunc(q.Groups, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	for _, at := range states {
		if err := w.addLaneContents(ctx, at, &q); err != nil {
			return q, err
		}
	}
	if err := w.countWaiting(ctx, states, &q); err != nil {
		return q, err
	}
	q.setLimits(settings)
	return q, nil
}

// addGroup adds a group. If q already has a group of this name, from another stream, addGroup
// merges the two.
func (q *Queue) addGroup(g Group) {
	for i := range q.Groups {
		if known := &q.Groups[i]; known.Name == g.Name {
			known.Waiting += g.Waiting
			known.Members = max(known.Members, g.Members)
			known.MembersUnknown = known.Members == 0 && known.MembersUnknown
			known.waitingFilters = append(known.waitingFilters, g.waitingFilters...)
			if g.LastSeen.After(known.LastSeen) {
				known.LastSeen = g.LastSeen
			}
			return
		}
	}
	q.Groups = append(q.Groups, g)
}

// setLimits fills in the groups' in-flight limits from the queue's settings. Groups without a
// setting keep 0, which means no limit.
func (q Queue) setLimits(settings *registry.Queue) {
	if settings == nil {
		return
	}
	for i, g := range q.Groups {
		for _, limit := range settings.Groups {
			if limit.Group == g.Name {
				q.Groups[i].MaxInFlight = limit.MaxInFlight
			}
		}
	}
}

// durableConsumers returns the durable consumers of a stream, except the recorder's, sorted by
// name.
func (w *Watcher) durableConsumers(
	ctx context.Context, s jetstream.Stream,
) ([]*jetstream.ConsumerInfo, error) {
	var found []*jetstream.ConsumerInfo
	names := s.ConsumerNames(ctx)
	for name := range names.Name() {
		if name == w.config.RecorderConsumer {
			continue
		}
		consumer, err := s.Consumer(ctx, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue // it was deleted after it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", name, err)
		}
		if info := consumer.CachedInfo(); info.Config.Durable != "" {
			found = append(found, info)
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("consumers of %s: %w", s.CachedInfo().Config.Name, err)
	}
	slices.SortFunc(found, func(a, b *jetstream.ConsumerInfo) int {
		return strings.Compare(a.Name, b.Name)
	})
	return found, nil
}

// addLaneContents adds the contents of a queue's lanes, in one stream, to the queue's groups: the
// waiting executions, and the executions that block them.
func (w *Watcher) addLaneContents(ctx context.Context, at *streamState, q *Queue) error {
	for _, c := range at.consumers {
		name, number, ok := stream.LaneOfConsumer(c.Config, q.Name)
		if !ok {
			continue
		}
		i := slices.IndexFunc(q.Groups, func(g Group) bool { return g.Name == name })
		if i < 0 {
			continue
		}
		g := &q.Groups[i]
		g.Waiting += c.NumPending
		lane := startMessageFilter{at.stream, c.Config.FilterSubject, c.Delivered.Stream + 1}
		if g.Members == 0 {
			g.Waiting += uint64(max(c.NumAckPending, 0))
			lane.oldestSequence = c.AckFloor.Stream + 1
		}
		if c.NumPending > 0 || g.Members == 0 && c.NumAckPending > 0 {
			g.waitingFilters = append(g.waitingFilters, lane)
		}
		if c.NumPending == 0 || c.NumAckPending == 0 {
			continue
		}
		// A lane has at most one unacknowledged message, so it is the last one that was delivered.
		msg, err := at.stream.GetMsg(ctx, c.Delivered.Stream)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the start that holds up lane %d of queue %s: %w", number,
				q.Name, err)
		}
		event, _, err := stream.DecodeSummary(msg.Subject, msg.Header, msg.Data)
		if err != nil || event.Start == nil {
			continue
		}
		g.Blocking = append(g.Blocking, BlockingExecution{
			Lane:        number,
			WorkflowID:  event.Start.WorkflowID,
			OrderKey:    event.Start.OrderKey,
			ExecutionID: event.Start.ID,
			AcceptedAt:  event.Start.AcceptedAt,
			Waiting:     c.NumPending,
		})
	}
	for i := range q.Groups {
		slices.SortFunc(q.Groups[i].Blocking, func(a, b BlockingExecution) int {
			return cmp.Compare(a.Lane, b.Lane)
		})
	}
	return nil
}

func (w *Watcher) newGroup(queue string, c *jetstream.ConsumerInfo, at *streamState) Group {
	name, isGroup := strings.CutPrefix(c.Name, stream.RunnerConsumerPrefix+queue+"-")
	now := time.Now()
	g := Group{Name: name, Waiting: c.NumPending}
	g.waitingFilters = []startMessageFilter{
		{at.stream, at.QueueFilterSubject(queue), c.Delivered.Stream + 1},
	}
	if isGroup {
		g.Members, g.LastSeen = w.members.countMembers(stream.RunnerGroup{
			Queue: queue,
			Group: name,
		}, now)
	}
	if g.Members == 0 && c.NumWaiting > 0 { // a runner that sends no heartbeats
		g.Members = c.NumWaiting
	}
	if g.Members > 0 {
		g.LastSeen = now
		return g
	}
	g.MembersUnknown = isGroup && !w.listenedLongEnough
	for _, at := range []*time.Time{c.Delivered.Last, c.AckFloor.Last} {
		if at != nil && at.After(g.LastSeen) {
			g.LastSeen = *at
		}
	}
	g.Waiting += uint64(max(c.NumAckPending, 0))
	g.waitingFilters[0].oldestSequence = c.AckFloor.Stream + 1
	return g
}

// countWaiting sets the number of executions that wait in a queue, and the time at which the oldest
// of them was accepted.
func (w *Watcher) countWaiting(ctx context.Context, states []*streamState, q *Queue) error {
	var oldest []startMessageFilter
	for _, at := range states {
		all := []startMessageFilter{
			{at.stream, at.QueueFilterSubject(q.Name), 1},
			{at.stream, at.OrderedFilterSubject(q.Name), 1},
		}
		if len(q.Groups) == 0 || at.Own {
			if err := q.countMessages(ctx, at, all); err != nil {
				return err
			}
		}
		if len(q.Groups) == 0 {
			oldest = append(oldest, all...)
		}
	}
	if len(q.Groups) > 0 {
		ahead := slices.MinFunc(q.Groups, func(a, b Group) int {
			return cmp.Compare(a.Waiting, b.Waiting)
		})
		q.Waiting, oldest = ahead.Waiting, ahead.waitingFilters
	}
	if q.Waiting == 0 {
		return nil
	}
	for _, lane := range oldest {
		at, err := oldestAcceptedAt(ctx, lane)
		if err != nil {
			return fmt.Errorf("read the oldest start of queue %s: %w", q.Name, err)
		}
		if q.OldestAcceptedAt.IsZero() || !at.IsZero() && at.Before(q.OldestAcceptedAt) {
			q.OldestAcceptedAt = at
		}
	}
	return nil
}

// countMessages counts the start messages that a queue has in one of its streams. at is the state
// of that stream, and the filters in all together select all of these messages. countMessages adds
// their number to the Waiting of the queue, and to the Waiting of each group that has no consumer
// in this stream yet. If every group has a consumer there, it does nothing.
func (q *Queue) countMessages(
	ctx context.Context,
	at *streamState,
	all []startMessageFilter,
) error {
	var without []*Group
	for i := range q.Groups {
		g := &q.Groups[i]
		if !slices.ContainsFunc(g.waitingFilters, func(lane startMessageFilter) bool {
			return lane.stream == at.stream
		}) {
			without = append(without, g)
		}
	}
	if len(without) == 0 && len(q.Groups) > 0 {
		return nil
	}
	var starts uint64
	for _, lane := range all {
		info, err := at.stream.Info(ctx, jetstream.WithSubjectFilter(lane.subject))
		if err != nil {
			return fmt.Errorf("stream %s: %w", at.StreamName(q.Name), err)
		}
		for _, n := range info.State.Subjects {
			starts += n
		}
	}
	q.Waiting += starts
	for _, g := range without {
		g.Waiting += starts
		g.waitingFilters = append(g.waitingFilters, all...)
	}
	return nil
}

// oldestAcceptedAt returns when the oldest waiting start message of a lane was accepted. It returns
// the zero time if a runner has received the message since the lane was read, or if the message has
// expired.
func oldestAcceptedAt(ctx context.Context, l startMessageFilter) (time.Time, error) {
	msg, err := l.stream.GetMsg(ctx, l.oldestSequence, jetstream.WithGetMsgSubject(l.subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	if event, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err == nil &&
		event.Start != nil && !event.Start.AcceptedAt.IsZero() {
		return event.Start.AcceptedAt, nil
	}
	return msg.Time, nil
}
