package streamtest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// EnsureOwnStreams creates a queue's own streams in addition to the shared ones and changes their
// limits, and DeleteOwnStreams deletes them.
func TestEnsureOwn(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, settings := t.Context(), stream.DefaultSettings
	if err := errors.Join(stream.EnsureSharedStreams(ctx, js, settings),
		stream.EnsureReportsStream(ctx, js, 1)); err != nil {
		t.Fatal(err)
	}
	for _, limits := range []stream.QueueStreamLimits{
		{}, {MaxBytes: 1 << 20, MaxAge: time.Hour}, {MaxBytes: 1 << 20, MaxAge: time.Hour},
	} {
		if err := stream.EnsureOwnStreams(ctx, js, settings, "q", limits); err != nil {
			t.Fatal(err)
		}
		own, err := js.Stream(ctx, "QUEUE_q")
		if err != nil {
			t.Fatal(err)
		}
		want, have := settings.OwnStreamConfig("q", limits), own.CachedInfo().Config
		if have.MaxAge != want.MaxAge || have.MaxBytes != want.MaxBytes ||
			have.Duplicates != want.Duplicates || have.Discard != jetstream.DiscardNew {
			t.Errorf("%+v, want %+v", have, want)
		}
		reports, err := js.Stream(ctx, "PROGRESS_q")
		if err != nil || reports.CachedInfo().Config.MaxAge != want.MaxAge {
			t.Errorf("%v: %+v", err, reports)
		}
	}
	own := stream.Layout{Own: true}
	for subject, name := range map[string]string{
		own.StartSubject("q", "w", "n"):              "QUEUE_q",
		own.OrderedSubject("q", 3, "w", "n"):         "QUEUE_q",
		own.RejectedSubject("q", "w", "n"):           "QUEUE_q",
		own.DedupMarkerSubject("q", "w"):             "QUEUE_q",
		own.ProgressSubject("q", "w", id):            "PROGRESS_q",
		stream.Layout{}.DedupMarkerSubject("q", "w"): stream.ExecutionsName,
		stream.StartSubject("q", "w", "n"):           stream.ExecutionsName,
	} {
		if ack, err := js.Publish(ctx, subject, nil); err != nil || ack.Stream != name {
			t.Errorf("%s: %+v, %v", subject, ack, err)
		}
	}
	// A marker message with a delivery's ID makes the queue's own stream recognize a repeat of that
	// delivery.
	if ack, err := js.PublishMsg(ctx, own.DedupMarkerMessage("q", "w", "id-1")); err != nil ||
		ack.Duplicate {
		t.Errorf("%+v, %v", ack, err)
	}
	repeat := nats.NewMsg(own.StartSubject("q", "w", "n"))
	repeat.Header.Set(jetstream.MsgIDHeader, "id-1")
	if ack, err := js.PublishMsg(ctx, repeat); err != nil || !ack.Duplicate {
		t.Errorf("%+v, %v", ack, err)
	}
	starts, reports, err := stream.StreamNames(ctx, js)
	slices.Sort(starts)
	slices.Sort(reports)
	if err != nil || strings.Join(starts, " ") != "EXECUTIONS QUEUE_q" ||
		strings.Join(reports, " ") != "PROGRESS PROGRESS_q" {
		t.Errorf("%v %v %v", starts, reports, err)
	}
	if err := stream.EnsureOwnStreams(ctx, js, settings, "q", stream.QueueStreamLimits{
		PlacementTags: []string{"a"},
	}); !errors.Is(err, stream.ErrPlacementNeedsCluster) {
		t.Errorf("placement without a cluster: %v", err)
	}
	if err := stream.EnsureOwnStreams(ctx, js, settings, "q",
		stream.QueueStreamLimits{Replicas: 3}); !errors.Is(err, stream.ErrTooFewServers) {
		t.Errorf("three replicas on one server: %v", err)
	}
	for range 2 {
		if err := stream.DeleteOwnStreams(ctx, js, "q"); err != nil {
			t.Fatal(err)
		}
	}
	starts, reports, err = stream.StreamNames(ctx, js)
	if err != nil || len(starts)+len(reports) != 2 {
		t.Errorf("%v %v %v", starts, reports, err)
	}
}

// OldestExpiredBy finds the oldest message that a shorter maximum age would delete, in the shared
// stream or in the own stream of a queue without an age of its own.
func TestOldestExpiredBy(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	settings := stream.DefaultSettings
	if err := errors.Join(stream.EnsureSharedStreams(t.Context(), js, settings),
		stream.EnsureOwnStreams(t.Context(), js, settings, "q", stream.QueueStreamLimits{}),
	); err != nil {
		t.Fatal(err)
	}
	want := func(want string, maxAge time.Duration, now time.Time) {
		t.Helper()
		name, at, err := stream.OldestExpiredBy(t.Context(), js, maxAge, now)
		if err != nil || name != want || (name == "") != at.IsZero() {
			t.Errorf("%s, stored at %v, %v, want %q", name, at, err, want)
		}
	}
	later := time.Now().Add(2 * time.Hour)
	want("", time.Hour, later)
	at := stream.Layout{Own: true}
	if _, err := js.Publish(t.Context(), at.StartSubject("q", "wf", "n"), nil); err != nil {
		t.Fatal(err)
	}
	want(stream.OwnStreamName("q"), time.Hour, later)
	want("", 3*time.Hour, later)
	want("", 2*settings.MaxAge, later) // a longer age deletes nothing
}
