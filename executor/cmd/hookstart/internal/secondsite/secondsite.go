// Package secondsite copies the streams and the registry of an installation to the NATS servers of
// a second site, and lets the second site take over.
//
// Each copy is a mirror: a stream of the same name at the second site, which the second site's
// servers fill through a leaf node connection. A mirror has the sequences, the times and the
// headers of the original. It remembers the delivery IDs of what it copies only if it has a dedup
// window of its own, so it is made with the original's. A mirror has no subjects; those of the
// original are kept in its metadata, so that the original is not needed any more when the second
// site takes over.
//
// The positions of consumers are not copied. At the second site executors record the streams from
// the beginning. Runners must not run again what has ended, so Promote starts the consumers of
// their groups at the end of the copy, and adds copies of the starts without a final report behind
// it.
package secondsite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// These are the names under which deploy/nats/accounts.conf exports the first site's API and
// messages to the second site.
const (
	FirstAPI     = "COPY.API"
	firstDeliver = "copy.deliver"
)

// originalKey is the key in a mirror's metadata of what only the original has.
const originalKey = "hookstart.original"

// original is what a mirror must not have, and gets when it is promoted.
type original struct {
	Subjects []string                  `json:"subjects"`
	Sources  []*jetstream.StreamSource `json:"sources,omitempty"`
}

// Site is the second site.
type Site struct {
	// JetStream is a connection to the second site with the rights of an administrator.
	JetStream jetstream.JetStream
	// First is the same connection with the prefix FirstAPI. Only Copy uses it.
	First jetstream.JetStream
}

// streams returns the names of the streams that are copied, in the order in which they are
// promoted: what is published last comes last.
func streams() []string {
	return append(registry.Streams(), stream.ReportsName, stream.CancellationsStream,
		stream.ProgressName, stream.Name)
}

// ErrOwnStreams means that queues have streams of their own, which are not copied.
var ErrOwnStreams = errors.New("queues with streams of their own are not copied")

// ErrPromoted means that a stream of the second site is no copy any more.
var ErrPromoted = errors.New("is no copy: the second site has taken over, or is an installation " +
	"of its own")

// Copy makes the mirrors that do not exist, with the given number of replicas, and gives existing
// ones the originals' present settings. It can be repeated.
func (s Site) Copy(ctx context.Context, replicas int) error {
	starts, _, err := stream.Streams(ctx, s.First)
	if err != nil {
		return fmt.Errorf("the streams of the first site: %w", err)
	}
	if own := slices.DeleteFunc(starts, func(name string) bool {
		return name == stream.Name
	}); len(own) > 0 {
		return fmt.Errorf("%w: %s", ErrOwnStreams, strings.Join(own, " "))
	}
	for _, name := range streams() {
		if err := s.copyStream(ctx, name, replicas); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

func (s Site) copyStream(ctx context.Context, name string, replicas int) error {
	first, err := s.First.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("at the first site: %w", err)
	}
	config, err := mirrorOf(first.CachedInfo().Config, replicas)
	if err != nil {
		return err
	}
	existing, err := s.JetStream.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		_, err = s.JetStream.CreateStream(ctx, config)
	case err != nil:
	case existing.CachedInfo().Config.Mirror == nil:
		return ErrPromoted
	default:
		_, err = s.JetStream.UpdateStream(ctx, config)
	}
	return err
}

// mirrorOf returns the configuration of the copy of a stream.
func mirrorOf(config jetstream.StreamConfig, replicas int) (jetstream.StreamConfig, error) {
	kept, err := json.Marshal(original{Subjects: config.Subjects, Sources: config.Sources})
	if err != nil {
		return config, err
	}
	config.Subjects, config.Sources, config.Placement, config.Replicas = nil, nil, nil, replicas
	config.Metadata = map[string]string{originalKey: string(kept)}
	config.Mirror = &jetstream.StreamSource{
		Name: config.Name,
		External: &jetstream.ExternalStream{
			APIPrefix:     FirstAPI,
			DeliverPrefix: firstDeliver,
		},
	}
	return config, nil
}

// Copied is the state of one stream of the second site.
type Copied struct {
	Stream   string
	Messages uint64
	Last     uint64        // sequence of the last message
	At       time.Time     // when that message was stored at the first site; zero without one
	Lag      uint64        // number of messages that the copy lacks, as far as its servers know
	Heard    time.Duration // time since the first site was heard; negative means never
	Promoted bool          // whether the stream is no copy any more
}

// State returns the state of each stream. It needs no connection to the first site.
func (s Site) State(ctx context.Context) (all []Copied, err error) {
	for _, name := range streams() {
		found, err := s.JetStream.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, err)
		}
		info := found.CachedInfo()
		c := Copied{
			Stream:   name,
			Messages: info.State.Msgs,
			Last:     info.State.LastSeq,
			At:       info.State.LastTime,
			Promoted: info.Config.Mirror == nil,
		}
		if info.Mirror != nil {
			c.Lag, c.Heard = info.Mirror.Lag, info.Mirror.Active
		}
		all = append(all, c)
	}
	return all, nil
}

// Promotion is what Promote has found and done.
type Promotion struct {
	State      []Copied // the streams after the promotion
	Unfinished int      // number of starts without a final report that runners are given
}

// Promote makes the mirrors streams that accept messages, and creates the consumers of the groups
// of runners. The first site must not accept requests any more. No executor and no ingress may run
// at the second site. An interrupted call can be repeated.
func (s Site) Promote(ctx context.Context, groups []stream.RunnerGroup) (p Promotion, err error) {
	for _, name := range streams() {
		if err := s.promoteStream(ctx, name); err != nil {
			return p, fmt.Errorf("stream %s: %w", name, err)
		}
	}
	if p.Unfinished, err = s.giveUnfinished(ctx, groups); err != nil {
		return p, err
	}
	p.State, err = s.State(ctx)
	return p, err
}

func (s Site) promoteStream(ctx context.Context, name string) error {
	existing, err := s.JetStream.Stream(ctx, name)
	if err != nil {
		return err
	}
	config := existing.CachedInfo().Config
	kept, isCopy := config.Metadata[originalKey]
	if config.Mirror == nil {
		return nil // by an earlier call
	}
	if !isCopy {
		return errors.New("is a mirror that `hookstart admin second-site copy` has not made")
	}
	var from original
	if err := json.Unmarshal([]byte(kept), &from); err != nil {
		return fmt.Errorf("its metadata: %w", err)
	}
	config.Mirror, config.Subjects, config.Sources = nil, from.Subjects, from.Sources
	delete(config.Metadata, originalKey)
	_, err = s.JetStream.UpdateStream(ctx, config)
	return err
}

// giveUnfinished creates the consumers of groups at the end of the stream, and adds copies of the
// starts that have no final report.
func (s Site) giveUnfinished(ctx context.Context, groups []stream.RunnerGroup) (int, error) {
	starts, err := s.JetStream.Stream(ctx, stream.Name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream.Name, err)
	}
	end := starts.CachedInfo().State.LastSeq
	queues := map[string]bool{}
	for _, g := range groups {
		config := g.ConsumerConfig(stream.RunnerAckWait)
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		config.OptStartSeq = end + 1
		consumer, err := stream.EnsureConsumer(ctx, s.JetStream, config)
		if err != nil {
			return 0, err
		}
		// An earlier call that was interrupted has created it.
		if begins := consumer.CachedInfo().Config.OptStartSeq; begins > 0 {
			end = min(end, begins-1)
		}
		queues[g.Queue] = true
	}
	ended, err := s.ended(ctx)
	if err != nil {
		return 0, err
	}
	given := 0
	err = s.read(ctx, stream.Name, end, func(msg jetstream.Msg, sequence uint64) error {
		event, _, err := stream.DecodeBrief(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil || event.Start == nil || ended[event.Start.ID] ||
			!queues[event.Start.Queue] {
			return nil //nolint:nilerr // executors put into quarantine what cannot be decoded
		}
		header := maps.Clone(msg.Headers())
		header[jetstream.MsgIDHeader] = []string{
			fmt.Sprint(againPrefix, event.Start.ID, "-", sequence),
		}
		if _, err := s.JetStream.PublishMsg(ctx, &nats.Msg{
			Subject: msg.Subject(), Header: header, Data: msg.Data(),
		}); err != nil {
			return fmt.Errorf("give %s to runners again: %w", event.Start.ID, err)
		}
		given++
		return nil
	})
	return given, err
}

// againPrefix is the prefix of the Nats-Msg-Id of a copy of a start, as executors make them.
const againPrefix = "again-"

// ended returns the executions with a final report.
func (s Site) ended(ctx context.Context) (map[string]bool, error) {
	reports, err := s.JetStream.Stream(ctx, stream.ProgressName)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream.ProgressName, err)
	}
	all := map[string]bool{}
	last := reports.CachedInfo().State.LastSeq
	err = s.read(ctx, stream.ProgressName, last, func(msg jetstream.Msg, _ uint64) error {
		event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
		if err == nil && event.Progress != nil && event.Progress.Status.Final() {
			all[event.Progress.ID] = true
		}
		return nil
	})
	return all, err
}

// silence is the longest time without a message while there are some.
const silence = 30 * time.Second

// read calls each for the messages of a stream up to a sequence.
func (s Site) read(
	ctx context.Context, name string, last uint64,
	each func(msg jetstream.Msg, sequence uint64) error,
) error {
	of, err := s.JetStream.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if state := of.CachedInfo().State; state.Msgs == 0 || last < state.FirstSeq {
		return nil
	}
	consumer, err := of.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer messages.Stop()
	for {
		waiting, cancel := context.WithTimeout(ctx, silence)
		msg, err := messages.Next(jetstream.NextContext(waiting))
		cancel()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if meta.Sequence.Stream > last {
			return nil
		}
		if err := each(msg, meta.Sequence.Stream); err != nil {
			return err
		}
		if meta.Sequence.Stream == last || meta.NumPending == 0 {
			return nil
		}
	}
}
