package stream_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

func TestCaughtUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		floor, pending uint64
		unacknowledged int
		want           bool
	}{
		"the floor has reached the last message": {10, 5, 3, true},
		"the floor is beyond it":                 {11, 5, 3, true},
		"a message is unacknowledged":            {9, 0, 1, false},
		"a message was not delivered":            {9, 1, 0, false},
		"the last message is not the consumer's": {9, 0, 0, true},
	} {
		info := &jetstream.ConsumerInfo{
			AckFloor:      jetstream.SequenceInfo{Stream: c.floor},
			NumPending:    c.pending,
			NumAckPending: c.unacknowledged,
		}
		if got := stream.CaughtUp(info, 10); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
