// Package headerreader reads the headers of a stream's messages with a named consumer. If two
// executors use the same name, only one of them can read at a time.
package headerreader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors returned by a Reader.
var (
	// ErrConsumerInUse means that another executor is reading with a consumer of the same name.
	ErrConsumerInUse = errors.New("another executor reads the stream")
	// ErrMessagesLost means that messages were lost on their way from the server. The caller must
	// read the stream from the beginning again.
	ErrMessagesLost = errors.New("messages were lost on the way")
)

const (
	// consumerInactiveThreshold is the time after which the server deletes the consumer of a reader
	// that has stopped without deleting it, for example because its process was killed.
	consumerInactiveThreshold = 5 * time.Second
	// ownerMetadataKey is the key in the consumer's metadata under which its reader stores a random
	// ID.
	ownerMetadataKey = "hookstart.owner"
)

// Reader reads the headers of a stream's messages with its own consumer. It is not safe for
// concurrent use.
type Reader struct {
	jetstream.Consumer

	js           jetstream.JetStream
	stream       string
	ownerID      string
	nextSequence uint64 // the expected consumer sequence of the next message
}

// Open creates a consumer and returns a Reader for it. config holds the consumer's name, which the
// executors' NATS permissions must allow, and selects the messages. Open fails with
// ErrConsumerInUse if another reader has a consumer with that name.
func Open(
	ctx context.Context, js jetstream.JetStream, streamName string, config jetstream.ConsumerConfig,
) (*Reader, error) {
	r := &Reader{js: js, stream: streamName, ownerID: uuid.NewString(), nextSequence: 1}
	config.AckPolicy = jetstream.AckNonePolicy
	config.HeadersOnly = true
	config.InactiveThreshold = consumerInactiveThreshold
	config.MemoryStorage = true
	config.Replicas = 1
	config.Metadata = map[string]string{ownerMetadataKey: r.ownerID}
	var err error
	r.Consumer, err = js.CreateConsumer(ctx, streamName, config)
	if errors.Is(err, jetstream.ErrConsumerExists) || err == nil && !r.owns(r.CachedInfo()) {
		return nil, fmt.Errorf("%w: consumer %s of %s", ErrConsumerInUse, config.Name, streamName)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of %s: %w", config.Name, streamName, err)
	}
	return r, nil
}

func (r *Reader) owns(info *jetstream.ConsumerInfo) bool {
	return info.Config.Metadata[ownerMetadataKey] == r.ownerID
}

// CheckedMetadata returns the metadata of msg, which must come from r's consumer. Call it for every
// message, in the order of delivery. It fails with ErrMessagesLost if a message that the server
// sent before msg has not arrived.
func (r *Reader) CheckedMetadata(msg jetstream.Msg) (*jetstream.MsgMetadata, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	if meta.Sequence.Consumer != r.nextSequence {
		return nil, ErrMessagesLost
	}
	r.nextSequence++
	return meta, nil
}

// ConsumerExists reports whether the server still has this reader's consumer. It returns false if
// the consumer with that name belongs to another reader.
func (r *Reader) ConsumerExists(ctx context.Context) bool {
	info, err := r.Info(ctx)
	return err == nil && r.owns(info)
}

// Close deletes the consumer, so that another reader can begin immediately. If that fails, the
// server deletes it a few seconds later.
func (r *Reader) Close(ctx context.Context) {
	// Another reader may have created a consumer with the same name. Do not delete that reader's
	// consumer.
	if r.ConsumerExists(ctx) {
		_ = r.js.DeleteConsumer(ctx, r.stream, r.CachedInfo().Name)
	}
}
