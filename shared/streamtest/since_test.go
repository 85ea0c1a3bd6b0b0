package streamtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// SequenceSince returns the sequence of the first message that was stored at the given time or
// later, even if a message from exactly that time was deleted. It returns an error if there is no
// such message.
func TestFirstSince(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	if at, err := stream.SequenceSince(ctx, js, stream.ExecutionsName, time.Time{}); !errors.Is(err,
		jetstream.ErrMsgNotFound) {
		t.Errorf("an empty stream: %d, %v", at, err)
	}
	for range 5 {
		if _, err := js.Publish(ctx, stream.StartSubject("q", "wf", "node"),
			[]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	s, err := js.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}
	stored := map[uint64]time.Time{}
	for sequence := uint64(1); sequence <= 5; sequence++ {
		msg, err := s.GetMsg(ctx, sequence)
		if err != nil {
			t.Fatal(err)
		}
		stored[sequence] = msg.Time
	}
	if err := s.DeleteMsg(ctx, 3); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		since time.Time
		want  uint64
	}{
		{stored[1].Add(-time.Hour), 1},
		{stored[1], 1},
		{stored[1].Add(1), 2},
		{stored[3], 4},
		{stored[5], 5},
	} {
		if got, err := stream.SequenceSince(ctx, js, stream.ExecutionsName, c.since); err != nil ||
			got != c.want {
			t.Errorf("since %s: %d, %v, want %d", c.since, got, err, c.want)
		}
	}
	if got, err := stream.SequenceSince(ctx, js, stream.ExecutionsName,
		stored[5].Add(1)); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("after the last: %d, %v", got, err)
	}
	none, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if got, err := stream.SequenceSince(none, js, "NONE", time.Time{}); err == nil {
		t.Errorf("a stream that does not exist: %d", got)
	}
}
