package registry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"
)

// Sink takes the registry's changes. Its methods are called by one goroutine.
type Sink interface {
	// Apply takes one change. Revisions only grow.
	Apply(c Change)
	// Loaded says that all that was there at the beginning has been applied.
	Loaded()
}

// Follower brings the registry's changes to a sink, and knows how far it is.
type Follower struct {
	js   jetstream.JetStream
	sink Sink
	log  logrus.FieldLogger

	consume jetstream.ConsumeContext

	mu       sync.Mutex
	revision uint64
	loaded   bool
	target   uint64        // loaded once the revision is at least this
	moved    chan struct{} // closed and replaced when the fields above change
}

// Follow loads the registry into sink and keeps it up to date until Stop. The bucket
// must exist. It survives lost connections and restarted servers; ctx bounds only how long
// it waits for a cluster that does not answer yet.
func Follow(ctx context.Context, js jetstream.JetStream, sink Sink, log logrus.FieldLogger) (*Follower, error) {
	var (
		state    jetstream.StreamState
		consumer jetstream.Consumer
	)
	err := ask(ctx, func(ctx context.Context) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		state = s.CachedInfo().State
		// The fastest loader of those that were measured: 164,000 records a second.
		consumer, err = js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		})
		return err
	})
	f := &Follower{js: js, sink: sink, log: log, target: state.LastSeq, moved: make(chan struct{})}
	if err != nil {
		return nil, fmt.Errorf("follow the registry: %w", err)
	}
	if state.Msgs == 0 { // nothing will come that could say so
		f.revision = state.LastSeq
		f.finishLoading()
	}
	f.consume, err = consumer.Consume(f.handle,
		jetstream.PullMaxMessages(5000),
		jetstream.PullHeartbeat(2*time.Second), jetstream.PullExpiry(10*time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			log.WithError(err).Warn("the registry's consumer reports an error; it goes on")
		}))
	if err != nil {
		return nil, fmt.Errorf("follow the registry: %w", err)
	}
	return f, nil
}

// Stop ends following.
func (f *Follower) Stop() { f.consume.Stop() }

func (f *Follower) handle(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		f.log.WithError(err).Error("a registry message without metadata was left out")
		return
	}
	operation := msg.Headers().Get("KV-Operation")
	change, err := decodeChange(msg.Subject(), operation == "DEL" || operation == "PURGE", meta.Sequence.Stream, meta.Timestamp, msg.Data())
	if err != nil {
		// The record as it was before stays in force: one bad record must not stop all others.
		f.log.WithError(err).WithField("subject", msg.Subject()).Error("a registry record cannot be read; it was left out")
	} else {
		f.sink.Apply(change)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision = max(f.revision, meta.Sequence.Stream)
	// The bucket's newest message may be gone by now; then nothing pending says it.
	if !f.loaded && (f.revision >= f.target || meta.NumPending == 0) {
		f.finishLoading()
	}
	close(f.moved)
	f.moved = make(chan struct{})
}

func (f *Follower) finishLoading() {
	f.sink.Loaded()
	f.loaded = true
}

// Revision is how far the sink is.
func (f *Follower) Revision() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// untilMoved is closed at the next change.
func (f *Follower) untilMoved() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

// waitLoaded waits until all that was there at the beginning is applied.
func (f *Follower) waitLoaded(ctx context.Context) error {
	return f.wait(ctx, func() bool { return f.loaded })
}

// Wait waits until the sink has applied a revision.
func (f *Follower) Wait(ctx context.Context, revision uint64) error {
	return f.wait(ctx, func() bool { return f.revision >= revision })
}

// CatchUp waits until the sink has applied all that is stored now.
func (f *Follower) CatchUp(ctx context.Context) error {
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("ask for the registry's revision: %w", err)
	}
	return f.Wait(ctx, s.CachedInfo().State.LastSeq)
}

func (f *Follower) wait(ctx context.Context, reached func() bool) error {
	for {
		f.mu.Lock()
		done, moved := reached(), f.moved
		f.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the registry is at revision %d: %w", f.Revision(), ctx.Err())
		case <-moved:
		}
	}
}
