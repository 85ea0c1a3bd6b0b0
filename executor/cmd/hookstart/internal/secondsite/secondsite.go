// Package secondsite mirrors the streams and the registry of an installation to the NATS servers of
// a second site, and promotes the second site to take over.
//
// Each copy is a mirror: a stream of the same name at the second site, which NATS fills through a
// leaf node connection. A mirror keeps the sequences, times and headers of the original. It
// remembers the delivery IDs of mirrored messages only if it has a deduplication window, so
// EnsureMirrors gives it the window of the original. A mirror has no subjects. The subjects of the
// original are stored in the mirror's metadata, so that the original is not needed when the second
// site takes over.
//
// The positions of consumers are not mirrored. At the second site, executors record the streams
// from the beginning. Runners, however, must not repeat executions that have finished. Promote
// therefore makes the consumers of groups of runners begin after the last message of the mirror.
// Then it looks for start messages whose executions have no final report, and publishes them again
// at the end of the stream.
package secondsite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Subject prefixes at the second site. The configuration in deploy/nats/accounts.conf makes two
// things of the first site available at the second site: the JetStream API, under
// FirstSiteAPIPrefix, and the messages that the mirrors copy, under firstSiteDeliverPrefix.
const (
	FirstSiteAPIPrefix     = "COPY.API"
	firstSiteDeliverPrefix = "copy.deliver"
)

// Metadata keys of the streams at the second site.
const (
	// originalSettingsMetadataKey is the key under which a mirror stores those settings of the
	// original stream that a mirror cannot have: see originalSettings. Every mirror has this key.
	originalSettingsMetadataKey = "hookstart.original"
	// promotedAtMetadataKey is the key under which a stream stores the time at which it was
	// promoted.
	promotedAtMetadataKey = "hookstart.promoted"
)

// originalSettings holds the settings of the original stream that a mirror must not have. The
// mirror gets them when it is promoted.
type originalSettings struct {
	Subjects []string                  `json:"subjects"`
	Sources  []*jetstream.StreamSource `json:"sources,omitempty"`
}

// Site gives access to the second site and, through the connection to the second site, to the
// first.
type Site struct {
	// JetStream is a connection to the second site with administrator permissions.
	JetStream jetstream.JetStream
	// FirstSite provides access to the JetStream API of the first site through the connection to
	// the second site, with the API prefix FirstSiteAPIPrefix. Only EnsureMirrors and
	// UnmirroredStreams use it.
	FirstSite jetstream.JetStream
}

// streamsToMirror returns the names of the streams to mirror, in the order in which they are
// promoted: the streams of start messages come last. queues holds the queues that have their own
// streams.
func streamsToMirror(queues []string) []string {
	names := append(registry.Streams(), stream.ReportsName, stream.CancellationsStream,
		stream.ProgressName)
	for _, queue := range queues {
		names = append(names, stream.OwnProgressStreamName(queue))
	}
	names = append(names, stream.ExecutionsName)
	for _, queue := range queues {
		names = append(names, stream.OwnStreamName(queue))
	}
	return names
}

// ErrNotMirror means that a stream at the second site is not a mirror, or is no longer one.
var ErrNotMirror = errors.New("is no copy: the second site has taken over, or is an installation " +
	"of its own")

// ErrNotMirrored means that the site has no mirror of a stream: EnsureMirrors was never called for
// it, or the site is a separate installation.
var ErrNotMirrored = errors.New("is not copied to this site")

// EnsureMirrors creates missing mirrors with the given number of replicas, and updates existing
// ones to the originals' current settings, except for the placement. It deletes the empty mirrors
// of queues' own streams that no longer exist at the first site. It is idempotent.
func (s Site) EnsureMirrors(ctx context.Context, replicas int) error {
	queues, err := s.ownStreamQueues(ctx)
	if err != nil {
		return err
	}
	for _, name := range streamsToMirror(queues) {
		if err := s.ensureMirror(ctx, name, replicas); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return s.deleteOrphanedMirrors(ctx, queues)
}

// ownStreamQueues returns the queues that have their own streams at the first site, sorted.
func (s Site) ownStreamQueues(ctx context.Context) (ownStreamQueues []string, err error) {
	starts, _, err := stream.StreamNames(ctx, s.FirstSite)
	if err != nil {
		return nil, fmt.Errorf("the streams of the first site: %w", err)
	}
	for _, name := range starts {
		if queue, own := stream.QueueOfOwnStream(name); own {
			ownStreamQueues = append(ownStreamQueues, queue)
		}
	}
	slices.Sort(ownStreamQueues)
	return ownStreamQueues, nil
}

func (s Site) ensureMirror(ctx context.Context, name string, replicas int) error {
	first, err := s.FirstSite.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("at the first site: %w", err)
	}
	config, err := mirrorConfig(first.CachedInfo().Config, replicas)
	if err != nil {
		return err
	}
	existing, err := s.JetStream.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		_, err = s.JetStream.CreateStream(ctx, config)
	case err != nil:
	case existing.CachedInfo().Config.Mirror == nil:
		return ErrNotMirror
	default:
		_, err = s.JetStream.UpdateStream(ctx, config)
	}
	return err
}

// mirrorConfig converts the configuration of a stream at the first site to that of its mirror. The
// settings that a mirror cannot have are kept in the mirror's metadata.
func mirrorConfig(config jetstream.StreamConfig, replicas int) (jetstream.StreamConfig, error) {
	kept, err := json.Marshal(originalSettings{Subjects: config.Subjects, Sources: config.Sources})
	if err != nil {
		return config, err
	}
	config.Subjects, config.Sources, config.Placement, config.Replicas = nil, nil, nil, replicas
	config.Metadata = map[string]string{originalSettingsMetadataKey: string(kept)}
	config.Mirror = &jetstream.StreamSource{
		Name: config.Name,
		External: &jetstream.ExternalStream{
			APIPrefix:     FirstSiteAPIPrefix,
			DeliverPrefix: firstSiteDeliverPrefix,
		},
	}
	return config, nil
}

// deleteOrphanedMirrors deletes the empty mirrors of queues' own streams, except the mirrors for
// the given queues. It keeps a mirror that holds messages, because its original cannot have been
// deleted by an executor and must have been lost: an executor deletes a queue's own stream only
// when the stream is empty, and a mirror never keeps messages longer than its original.
func (s Site) deleteOrphanedMirrors(ctx context.Context, queues []string) error {
	here, err := s.mirrorInfos(ctx)
	if err != nil {
		return err
	}
	for name, info := range here {
		queue, own := stream.QueueOfOwnStream(name)
		if !own || slices.Contains(queues, queue) || info.Config.Mirror == nil ||
			info.State.Msgs > 0 {
			continue
		}
		if err := stream.DeleteOwnStreams(ctx, s.JetStream, queue); err != nil {
			return err
		}
	}
	return nil
}

// mirrorInfos returns information about the streams at this site that are or were mirrors, keyed by
// name.
func (s Site) mirrorInfos(ctx context.Context) (map[string]*jetstream.StreamInfo, error) {
	all := map[string]*jetstream.StreamInfo{}
	lister := s.JetStream.ListStreams(ctx)
	for info := range lister.Info() {
		_, promoted := info.Config.Metadata[promotedAtMetadataKey]
		if info.Config.Mirror != nil || promoted {
			all[info.Config.Name] = info
		}
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return all, nil
}

// mirrorsInPromotionOrder returns information about the streams at this site that are or were
// mirrors, in the order in which they are promoted. It returns ErrNotMirrored if one of the streams
// that every installation has is missing.
func (s Site) mirrorsInPromotionOrder(ctx context.Context) (all []*jetstream.StreamInfo,
	err error,
) {
	here, err := s.mirrorInfos(ctx)
	if err != nil {
		return nil, err
	}
	queues := map[string]bool{}
	for name := range here {
		if queue, own := stream.QueueOfOwnStream(name); own {
			queues[queue] = true
		}
		if queue, own := stream.QueueOfOwnProgressStream(name); own {
			queues[queue] = true
		}
	}
	for _, name := range streamsToMirror(slices.Sorted(maps.Keys(queues))) {
		info, ok := here[name]
		if !ok {
			return nil, fmt.Errorf("stream %s %w", name, ErrNotMirrored)
		}
		all = append(all, info)
	}
	return all, nil
}

// UnmirroredStreams returns the names of the streams that the first site has and this site does not
// mirror.
func (s Site) UnmirroredStreams(ctx context.Context) (names []string, err error) {
	queues, err := s.ownStreamQueues(ctx)
	if err != nil {
		return nil, err
	}
	here, err := s.mirrorInfos(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range streamsToMirror(queues) {
		if here[name] == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// MirrorState is the state of a stream at the second site.
type MirrorState struct {
	Stream       string
	Messages     uint64
	LastSequence uint64 // sequence of the last message
	// LastStoredAt is when the last message was stored at the first site. It is zero if there is no
	// message.
	LastStoredAt time.Time
	// MissingMessages is the number of messages that the first site has stored and the mirror has
	// not, as far as the servers of the second site know.
	MissingMessages uint64
	// SinceContact is the time since the last contact with the first site. It is negative if there
	// has been no contact since the mirror was created or its server was started.
	SinceContact time.Duration
	MirrorError  string // the error that NATS reports for the mirror; "" means none
	Promoted     bool   // the stream is no longer a mirror
}

// IsStalled reports whether the last contact with the first site was longer ago than limit. While
// the sites are connected, there is contact every second, even without messages.
func (c MirrorState) IsStalled(limit time.Duration) bool {
	return !c.Promoted && (c.SinceContact < 0 || c.SinceContact > limit)
}

// IsLagging reports whether the mirror lacks messages and its newest message was stored at the
// first site more than limit before now. It briefly returns true when the first message after a
// long pause is being mirrored.
func (c MirrorState) IsLagging(now time.Time, limit time.Duration) bool {
	return !c.Promoted && c.MissingMessages > 0 && now.Sub(c.LastStoredAt) > limit
}

// MirrorStates returns the state of each stream that is or was a mirror. It does not need a
// connection to the first site. It returns ErrNotMirrored if the site has no mirrors.
func (s Site) MirrorStates(ctx context.Context) (all []MirrorState, err error) {
	infos, err := s.mirrorsInPromotionOrder(ctx)
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		c := MirrorState{
			Stream:       info.Config.Name,
			Messages:     info.State.Msgs,
			LastSequence: info.State.LastSeq,
			LastStoredAt: info.State.LastTime,
			Promoted:     info.Config.Mirror == nil,
			SinceContact: -1,
		}
		if info.Mirror != nil {
			c.MissingMessages, c.SinceContact = info.Mirror.Lag, info.Mirror.Active
			if info.Mirror.Error != nil {
				c.MirrorError = info.Mirror.Error.Description
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// Promotion describes the second site after it has taken over.
type Promotion struct {
	States      []MirrorState // the streams after the promotion
	Republished int           // number of unfinished start messages that were published again
}

// Promote turns the mirrors into streams that accept messages, and creates the consumers of the
// groups of runners. The first site must no longer accept requests, and no executor and no ingress
// may be running at the second site. If Promote is interrupted, call it again. If the site has no
// mirrors, Promote returns ErrNotMirrored and changes nothing.
func (s Site) Promote(ctx context.Context, groups []stream.RunnerGroup) (p Promotion, err error) {
	infos, err := s.mirrorsInPromotionOrder(ctx)
	if err != nil {
		return p, err
	}
	for _, info := range infos {
		if err := s.promoteStream(ctx, info.Config); err != nil {
			return p, fmt.Errorf("stream %s: %w", info.Config.Name, err)
		}
	}
	if p.Republished, err = s.createConsumersAndRepublishAll(ctx, infos, groups); err != nil {
		return p, err
	}
	p.States, err = s.MirrorStates(ctx)
	return p, err
}

func (s Site) promoteStream(ctx context.Context, config jetstream.StreamConfig) error {
	if config.Mirror == nil {
		return nil // promoted by an earlier call
	}
	kept, isCopy := config.Metadata[originalSettingsMetadataKey]
	if !isCopy {
		return errors.New("is a mirror that `hookstart admin second-site copy` has not made")
	}
	var from originalSettings
	if err := json.Unmarshal([]byte(kept), &from); err != nil {
		return fmt.Errorf("its metadata: %w", err)
	}
	config.Mirror, config.Subjects, config.Sources = nil, from.Subjects, from.Sources
	delete(config.Metadata, originalSettingsMetadataKey)
	config.Metadata[promotedAtMetadataKey] = time.Now().UTC().Format(time.RFC3339)
	_, err := s.JetStream.UpdateStream(ctx, config)
	return err
}

// createConsumersAndRepublishAll creates the consumers of the groups of runners on all streams of
// start messages. Then it looks in the queues of these groups for start messages whose executions
// have no final report, and publishes them again. It returns the number of these messages.
func (s Site) createConsumersAndRepublishAll(
	ctx context.Context, infos []*jetstream.StreamInfo, groups []stream.RunnerGroup,
) (republished int, err error) {
	ended := map[string]bool{}
	for _, info := range infos {
		name := info.Config.Name
		if _, own := stream.QueueOfOwnProgressStream(name); own || name == stream.ProgressName {
			if err := s.addEndedExecutions(ctx, name, ended); err != nil {
				return 0, err
			}
		}
	}
	for _, info := range infos {
		queue, own := stream.QueueOfOwnStream(info.Config.Name)
		if !own && info.Config.Name != stream.ExecutionsName {
			continue
		}
		these := slices.DeleteFunc(slices.Clone(groups), func(g stream.RunnerGroup) bool {
			return own && g.Queue != queue
		})
		n, err := s.createConsumersAndRepublish(
			ctx,
			info.Config.Name,
			stream.Layout{Own: own},
			these,
			ended,
		)
		republished += n
		if err != nil {
			return republished, err
		}
	}
	return republished, nil
}

// createConsumersAndRepublish creates the consumers of groups of runners on the named stream. They
// begin after the last mirrored message of the stream. Then it publishes the start messages of
// unfinished executions in the groups' queues again, and returns their number. ended contains the
// IDs of the executions that have finished.
func (s Site) createConsumersAndRepublish(
	ctx context.Context, name string, layout stream.Layout, groups []stream.RunnerGroup,
	ended map[string]bool,
) (republished int, err error) {
	end, err := s.lastMirroredSequence(ctx, name, groups)
	if err != nil {
		return 0, err
	}
	queues := map[string]bool{}
	for _, g := range groups {
		config := g.ConsumerConfigForLayout(layout, stream.RunnerAckWait)
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		config.OptStartSeq = end + 1
		if _, err := stream.EnsureConsumer(ctx, s.JetStream, config); err != nil {
			return 0, err
		}
		queues[g.Queue] = true
	}
	err = stream.ForEachMessage(ctx, s.JetStream, name, jetstream.OrderedConsumerConfig{}, func(
		msg jetstream.Msg, meta *jetstream.MsgMetadata,
	) error {
		if meta.Sequence.Stream > end {
			return nil
		}
		event, _, err := stream.DecodeSummary(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil || event.Start == nil || ended[event.Start.ID] ||
			!queues[event.Start.Queue] {
			return nil //nolint:nilerr // executors put aside messages that cannot be decoded
		}
		header := maps.Clone(msg.Headers())
		header[jetstream.MsgIDHeader] = []string{
			fmt.Sprint(republishedIDPrefix, event.Start.ID, "-", meta.Sequence.Stream),
		}
		if _, err := s.JetStream.PublishMsg(ctx, &nats.Msg{
			Subject: msg.Subject(), Header: header, Data: msg.Data(),
		}); err != nil {
			return fmt.Errorf("give %s to runners again: %w", event.Start.ID, err)
		}
		republished++
		return nil
	})
	return republished, err
}

// lastMirroredSequence returns the sequence of the last mirrored message of a stream. If an earlier
// call of Promote was interrupted, the stream may also contain later messages: start messages that
// the earlier call published again. To exclude them, lastMirroredSequence looks at the consumers
// that the earlier call created, which begin after the last mirrored message.
func (s Site) lastMirroredSequence(
	ctx context.Context, name string, groups []stream.RunnerGroup,
) (end uint64, err error) {
	mirror, err := s.JetStream.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	end = mirror.CachedInfo().State.LastSeq
	for _, g := range groups {
		consumer, err := mirror.Consumer(ctx, g.ConsumerName())
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("consumer %s: %w", g.ConsumerName(), err)
		}
		if begins := consumer.CachedInfo().Config.OptStartSeq; begins > 0 {
			end = min(end, begins-1)
		}
	}
	return end, nil
}

// republishedIDPrefix is the prefix of the Nats-Msg-Id of a start message that Promote publishes
// again. Executors use the same prefix for start messages that they publish again.
const republishedIDPrefix = "again-"

// addEndedExecutions reads a stream of reports. For each final report, it sets the ID of the
// execution in the map ended.
func (s Site) addEndedExecutions(ctx context.Context, name string, ended map[string]bool) error {
	return stream.ForEachMessage(ctx, s.JetStream, name, jetstream.OrderedConsumerConfig{}, func(
		msg jetstream.Msg, _ *jetstream.MsgMetadata,
	) error {
		event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
		if err == nil && event.Progress != nil && event.Progress.Status.Final() {
			ended[event.Progress.ID] = true
		}
		return nil
	})
}
