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
		{jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy}, later, true},
		{jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy}, earlier, false},
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

// A runner that does not use the kits may name its consumer as it likes, and filter by any subjects
// of start messages.
func TestIsRunnerConsumer(t *testing.T) {
	t.Parallel()
	const start = "executions.start.q.wf.n"
	for _, c := range []struct {
		filters  []string
		is       bool // whether it belongs to a runner
		receives bool // whether it receives start
	}{
		{[]string{"executions.start.q.>"}, true, true},
		{[]string{"executions.start.>"}, true, true},
		{[]string{"executions.start.*.*.*"}, true, true},
		{[]string{"executions.start.q.*"}, true, false},
		{[]string{"executions.start.q.wf.n.>"}, true, false},
		{[]string{"executions.ordered.q.3.>", "executions.start.q.>"}, true, true},
		{[]string{"executions.queue.q.start.>"}, true, false},
		{[]string{"executions.queue.*.ordered.3.>"}, true, false},
		{[]string{"executions.start.q.>", "executions.rejected.q.>"}, false, true},
		{[]string{"executions.queue.q.>"}, false, false},
		{[]string{"executions.>"}, false, true},
		{nil, false, true},
	} {
		config := jetstream.ConsumerConfig{Durable: "mine", FilterSubjects: c.filters}
		if len(c.filters) == 1 {
			config.FilterSubject, config.FilterSubjects = c.filters[0], nil
		}
		if is, receives := stream.IsRunnerConsumer(config),
			stream.ConsumerReceives(config, start); is != c.is || receives != c.receives {
			t.Errorf("%q: belongs to a runner %t, receives %t", c.filters, is, receives)
		}
		unacknowledged, ephemeral := config, config
		unacknowledged.AckPolicy, ephemeral.Durable = jetstream.AckNonePolicy, ""
		if stream.IsRunnerConsumer(unacknowledged) || stream.IsRunnerConsumer(ephemeral) {
			t.Errorf("%q: a reader is taken for a runner", c.filters)
		}
	}
}
