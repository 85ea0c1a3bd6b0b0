// Package headerreader reads the headers of a stream's messages by a consumer that only one
// executor has at a time.
package headerreader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

// These are the errors of a reader.
var (
	// ErrTaken means that another reader has the consumer.
	ErrTaken = errors.New("another executor reads the stream")
	// ErrGap means that messages were lost between the server and the reader. The reading must
	// begin again.
	ErrGap = errors.New("messages were lost on the way")
)

const (
	// abandonedAfter is the time after which the server deletes the consumer of a reader that has
	// ended without doing so.
	abandonedAfter = 5 * time.Second
	// ownerKey is the key, in the consumer's metadata, of the reader that has it.
	ownerKey = "hookstart.owner"
)

// Reader reads the headers of a stream. One goroutine uses it.
type Reader struct {
	jetstream.Consumer

	js     jetstream.JetStream
	stream string
	owner  string
	next   uint64 // the consumer sequence of the next message
}

// Begin creates the consumer of a reader. config has its name, which the permissions of executors
// contain, and selects the messages. Begin fails with ErrTaken if another reader has a consumer of
// that name.
func Begin(
	ctx context.Context, js jetstream.JetStream, streamName string, config jetstream.ConsumerConfig,
) (*Reader, error) {
	r := &Reader{js: js, stream: streamName, owner: uuid.NewString(), next: 1}
	config.AckPolicy = jetstream.AckNonePolicy
	config.HeadersOnly = true
	config.InactiveThreshold = abandonedAfter
	config.MemoryStorage = true
	config.Replicas = 1
	config.Metadata = map[string]string{ownerKey: r.owner}
	var err error
	r.Consumer, err = js.CreateConsumer(ctx, streamName, config)
	if errors.Is(err, jetstream.ErrConsumerExists) || err == nil && !r.owns(r.CachedInfo()) {
		return nil, fmt.Errorf("%w: consumer %s of %s", ErrTaken, config.Name, streamName)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of %s: %w", config.Name, streamName, err)
	}
	return r, nil
}

func (r *Reader) owns(info *jetstream.ConsumerInfo) bool {
	return info.Config.Metadata[ownerKey] == r.owner
}

// Metadata returns the metadata of the next message that the reader has received, or ErrGap if that
// is not the message after the one before.
func (r *Reader) Metadata(msg jetstream.Msg) (*jetstream.MsgMetadata, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	if meta.Sequence.Consumer != r.next {
		return nil, ErrGap
	}
	r.next++
	return meta, nil
}

// End deletes the consumer, so that another reader can begin at once. A consumer that remains is
// deleted by the server after a few seconds.
func (r *Reader) End(ctx context.Context) {
	// Another reader may have created its own consumer meanwhile.
	if info, err := r.Info(ctx); err == nil && r.owns(info) {
		_ = r.js.DeleteConsumer(ctx, r.stream, info.Name)
	}
}
