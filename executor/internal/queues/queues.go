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

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Queue is what waits in a queue, and who takes it.
type Queue struct {
	Name string
	// Waiting is how many starts the group furthest ahead was not given; without a group, all starts of the queue in the stream.
	Waiting uint64
	Oldest  time.Time // when the oldest of those was accepted; zero: none waits
	// PausedSince is when the queue was paused, and PausedUntil when that ends by itself. Zero: it is not paused; it
	// does not end.
	PausedSince, PausedUntil time.Time
	Groups                   []Group // by name
}

// Group is a group of runners.
type Group struct {
	Name string
	// Members are the processes that were heard in the last seconds; of silent runners, the waiting requests for work.
	Members  int
	Waiting  uint64    // not given to a member; without members also what was given, and is not done
	LastSeen time.Time // when a member was there last, or took something; zero: not known
	// MaxInFlight is the limit that an operator has set; 0: none.
	MaxInFlight int64
	oldest      uint64 // the stream sequence from which on the first of those that wait is
}

// Members are those of all groups.
func (q Queue) Members() (n int) {
	for _, g := range q.Groups {
		n += g.Members
	}
	return n
}

// Unattended is for how long something has waited that nobody takes; 0: nothing, or somebody does, or the queue is paused.
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

// Recorder is the name of the recorder's consumer, which takes no work.
type Config struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	// Watch determines the state of the queues. It is safe for concurrent use.
	Named func() []string
	// Settings are those of all queues that have some. nil: there are none.
	Settings func() []*registry.Queue
	// Recorder is the name of the recorder's consumer, which takes no work.
	Recorder string
}

// Watch looks at the queues. It is safe for concurrent use.
type Watch struct {
	config  Config
	members members
	heard   *nats.Subscription

	looking sync.Mutex // one looks, others wait for what it finds

	mu   sync.Mutex
	last []Queue
	at   time.Time
}

// lookTimeout bounds a look; fresh is for how long one will do for others, as long as the same queues are named.
const (
	lookTimeout = 4 * time.Second
	fresh       = time.Second
)

// New begins to listen to runners. Stop must be called.
func New(c Config) (*Watch, error) {
	w := &Watch{config: c, members: members{groups: map[stream.RunnerGroup]*heard{}}}
	var err error
	if w.heard, err = c.Conn.Subscribe(stream.RunnerPresence+"*.*.*", w.members.hear); err != nil {
		return nil, fmt.Errorf("listen to runners: %w", err)
	}
	return w, nil
}

// Stop ends listening.
func (w *Watch) Stop() { _ = w.heard.Unsubscribe() }

// Last is what the last look that succeeded found, and when; nil: there was none.
func (w *Watch) Last() ([]Queue, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.at
}

// Look looks at all queues that workflows name, by name.
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

// Enforce makes the consumers of a queue's groups agree with its settings, and forgets what the last look found.
// When it returns without an error, the consumers do, and the next look asks anew.
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

// groupName is the name of the group that a consumer is of; of one that is not the kits', the consumer's.
func groupName(queue string, c *jetstream.ConsumerInfo) string {
	return strings.TrimPrefix(c.Name, stream.RunnerConsumerPrefix+queue+"-")
}

// takes reports whether a consumer receives the starts of a queue.
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

// limit gives the groups what is set of them.
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

// consumers are those of EXECUTIONS that groups of runners share.
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

// takes says whether a consumer gets the starts of a queue.
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
	if g.Members == 0 && c.NumWaiting > 0 { // a runner that does not say that it is there
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

// fill finds out what waits in a queue with its groups.
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
