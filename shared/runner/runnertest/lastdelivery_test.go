package runnertest_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// stream.IsLastDelivery is true for a delivery until the message is acknowledged or delivered
// again, even to another client. The test is in this package because the module of package stream
// must not depend on a NATS server, not even in its tests.
func TestIsLastDelivery(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:     "LANES",
		Subjects: []string{"lane.*"},
	}); err != nil {
		t.Fatal(err)
	}
	consumer, err := js.CreateConsumer(t.Context(), "LANES", jetstream.ConsumerConfig{
		Durable:       "lane",
		AckPolicy:     jetstream.AckExplicitPolicy,
		MaxAckPending: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := js.Publish(t.Context(), "lane.0", nil); err != nil {
			t.Fatal(err)
		}
	}
	next := func() jetstream.Msg {
		msg, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	expect := func(when string, msg jetstream.Msg, want bool) {
		t.Helper()
		if got, err := stream.IsLastDelivery(t.Context(), js, msg); err != nil || got != want {
			t.Errorf("%s: %t, %v, want %t", when, got, err, want)
		}
	}
	first := next()
	expect("delivered", first, true)
	if err := first.Nak(); err != nil {
		t.Fatal(err)
	}
	second := next()
	expect("delivered again", first, false)
	expect("the second delivery", second, true)
	if err := second.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("acknowledged", second, false)
	third := next()
	expect("another message was delivered", second, false)
	expect("the other message", third, true)
	if err := js.DeleteConsumer(t.Context(), "LANES", "lane"); err != nil {
		t.Fatal(err)
	}
	expect("without a consumer", third, false)
}
