// Package starts reads the start messages of executions from the streams, and publishes new ones. A
// queue's start messages are in the shared stream or in the queue's own stream. While a queue moves
// from one to the other, and until its old messages have expired, each stream may hold some of
// them.
package starts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Streams reads and publishes the start messages in the shared stream and in queues' own streams.
// It is safe for concurrent use.
type Streams struct {
	js jetstream.JetStream

	mu            sync.Mutex
	streamsByName map[string]jetstream.Stream // the streams that have been looked up, by name
}

// New returns the Streams of the installation that js connects to.
func New(js jetstream.JetStream) *Streams {
	return &Streams{js: js, streamsByName: map[string]jetstream.Stream{}}
}

// GetStart returns the start message or the rejection of an execution. It reads the given sequence
// of both the shared stream and the queue's own stream, because the queue may have moved, and
// ignores messages of other executions. It fails with jetstream.ErrMsgNotFound if neither stream
// has the message.
func (s *Streams) GetStart(
	ctx context.Context, queue string, sequence uint64, executionID string,
) (*jetstream.RawStreamMsg, error) {
	var failed error
	for _, name := range []string{stream.ExecutionsName, stream.OwnStreamName(queue)} {
		msg, err := s.MessageAt(ctx, name, sequence)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case errors.Is(err, jetstream.ErrStreamNotFound) && name != stream.ExecutionsName:
		case err != nil:
			failed = errors.Join(failed, err)
		case msg.Header.Get(stream.HeaderExecutionID) == executionID:
			return msg, nil
		}
	}
	if failed != nil {
		return nil, failed
	}
	return nil, jetstream.ErrMsgNotFound
}

// MessageAt returns the message at a sequence of a stream. It fails with
// jetstream.ErrStreamNotFound if the stream does not exist.
func (s *Streams) MessageAt(
	ctx context.Context, name string, sequence uint64,
) (*jetstream.RawStreamMsg, error) {
	from, err := s.stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	msg, err := from.GetMsg(ctx, sequence)
	if errors.Is(err, nats.ErrNoResponders) { // the stream may have been deleted
		s.mu.Lock()
		delete(s.streamsByName, name)
		s.mu.Unlock()
		if _, found := s.stream(ctx, name); found != nil {
			err = found
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read message %d of %s: %w", sequence, name, err)
	}
	return msg, nil
}

// OldestSequence returns the lowest sequence that a message of the queue can have: the lower one of
// the first sequences of the shared stream and of the queue's own stream.
func (s *Streams) OldestSequence(ctx context.Context, queue string) (oldest uint64, err error) {
	for _, name := range []string{stream.ExecutionsName, stream.OwnStreamName(queue)} {
		found, err := s.js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && name != stream.ExecutionsName:
		case err != nil:
			return 0, fmt.Errorf("stream %s: %w", name, err)
		default:
			first := found.CachedInfo().State.FirstSeq
			if name == stream.ExecutionsName || first < oldest {
				oldest = first
			}
		}
	}
	return oldest, nil
}

// stream returns the stream with the given name, which it looks up only once.
func (s *Streams) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s.mu.Lock()
	found := s.streamsByName[name]
	s.mu.Unlock()
	if found != nil {
		return found, nil
	}
	found, err := s.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamsByName[name] = found
	return found, nil
}

// ErrQueueMoving means that a queue accepts no start messages now, because it is moving to another
// stream.
var ErrQueueMoving = errors.New("the queue is being moved to another stream; try again in a moment")

const (
	// awaitMoveTimeout is how long Publish waits for a queue that is closed for a move.
	awaitMoveTimeout      = 5 * time.Second
	awaitMovePollInterval = 50 * time.Millisecond
)

// Publish stores the start message of a workflow's execution in the stream that the queue uses now.
// message must build the start message for that stream: the shared one or the queue's own. While
// the queue is closed for a move, Publish waits for up to awaitMoveTimeout, and then fails with
// ErrQueueMoving.
//
// The queue may move while the message is being stored, when the delivery IDs have already been
// copied to the new stream. Publish therefore reads the queue's phase again. If the queue has
// moved, Publish also stores the message's ID in the new stream, which then recognizes duplicates
// of the message.
//
// If NATS does not confirm the message, Publish cannot tell whether it was stored, and does not
// store its ID in the new stream. A later call with the same ID may then store the message a second
// time, in the new stream. Before such a call, callers must therefore check whether the execution
// is already recorded.
func (s *Streams) Publish(
	ctx context.Context, queue, workflowID string,
	message func(stream.Layout) (*nats.Msg, error),
) (*jetstream.PubAck, error) {
	layout, err := s.awaitLayout(ctx, queue)
	if err != nil {
		return nil, err
	}
	msg, err := message(layout)
	if err != nil {
		return nil, err
	}
	ack, err := s.publishWithRetry(ctx, msg)
	id := msg.Header.Get(jetstream.MsgIDHeader)
	if err != nil || id == "" {
		return ack, err
	}
	phase, err := stream.ReadQueuePhase(ctx, s.js, queue)
	if err != nil {
		return nil, err
	}
	now, open := phase.Layout()
	if !open { // the queue is leaving this stream
		now.Own = !now.Own
	}
	if now != layout {
		_, err = s.publishWithRetry(ctx, now.DedupMarkerMessage(queue, workflowID, id))
	}
	return ack, err
}

// awaitLayout waits until the queue accepts start messages, and returns the layout of the stream
// that stores them. After awaitMoveTimeout, it fails with ErrQueueMoving.
func (s *Streams) awaitLayout(ctx context.Context, queue string) (layout stream.Layout, err error) {
	waiting, cancel := context.WithTimeout(ctx, awaitMoveTimeout)
	defer cancel()
	open := false
	retry.Until(waiting, awaitMovePollInterval, func() bool {
		var phase stream.QueueStreamPhase
		if phase, err = stream.ReadQueuePhase(ctx, s.js, queue); err == nil {
			layout, open = phase.Layout()
		}
		return err != nil || open
	})
	if err == nil && !open {
		err = ErrQueueMoving
	}
	return layout, err
}

// publishWithRetry publishes a message. It retries while the server is still storing another
// message with the same ID.
func (s *Streams) publishWithRetry(
	ctx context.Context, msg *nats.Msg,
) (ack *jetstream.PubAck, err error) {
	retry.Until(ctx, 20*time.Millisecond, func() bool {
		ack, err = s.js.PublishMsg(ctx, msg)
		return stream.ErrorCode(err) != stream.CodeDuplicateInProcess
	})
	return ack, err
}
