package recorder

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// lagging is a stream whose GetMsg reads from a replica that has not received any message yet.
type lagging struct{ jetstream.Stream }

func (lagging) GetMsg(
	context.Context, uint64, ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	return nil, jetstream.ErrMsgNotFound
}

// If a lagging replica does not have a message, readMessage queries the leader. Otherwise, the
// recorder could conclude that the stream was rolled back, and executions would run again.
func TestALaggingReplicaDoesNotDecide(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	want := nats.Header{stream.HeaderExecutionID: {"e1"}}
	stored := &nats.Msg{
		Subject: stream.StartSubject("default", "wf", "node"), Header: want, Data: []byte("body"),
	}
	if _, err := js.PublishMsg(ctx, stored); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}
	r := &Recorder{js: js}
	msg, err := r.readMessage(ctx, lagging{s}, 1)
	if err != nil || msg.Subject != stored.Subject || string(msg.Data) != "body" ||
		msg.Header.Get(stream.HeaderExecutionID) != "e1" || msg.Time.IsZero() {
		t.Errorf("the stored message: %+v, %v", msg, err)
	}
	if _, err := r.readMessage(ctx, lagging{s}, 2); !errors.Is(err, leader.ErrNoMessage) {
		t.Errorf("a message that was never stored: %v", err)
	}
}
