package stream_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

func TestConsumerBeginsAfter(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000, 0)
	earlier, later := at.Add(-time.Second), at.Add(time.Second)
	for _, c := range []struct {
		consumer jetstream.ConsumerConfig
		created  time.Time
		want     bool
	}{
		{jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}, later, false},
		{jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}, later, true},
		{jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}, earlier, false},
		{jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 8,
		}, later, true},
		{jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 7,
		}, later, false},
		{jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &later,
		}, earlier, true},
		{jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at,
		}, later, false},
	} {
		info := &jetstream.ConsumerInfo{Config: c.consumer, Created: c.created}
		if got := stream.ConsumerBeginsAfter(info, 7, at); got != c.want {
			t.Errorf("%+v, created %v: %v", c.consumer, c.created, got)
		}
	}
}
