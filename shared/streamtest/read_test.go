package streamtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// ForEachMessage passes on exactly the messages that a stream holds at the time of the call, or
// only those on given subjects. It stops at an error.
func TestRead(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(subjects ...string) {
		for _, subject := range subjects {
			if _, err := js.Publish(ctx, subject, nil); err != nil {
				t.Error(err)
			}
		}
	}
	read := func(each func() error, subjects ...string) (string, error) {
		var got []string
		err := stream.ForEachMessage(ctx, js, "S",
			jetstream.OrderedConsumerConfig{FilterSubjects: subjects},
			func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
				if state, err := s.GetMsg(ctx, meta.Sequence.Stream); err != nil ||
					state.Subject != msg.Subject() {
					t.Errorf("message %d: %+v, %v", meta.Sequence.Stream, state, err)
				}
				got = append(got, msg.Subject())
				return each()
			})
		return strings.Join(got, " "), err
	}
	more := func() error { publish("s.a", "s.b"); return nil }
	if got, err := read(more); got != "" || err != nil {
		t.Errorf("an empty stream: %q, %v", got, err)
	}
	publish("s.a", "s.b", "s.a", "s.c")
	if got, err := read(more, "s.d"); got != "" || err != nil {
		t.Errorf("no message of the subject: %q, %v", got, err)
	}
	if got, err := read(more, "s.b", "s.c"); got != "s.b s.c" || err != nil {
		t.Errorf("two subjects: %q, %v", got, err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(ctx, info.State.LastSeq); err != nil { // the message on s.b
		t.Fatal(err)
	}
	if got, err := read(more); !strings.HasSuffix(got, " s.a") || err != nil {
		t.Errorf("the newest message deleted: %q, %v", got, err)
	}
	if err := s.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := read(more); got != "" || err != nil {
		t.Errorf("a purged stream: %q, %v", got, err)
	}
	const many = 1200 // more than the client requests at once
	publish(slices.Repeat([]string{"s.a"}, many)...)
	if got, err := read(more); got != strings.Repeat("s.a ", many-1)+"s.a" || err != nil {
		t.Errorf("a stream that grows: %d messages, %v", strings.Count(got, " ")+1, err)
	}
	failure := errors.New("no more")
	if got, err := read(func() error { return failure }); got != "s.a" || !errors.Is(err, failure) {
		t.Errorf("after an error: %q, %v", got, err)
	}
	if err := js.DeleteStream(ctx, "S"); err != nil {
		t.Fatal(err)
	}
	if _, err := read(more); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
}
