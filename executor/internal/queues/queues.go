// Package queues determines how many executions wait in each queue, and which runners take them.
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

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Queue is the state of a queue: the executions that wait in it, and the groups that take them.
type Queue struct {
	Name string
	// Waiting is the number of starts that the most advanced group has not received; without a group,
	// it is the number of all starts of the queue in the stream.
	Waiting uint64
	Oldest  time.Time // when the oldest waiting start was accepted; zero means that none waits
	// PausedSince is the time at which the queue was paused; zero means that it is not paused.
	// PausedUntil is the time at which the pause ends by itself; zero means that it does not.
	PausedSince, PausedUntil time.Time
	Groups                   []Group // by name
}

// Group is a group of runners.
type Group struct {
	Name string
	// Members is the number of processes that sent a heartbeat in the last seconds. For runners that
	// send no heartbeats, it is the number of waiting requests for work.
	Members  int
	Waiting  uint64    // number of starts that no member has received; without members, it includes starts that were received but are not done
	LastSeen time.Time // when a member last sent a heartbeat or took a start; zero means that it is not known
	// MaxInFlight is the limit that an operator has set; 0 means that there is none.
	MaxInFlight int64
	oldest      uint64 // the stream sequence at or after which the first waiting start is
}

// Members returns the number of members of all groups.
func (q Queue) Members() (n int) {
	for _, g := range q.Groups {
		n += g.Members
	}
	return n
}

// Unattended returns the time for which an execution has waited that no runner takes. It returns 0
// if none waits, if a runner takes them, or if the queue is paused.
func (q Queue) Unattended(now time.Time) time.Duration {
	if q.Waiting == 0 || q.Members() > 0 || !q.PausedSince.IsZero() {
		return 0
	}
	since := q.Oldest
	for _, g := range q.Groups {
		if g.LastSeen.After(since) {
			since = g.LastSeen
		}
	}
	return max(now.Sub(since), time.Millisecond)
}

// Config holds the parts that a Watch uses, but does not own.
type Config struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	// Named returns the queues that workflows name.
	Named func() []string
	// Settings returns the settings of all queues that have some. nil means that no queue has any.
	Settings func() []*registry.Queue
	// Recorder is the name of the recorder's consumer, which takes no work.
	Recorder string
}

// Watch determines the state of the queues. It is safe for concurrent use.
type Watch struct {
	config  Config
	members members
	heard   *nats.Subscription

	looking sync.Mutex // held while one caller looks; the others wait for its result

	mu   sync.Mutex
	last []Queue
	at   time.Time
}

// lookTimeout is the maximum duration of a look. fresh is the time for which the result of a look
// is reused, as long as the same queues are named.
const (
	lookTimeout = 4 * time.Second
	fresh       = time.Second
)

// New returns a Watch, which listens to the announcements of runners. Stop must be called.
func New(c Config) (*Watch, error) {
	w := &Watch{config: c, members: members{groups: map[stream.RunnerGroup]*heard{}}}
	var err error
	if w.heard, err = c.Conn.Subscribe(stream.RunnerPresence+"*.*.*", w.members.hear); err != nil {
		return nil, fmt.Errorf("listen to runners: %w", err)
	}
	return w, nil
}

// Stop ends the subscription to announcements.
func (w *Watch) Stop() { _ = w.heard.Unsubscribe() }

// Last returns the result of the last look that succeeded, and its time, or nil if there was none.
func (w *Watch) Last() ([]Queue, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.at
}

// Look returns the state of all queues that workflows name, by name.
func (w *Watch) Look(ctx context.Context) ([]Queue, error) {
	w.looking.Lock()
	defer w.looking.Unlock()
	named := w.config.Named()
	if last, at := w.Last(); last != nil && time.Since(at) < fresh && slices.EqualFunc(last, named, func(q Queue, name string) bool { return q.Name == name }) {
		return last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := w.look(ctx, named)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.at = found, time.Now()
	return found, nil
}

// Given returns those of some records of which a group was given the start, at the time of the call. A group that gets
// it later finds whatever was stored before the call.
func (w *Watch) Given(ctx context.Context, records []store.Record) (map[string]bool, error) {
	executions, err := w.config.JetStream.Stream(ctx, stream.Name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream.Name, err)
	}
	given := map[string]bool{}
	names := executions.ConsumerNames(ctx)
	for name := range names.Name() {
		if name == w.config.Recorder {
			continue
		}
		consumer, err := executions.Consumer(ctx, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", name, err)
		}
		info := consumer.CachedInfo()
		for _, r := range records {
			if r.StreamSequence <= info.Delivered.Stream && takes(info.Config, r.Queue) {
				given[r.ID] = true
			}
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("consumers of %s: %w", stream.Name, err)
	}
	return given, nil
}

// Enforce updates the consumers of a queue's groups to match the queue's settings, and discards the
// result of the last look. When it returns without an error, the consumers match, and the next look
// queries the server again.
func (w *Watch) Enforce(ctx context.Context, settings *registry.Queue) error {
	executions, err := w.config.JetStream.Stream(ctx, stream.Name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream.Name, err)
	}
	consumers, err := w.consumers(ctx, executions)
	if err != nil {
		return err
	}
	if err := w.enforce(ctx, settings, consumers); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = time.Time{}
	return nil
}

func (w *Watch) enforce(ctx context.Context, settings *registry.Queue, consumers []*jetstream.ConsumerInfo) error {
	of := stream.QueueSettings{
		Paused: !settings.PausedSince.IsZero(), PausedUntil: settings.PausedUntil, MaxInFlight: map[string]int64{},
	}
	for _, g := range settings.Groups {
		of.MaxInFlight[g.Group] = g.MaxInFlight
	}
	for _, c := range consumers {
		if !stream.OnlyOfQueue(c.Config, settings.Name) {
			continue
		}
		if err := stream.EnforceQueueSettings(ctx, w.config.JetStream, c, groupName(settings.Name, c), of); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return nil
}

// groupName returns the name of the group of a consumer. If the consumer is not named as the kits
// name theirs, it returns the consumer's name.
func groupName(queue string, c *jetstream.ConsumerInfo) string {
	return strings.TrimPrefix(c.Name, stream.RunnerConsumerPrefix+queue+"-")
}

// settings returns the settings of the queues that have some, by name.
func (w *Watch) settings() map[string]*registry.Queue {
	all := map[string]*registry.Queue{}
	if w.config.Settings != nil {
		for _, settings := range w.config.Settings() {
			all[settings.Name] = settings
		}
	}
	return all
}

func (w *Watch) look(ctx context.Context, named []string) ([]Queue, error) {
	executions, err := w.config.JetStream.Stream(ctx, stream.Name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream.Name, err)
	}
	consumers, err := w.consumers(ctx, executions)
	if err != nil {
		return nil, err
	}
	all := w.settings()
	for _, settings := range all {
		if err := w.enforce(ctx, settings, consumers); err != nil {
			return nil, err
		}
	}
	queues := []Queue{}
	for _, name := range named {
		q := Queue{Name: name}
		settings := all[name]
		if settings != nil && settings.Paused(time.Now()) {
			q.PausedSince, q.PausedUntil = settings.PausedSince, settings.PausedUntil
		}
		for _, c := range consumers {
			if takes(c.Config, name) {
				q.Groups = append(q.Groups, w.group(name, c))
			}
		}
		if err := w.fill(ctx, executions, &q); err != nil {
			return nil, err
		}
		q.limit(settings)
		queues = append(queues, q)
	}
	return queues, nil
}

// limit sets the limits of the groups from the settings.
func (q Queue) limit(settings *registry.Queue) {
	if settings == nil {
		return
	}
	for i, g := range q.Groups {
		for _, of := range settings.Groups {
			if of.Group == g.Name {
				q.Groups[i].MaxInFlight = of.MaxInFlight
			}
		}
	}
}

// consumers returns the consumers of EXECUTIONS that groups of runners share.
func (w *Watch) consumers(ctx context.Context, of jetstream.Stream) ([]*jetstream.ConsumerInfo, error) {
	var found []*jetstream.ConsumerInfo
	names := of.ConsumerNames(ctx)
	for name := range names.Name() {
		if name == w.config.Recorder {
			continue
		}
		consumer, err := of.Consumer(ctx, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", name, err)
		}
		if info := consumer.CachedInfo(); info.Config.Durable != "" {
			found = append(found, info)
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("consumers of %s: %w", stream.Name, err)
	}
	slices.SortFunc(found, func(a, b *jetstream.ConsumerInfo) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// takes reports whether a consumer receives the starts of a queue.
func takes(c jetstream.ConsumerConfig, queue string) bool {
	filters := c.FilterSubjects
	if c.FilterSubject != "" {
		filters = append(filters, c.FilterSubject)
	}
	if len(filters) == 0 {
		return true
	}
	subject := strings.Split(stream.StartSubject(queue, "*", "*"), ".")
	return slices.ContainsFunc(filters, func(filter string) bool {
		parts := strings.Split(filter, ".")
		for i, part := range parts {
			switch {
			case part == ">":
				return true
			case i >= len(subject) || part != "*" && subject[i] != "*" && part != subject[i]:
				return false
			}
		}
		return len(parts) == len(subject)
	})
}

func (w *Watch) group(queue string, c *jetstream.ConsumerInfo) Group {
	name, of := strings.CutPrefix(c.Name, stream.RunnerConsumerPrefix+queue+"-")
	now := time.Now()
	g := Group{Name: name, Waiting: c.NumPending, oldest: c.Delivered.Stream + 1}
	if of {
		g.Members, g.LastSeen = w.members.of(stream.RunnerGroup{Queue: queue, Group: name}, now)
	}
	if g.Members == 0 && c.NumWaiting > 0 { // a runner that sends no heartbeats
		g.Members = c.NumWaiting
	}
	if g.Members > 0 {
		g.LastSeen = now
		return g
	}
	for _, at := range []*time.Time{c.Delivered.Last, c.AckFloor.Last} {
		if at != nil && at.After(g.LastSeen) {
			g.LastSeen = *at
		}
	}
	g.Waiting += uint64(max(c.NumAckPending, 0))
	g.oldest = c.AckFloor.Stream + 1
	return g
}

// fill determines what waits in a queue with its groups.
func (w *Watch) fill(ctx context.Context, executions jetstream.Stream, q *Queue) error {
	from := uint64(1)
	if len(q.Groups) > 0 {
		ahead := slices.MinFunc(q.Groups, func(a, b Group) int { return cmp.Compare(a.Waiting, b.Waiting) })
		q.Waiting, from = ahead.Waiting, ahead.oldest
	} else {
		info, err := executions.Info(ctx, jetstream.WithSubjectFilter(stream.QueueSubject(q.Name)))
		if err != nil {
			return fmt.Errorf("stream %s: %w", stream.Name, err)
		}
		for _, n := range info.State.Subjects {
			q.Waiting += n
		}
	}
	if q.Waiting == 0 {
		return nil
	}
	msg, err := executions.GetMsg(ctx, from, jetstream.WithGetMsgSubject(stream.QueueSubject(q.Name)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // it was taken, or has expired, meanwhile
	}
	if err != nil {
		return fmt.Errorf("read the oldest start of queue %s: %w", q.Name, err)
	}
	q.Oldest = msg.Time
	if event, err := stream.Decode(msg.Subject, msg.Header, msg.Data); err == nil && event.Start != nil && !event.Start.AcceptedAt.IsZero() {
		q.Oldest = event.Start.AcceptedAt
	}
	return nil
}
