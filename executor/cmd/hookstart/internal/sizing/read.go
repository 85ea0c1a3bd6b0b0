package sizing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// NATSUsage holds the usage and limits of the streams and of the JetStream account.
type NATSUsage struct {
	Streams []StreamUsage
	Tiers   []AccountTier
	// SharedStreamCreatedAt is when the shared stream was created. It is zero if there is none.
	SharedStreamCreatedAt time.Time
}

// StreamUsage holds the usage, the limits and the recent growth of a stream.
type StreamUsage struct {
	Name    string
	Kind    StreamKind
	Servers []string // names of the servers that hold a replica

	Messages, Bytes int64
	MaxBytes        int64         // size at which the stream is full; 0 means no limit
	MaxAge          time.Duration // 0 means that messages are kept forever
	Replicas        int

	// DedupWindow is the deduplication window, and DedupWindowMessages is the number of messages in
	// it. Both are set only for streams of start messages.
	DedupWindow         time.Duration
	DedupWindowMessages int64

	// WeekMessages counts the messages that were stored in the last week.
	WeekMessages WeekStats

	// UnrecordedMessages is the number of messages that have not been recorded yet, and
	// OldestUnrecordedAge is the age of the oldest of them.
	UnrecordedMessages  int64
	OldestUnrecordedAge time.Duration
}

// StreamKind is the purpose of a stream.
type StreamKind int

// Kinds of streams.
const (
	StreamKindStarts StreamKind = iota // EXECUTIONS, or a queue's own stream
	// StreamKindReports means PROGRESS, or the stream of reports of a queue that has its own
	// streams.
	StreamKindReports
	StreamKindOther // the registry, and streams of internal messages
)

// AccountTier holds the usage and the limits of the JetStream account: either of all its streams,
// or of those with a given number of replicas.
type AccountTier struct {
	Name     string // R1, R3 and so on; "" means the whole account
	Replicas int    // the number in Name; 0 means the whole account

	// Bytes, Streams and Consumers are the current usage. A maximum of 0 means that there is no
	// limit.
	Bytes, MaxBytes         int64
	Streams, MaxStreams     int
	Consumers, MaxConsumers int
}

// ReadNATSUsage queries NATS for the usage and limits of all streams and of the JetStream account.
func ReadNATSUsage(ctx context.Context, js jetstream.JetStream) (NATSUsage, error) {
	var found NATSUsage
	starts, reports, err := stream.StreamNames(ctx, js)
	if err != nil {
		return NATSUsage{}, err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		kind := StreamKindOther
		switch {
		case slices.Contains(starts, name):
			kind = StreamKindStarts
		case slices.Contains(reports, name):
			kind = StreamKindReports
		}
		s, created, err := readStream(ctx, js, name, kind)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // the stream has just been deleted
		}
		if err != nil {
			return NATSUsage{}, err
		}
		if name == stream.ExecutionsName {
			found.SharedStreamCreatedAt = created
		}
		found.Streams = append(found.Streams, s)
	}
	if err := names.Err(); err != nil {
		return NATSUsage{}, fmt.Errorf("list the streams: %w", err)
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return NATSUsage{}, fmt.Errorf("the limits of the NATS account: %w", err)
	}
	found.Tiers = accountTiers(account)
	return found, nil
}

func accountTiers(account *jetstream.AccountInfo) []AccountTier {
	all := map[string]jetstream.Tier{"": account.Tier}
	if len(account.Tiers) > 0 {
		all = account.Tiers
	}
	var found []AccountTier
	for name, t := range all {
		tier := AccountTier{
			Name:         name,
			Bytes:        toInt64(t.Store),
			MaxBytes:     max(t.Limits.MaxStore, 0), // -1: no limit
			Streams:      t.Streams,
			MaxStreams:   max(t.Limits.MaxStreams, 0),
			Consumers:    t.Consumers,
			MaxConsumers: max(t.Limits.MaxConsumers, 0),
		}
		if _, err := fmt.Sscanf(name, "R%d", &tier.Replicas); err != nil {
			tier.Replicas = 0
		}
		found = append(found, tier)
	}
	slices.SortFunc(found, func(a, b AccountTier) int { return a.Replicas - b.Replicas })
	return found
}

func readStream(
	ctx context.Context, js jetstream.JetStream, name string, kind StreamKind,
) (s StreamUsage, created time.Time, err error) {
	handle, err := js.Stream(ctx, name)
	if err != nil {
		return StreamUsage{}, time.Time{}, fmt.Errorf("stream %s: %w", name, err)
	}
	info := handle.CachedInfo()
	s = StreamUsage{
		Name:     name,
		Kind:     kind,
		Messages: toInt64(info.State.Msgs),
		Bytes:    toInt64(info.State.Bytes),
		MaxBytes: max(info.Config.MaxBytes, 0), // -1: no limit
		MaxAge:   info.Config.MaxAge,
		Replicas: info.Config.Replicas,
	}
	if cluster := info.Cluster; cluster != nil {
		if cluster.Leader != "" {
			s.Servers = append(s.Servers, cluster.Leader)
		}
		for _, replica := range cluster.Replicas {
			s.Servers = append(s.Servers, replica.Name)
		}
		slices.Sort(s.Servers)
	}
	if kind == StreamKindOther {
		return s, info.Created, nil
	}
	if err := s.readMessageStats(ctx, js, info); err != nil {
		return StreamUsage{}, time.Time{}, err
	}
	return s, info.Created, s.readRecorderLag(ctx, handle)
}

// readMessageStats counts the messages that were stored in the last week, day by day, and for
// streams of start messages also those in the deduplication window. All times are by the server's
// clock.
func (s *StreamUsage) readMessageStats(
	ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo,
) error {
	now := info.TimeStamp
	// stored returns the number of messages stored since a time.
	stored := func(since time.Time) (float64, error) {
		if info.State.Msgs == 0 {
			return 0, nil
		}
		first, err := stream.SequenceSince(ctx, js, s.Name, since)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return 0, nil
		}
		if err != nil || first > info.State.LastSeq {
			return 0, err
		}
		return float64(info.State.LastSeq - first + 1), nil
	}
	var periods [7]float64
	before := 0.0
	for i := range periods {
		n, err := stored(now.Add(-time.Duration(i+1) * day))
		if err != nil {
			return err
		}
		periods[i], before = max(n-before, 0), max(n, before)
		if n >= float64(info.State.LastSeq-info.State.FirstSeq+1) {
			break // the stream has no older messages
		}
	}
	s.WeekMessages = NewWeekStats(periods, now.Sub(s.completeSince(info)))
	if s.Kind != StreamKindStarts {
		return nil
	}
	s.DedupWindow = info.Config.Duplicates
	remembered, err := stored(now.Add(-s.DedupWindow))
	s.DedupWindowMessages = min(int64(remembered), s.Messages)
	return err
}

// completeSince returns the time since which the stream has kept every message that it stored. If
// the stream has a maximum age, older messages have been deleted, so the returned time is never
// further in the past than the maximum age.
func (s *StreamUsage) completeSince(info *jetstream.StreamInfo) time.Time {
	begin := info.Created
	// If the first message is older than the stream, the stream was restored from a backup. In that
	// case, and if the stream has dropped older messages, use the time of the first message.
	if s.Messages > 0 && (info.State.FirstTime.Before(begin) ||
		info.Config.Discard == jetstream.DiscardOld && info.State.FirstSeq > 1) {
		begin = info.State.FirstTime
	}
	if oldest := info.TimeStamp.Add(-s.MaxAge); s.MaxAge > 0 && begin.Before(oldest) {
		begin = oldest
	}
	return begin
}

// readRecorderLag sets UnrecordedMessages and OldestUnrecordedAge. handle is the stream at NATS.
func (s *StreamUsage) readRecorderLag(ctx context.Context, handle jetstream.Stream) error {
	consumer, err := handle.Consumer(ctx, stream.RecorderConsumerName)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil // the stream has just been created, or no executor has started yet
	}
	if err != nil {
		return fmt.Errorf("consumer %s of the stream %s: %w", stream.RecorderConsumerName, s.Name,
			err)
	}
	info := consumer.CachedInfo()
	s.UnrecordedMessages = stream.Unacknowledged(info)
	if s.UnrecordedMessages == 0 {
		return nil
	}
	oldest, err := handle.GetMsg(ctx, info.AckFloor.Stream+1, jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", s.Name, err)
	}
	s.OldestUnrecordedAge = max(info.TimeStamp.Sub(oldest.Time), 0)
	return nil
}

// toInt64 converts a count from NATS to int64. Such counts are always below 2^63.
func toInt64(n uint64) int64 { return int64(n) } //nolint:gosec // see above
