package sizing

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// ReadNATSUsage returns the usage of the shared streams and of a queue's own streams. It includes
// the recorder's lag if an executor has created the recorder's consumer.
func TestRead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	settings := stream.DefaultSettings
	settings.MaxBytes = 1 << 20
	check(stream.EnsureSharedStreams(ctx, js, settings))
	check(stream.EnsureOwnStreams(ctx, js, settings, "own", stream.QueueStreamLimits{
		MaxBytes: 1 << 16, MaxAge: 48 * time.Hour,
	}))
	check(stream.EnsureReportsStream(ctx, js, 1))
	const shared, own = 3, 5
	for range shared {
		_, err := js.Publish(ctx, stream.StartSubject("q", "wf", "node"), []byte("x"))
		check(err)
	}
	for range own {
		_, err := js.Publish(ctx, "executions.queue.own.start.wf.node", []byte("x"))
		check(err)
	}
	// The recorder of an executor has acknowledged the first start message of the shared stream.
	consumer, err := js.CreateConsumer(ctx, stream.ExecutionsName, jetstream.ConsumerConfig{
		Durable: stream.RecorderConsumerName, AckPolicy: jetstream.AckExplicitPolicy,
	})
	check(err)
	batch, err := consumer.Fetch(1)
	check(err)
	for msg := range batch.Messages() {
		check(msg.DoubleAck(ctx))
	}

	got, err := ReadNATSUsage(ctx, js)
	check(err)
	find := func(name string) StreamUsage {
		t.Helper()
		i := slices.IndexFunc(got.Streams, func(s StreamUsage) bool { return s.Name == name })
		if i < 0 {
			t.Fatalf("%s is missing: %+v", name, got.Streams)
		}
		return got.Streams[i]
	}
	s := find(stream.ExecutionsName)
	if s.Kind != StreamKindStarts || s.Messages != shared || s.Bytes <= 0 || s.MaxBytes != 1<<20 ||
		s.MaxAge != 7*day || s.DedupWindow != day || s.DedupWindowMessages != shared ||
		s.Replicas != 1 || len(s.Servers) != 1 || s.UnrecordedMessages != shared-1 ||
		s.OldestUnrecordedAge <= 0 {
		t.Errorf("%+v", s)
	}
	if !near(s.WeekMessages.CoveredDays, 1./24) || !near(s.WeekMessages.PerDay, shared*24) {
		t.Errorf("in the first hour: %+v", s.WeekMessages)
	}
	s = find(stream.OwnStreamName("own"))
	if s.Kind != StreamKindStarts || s.Messages != own || s.MaxBytes != 1<<16 ||
		s.MaxAge != 2*day || s.DedupWindowMessages != own || s.UnrecordedMessages != 0 ||
		s.OldestUnrecordedAge != 0 {
		t.Errorf("%+v", s)
	}
	for _, name := range []string{stream.ProgressName, stream.OwnProgressStreamName("own")} {
		if s := find(name); s.Kind != StreamKindReports || s.MaxBytes <= 0 ||
			s.DedupWindowMessages != 0 {
			t.Errorf("%+v", s)
		}
	}
	if s := find(stream.ReportsName); s.Kind != StreamKindOther {
		t.Errorf("%+v", s)
	}
	if len(got.Tiers) != 1 || got.Tiers[0].MaxBytes != 0 || got.Tiers[0].MaxStreams != 0 ||
		got.Tiers[0].Streams != 5 || time.Since(got.SharedStreamCreatedAt) > time.Hour {
		t.Errorf("%+v, %s", got.Tiers, got.SharedStreamCreatedAt)
	}

	check(js.DeleteStream(ctx, stream.ExecutionsName))
	if got, err = ReadNATSUsage(ctx, js); err != nil || !got.SharedStreamCreatedAt.IsZero() {
		t.Errorf("without the shared stream: %s, %v", got.SharedStreamCreatedAt, err)
	}
}

// completeSince returns the time since which a stream has kept every message. This holds for a
// stream that is young, old, empty or restored from a backup, and for a stream that drops its
// oldest messages. The time is never further in the past than the stream's maximum age.
func TestBeginning(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		created, first time.Duration // before now
		messages       int64
		firstSequence  uint64
		dropsOldest    bool
		age            time.Duration
		want           time.Duration
	}{
		"young":                       {2 * day, day, 1, 1, false, 7 * day, 2 * day},
		"old, without a message":      {30 * day, 0, 0, 9, false, 7 * day, 7 * day},
		"old, first message today":    {30 * day, time.Hour, 1, 9, false, 7 * day, 7 * day},
		"kept forever":                {30 * day, day, 1, 9, false, 0, 30 * day},
		"restored from a backup":      {time.Hour, 5 * day, 1, 1, false, 7 * day, 5 * day},
		"the oldest are dropped":      {30 * day, 2 * day, 1, 9, true, 7 * day, 2 * day},
		"nothing was dropped yet":     {3 * day, 2 * day, 1, 1, true, 7 * day, 3 * day},
		"first message in the future": {day, -time.Hour, 1, 1, false, 7 * day, day},
	} {
		info := &jetstream.StreamInfo{TimeStamp: now, Created: now.Add(-c.created)}
		info.State.FirstTime, info.State.FirstSeq = now.Add(-c.first), c.firstSequence
		if c.dropsOldest {
			info.Config.Discard = jetstream.DiscardOld
		} else {
			info.Config.Discard = jetstream.DiscardNew
		}
		s := StreamUsage{Messages: c.messages, MaxAge: c.age}
		if got := now.Sub(s.completeSince(info)); got != c.want {
			t.Errorf("%s: %s ago, want %s", name, got, c.want)
		}
	}
}
