package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream/leader"
)

// nextMessageTimeout is how long ForEachMessage waits for the next message that it knows to be in
// the stream.
const nextMessageTimeout = 30 * time.Second

// ForEachMessage calls each(msg, meta) for every message that a stream holds at the time of the
// call, in the order of the stream. It stops at the first error and returns it. config can select
// messages and omit their data; its zero value means all messages with their data.
func ForEachMessage(
	ctx context.Context, js jetstream.JetStream, name string,
	config jetstream.OrderedConsumerConfig,
	each func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error,
) error {
	failed := func(err error) error { return fmt.Errorf("read %s: %w", name, err) }
	last, exists, err := lastSequence(ctx, js, name, config.FilterSubjects)
	if err != nil {
		return failed(err)
	}
	if last == 0 {
		return nil
	}
	messages, err := orderedMessages(ctx, js, name, config)
	if err != nil {
		return failed(err)
	}
	defer messages.Stop()
	for {
		waiting, cancel := context.WithTimeout(ctx, nextMessageTimeout)
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
		if meta.Sequence.Stream == last || !exists && meta.NumPending == 0 {
			return nil
		}
	}
}

// orderedMessages returns an iterator over the messages of the named stream that config selects, in
// the order of the stream.
func orderedMessages(
	ctx context.Context, js jetstream.JetStream, name string,
	config jetstream.OrderedConsumerConfig,
) (jetstream.MessagesContext, error) {
	consumer, err := js.OrderedConsumer(ctx, name, config)
	if err != nil {
		return nil, err
	}
	return consumer.Messages()
}

// lastSequence returns the sequence number of the last message of a stream. If subjects is not
// empty, it considers only the messages on these subjects that still exist. If subjects is empty,
// last is the highest number that the stream has used, even if the message with this number was
// deleted. exists reports whether the message with the number last still exists. last is 0 if there
// is no such message, or if the stream is empty.
//
// lastSequence queries the stream's leader. The server of a consumer may lag behind, so the
// consumer's number of pending messages may be too small.
func lastSequence(
	ctx context.Context, js jetstream.JetStream, name string, subjects []string,
) (last uint64, exists bool, err error) {
	info, err := js.Stream(ctx, name)
	if err != nil {
		return 0, false, err
	}
	state := info.CachedInfo().State
	if state.Msgs == 0 {
		return 0, false, nil
	}
	all := len(subjects) == 0
	if all {
		subjects = []string{">"}
	}
	for _, subject := range subjects {
		msg, err := leader.Get(ctx, js.Conn(), name, leader.Query{LastBySubject: subject})
		switch {
		case errors.Is(err, leader.ErrNoMessage):
		case err != nil:
			return 0, false, err
		default:
			last, exists = max(last, msg.Sequence), true
		}
	}
	// For the subject ">", NATS looks only at the stream's last sequence. If the message with that
	// sequence was deleted, NATS reports that there is no message.
	if all && last == 0 {
		last = state.LastSeq
	}
	return last, exists, nil
}
