package ingress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/ingress/internal/publish"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/stream"
)

// registryStaleAfter is the maximum age of this process's copy of the registry. If the copy is
// older, the ingress reports that it is not ready, so that a load balancer sends requests
// elsewhere. The lease already expires, and requests get a 503, when the copy is 2 s old; the
// additional half second allows for a late renewal.
const registryStaleAfter = 2500 * time.Millisecond

// emptyMessageBytes is the approximate number of bytes that a message without a body occupies in
// the stream. A stream with less free space counts as full.
const emptyMessageBytes = 512

// readinessChecks returns the readiness checks. If one of them fails, the ingress cannot accept
// webhooks.
func readinessChecks(
	nc *nats.Conn, js jetstream.JetStream, lease *consistency.Lease, streams startMessageStreams,
) []ops.Check {
	return []ops.Check{
		bus.Check("ingress NATS", nc),
		{Component: "ingress registry", Probe: func(context.Context) error {
			age := lease.SinceCaughtUp(time.Now())
			if err := lease.RenewalError(); age > registryStaleAfter &&
				errors.Is(err, consistency.ErrNoRegistryIdentity) {
				return fmt.Errorf("%w; every webhook is answered 503 until an executor has "+
					"restored it", err)
			}
			if age > registryStaleAfter {
				return fmt.Errorf("its present state has not been known for %s: every webhook is "+
					"answered 503", age.Round(time.Second))
			}
			return nil
		}},
		{Component: "ingress stream", Probe: func(ctx context.Context) error {
			return streams.checkAnyAcceptsMessages(ctx, js)
		}},
	}
}

// startMessageStreams holds the streams in which start messages are stored.
type startMessageStreams struct {
	shared   *publish.StreamPublisher
	own      *publish.StreamRouter // for the queues' own streams
	registry *registry.Snapshot
}

// sharedStreamHeadStart is how long the readiness check waits for the shared stream to respond
// before it queries the queues' own streams as well.
const sharedStreamHeadStart = 500 * time.Millisecond

// checkAnyAcceptsMessages returns an error if no stream would store a message now. It does not
// store a message to check this. One available stream is enough for the ingress to be ready, even
// if the other streams fail or do not respond: the ingress then accepts requests for the queues in
// the available stream, and responds with 503 to requests for other queues.
func (p startMessageStreams) checkAnyAcceptsMessages(ctx context.Context,
	js jetstream.JetStream,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shared := make(chan error, 1) // nil after the response
	go func(response chan<- error) {
		response <- checkAcceptsMessages(ctx, js, stream.ExecutionsName, p.shared.LastFailure)
	}(shared)
	var err error
	select {
	case err = <-shared:
		if err == nil {
			return nil
		}
		shared = nil
	case <-time.After(sharedStreamHeadStart):
	}
	queues := p.registry.QueuesStoringInOwnStreams()
	own := make(chan error, len(queues))
	for _, queue := range queues {
		go func() {
			own <- checkAcceptsMessages(ctx, js, stream.OwnStreamName(queue),
				func(now time.Time) error { return p.own.LastFailure(queue, now) })
		}()
	}
	for unanswered := len(queues); unanswered > 0 || shared != nil; {
		select {
		case err = <-shared:
			if err == nil {
				return nil
			}
			shared = nil
		case err := <-own:
			if err == nil {
				return nil
			}
			unanswered--
		}
	}
	return err
}

// checkAcceptsMessages returns an error if the named stream would not store a message now.
// lastFailure returns why the stream did not store the last message, or nil.
func checkAcceptsMessages(
	ctx context.Context, js jetstream.JetStream, name string, lastFailure func(time.Time) error,
) error {
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return errors.New("there is no stream " + name + "; an executor makes it")
	}
	if err != nil {
		return fmt.Errorf("the stream %s: %w", name, err)
	}
	info := s.CachedInfo()
	if most := info.Config.MaxBytes; most > 0 && info.State.Bytes+emptyMessageBytes > uint64(most) {
		return fmt.Errorf("the stream %s is full: it holds %d of %d bytes", name,
			info.State.Bytes, most)
	}
	if err := lastFailure(time.Now()); err != nil {
		return fmt.Errorf("the last message was not stored: %w", err)
	}
	return nil
}
