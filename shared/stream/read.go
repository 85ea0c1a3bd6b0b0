package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// readTimeout is how long Read waits for the next message, which should be available.
const readTimeout = 30 * time.Second

// Read calls each for every message that a stream holds at the time of the call, in their order,
// until each returns an error. A config selects and shortens the messages; its zero value means all
// of them.
func Read(
	ctx context.Context, js jetstream.JetStream, name string,
	config jetstream.OrderedConsumerConfig,
	each func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error,
) error {
	failed := func(err error) error { return fmt.Errorf("read %s: %w", name, err) }
	from, err := js.Stream(ctx, name)
	if err != nil {
		return failed(err)
	}
	last := from.CachedInfo().State.LastSeq
	consumer, err := from.OrderedConsumer(ctx, config)
	if err != nil {
		return failed(err)
	}
	if info, err := consumer.Info(ctx); err != nil {
		return failed(err)
	} else if info.NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return failed(err)
	}
	defer messages.Stop()
	for {
		waiting, cancel := context.WithTimeout(ctx, readTimeout)
		msg, err := messages.Next(jetstream.NextContext(waiting))
		cancel()
		if err != nil {
			return failed(err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return failed(err)
		}
		if meta.Sequence.Stream > last {
			return nil
		}
		if err := each(msg, meta); err != nil {
			return err
		}
		if meta.Sequence.Stream == last || meta.NumPending == 0 {
			return nil
		}
	}
}
