package publish

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/stream"
)

// StreamRouter publishes each message to its stream: the shared one, or a queue's own. Each stream
// has a separate StreamPublisher, so that a stream that stores nothing or does not reply does not
// delay messages to other streams. StreamRouter is safe for concurrent use.
type StreamRouter struct {
	nc     *nats.Conn
	shared *StreamPublisher

	byQueue atomic.Pointer[map[string]*StreamPublisher] // keyed by queue; replaced at each change
	mu      sync.Mutex                                  // held while byQueue is changed
}

// NewStreamRouter returns a StreamRouter that publishes to the shared stream through shared, which
// the caller must close.
func NewStreamRouter(nc *nats.Conn, shared *StreamPublisher) *StreamRouter {
	s := &StreamRouter{nc: nc, shared: shared}
	s.byQueue.Store(&map[string]*StreamPublisher{})
	return s
}

// Publish publishes a message to the stream to which its subject belongs. See
// StreamPublisher.Publish.
func (s *StreamRouter) Publish(msg *nats.Msg, choice StreamChoice) (Ack, error) {
	layout, queue := stream.LayoutOf(msg.Subject)
	if !layout.Own {
		return s.shared.Publish(msg, choice)
	}
	p, err := s.publisherFor(queue)
	if err != nil {
		return Ack{}, err
	}
	return p.Publish(msg, choice)
}

// LookupDuplicate looks up a message's ID in the stream to which its subject belongs. See
// StreamPublisher.LookupDuplicate.
func (s *StreamRouter) LookupDuplicate(msg *nats.Msg) (Ack, error) {
	layout, queue := stream.LayoutOf(msg.Subject)
	if !layout.Own {
		return s.shared.LookupDuplicate(msg)
	}
	p, err := s.publisherFor(queue)
	if err != nil {
		return Ack{}, err
	}
	return p.LookupDuplicate(msg)
}

// publisherFor returns the StreamPublisher of a queue's own stream, which it creates when it is
// first needed.
func (s *StreamRouter) publisherFor(queue string) (*StreamPublisher, error) {
	if p := (*s.byQueue.Load())[queue]; p != nil {
		return p, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := *s.byQueue.Load()
	if p := have[queue]; p != nil {
		return p, nil
	}
	p, err := NewForStream(s.nc, stream.OwnStreamName(queue), s.shared.timeout)
	if err != nil {
		return nil, s.shared.wrapUnavailable(ErrUnavailable, err)
	}
	next := maps.Clone(have)
	next[queue] = p
	s.byQueue.Store(&next)
	return p, nil
}

// LastFailure returns why a queue's own stream did not store the last message, or nil. See
// StreamPublisher.LastFailure.
func (s *StreamRouter) LastFailure(queue string, now time.Time) error {
	if p := (*s.byQueue.Load())[queue]; p != nil {
		return p.LastFailure(now)
	}
	return nil
}

// Close closes the StreamPublishers of the queues' own streams. Messages that have not been
// confirmed yet fail.
func (s *StreamRouter) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range *s.byQueue.Load() {
		p.Close()
	}
}
