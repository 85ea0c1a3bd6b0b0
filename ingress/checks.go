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
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/stream"
)

// staleAfter is the age of the registry's copy from which this ingress reports that it is not
// ready, so that a load balancer sends requests elsewhere. Requests get 503 from 2 s on; the
// additional half second allows for a late renewal.
const staleAfter = 2500 * time.Millisecond

// smallestMessage is the approximate size, in the stream, of a message without a body.
const smallestMessage = 512

// checks returns the conditions of readiness. If one of them fails, the ingress cannot accept
// webhooks.
func checks(
	nc *nats.Conn, js jetstream.JetStream, lease *consistency.Lease, publisher *publish.Publisher,
) []ops.Check {
	return []ops.Check{
		bus.Check("ingress NATS", nc),
		{Part: "ingress registry", Ask: func(context.Context) error {
			age := lease.Age(time.Now())
			if err := lease.Failure(); age > staleAfter &&
				errors.Is(err, consistency.ErrUnidentified) {
				return fmt.Errorf("%w; every webhook is answered 503 until an executor has "+
					"restored it", err)
			}
			if age > staleAfter {
				return fmt.Errorf("its present state has not been known for %s: every webhook is "+
					"answered 503", age.Round(time.Second))
			}
			return nil
		}},
		{Part: "ingress stream", Ask: func(ctx context.Context) error {
			return takesMessages(ctx, js, publisher)
		}},
	}
}

// takesMessages returns an error if the stream would not store a message now. The check itself
// stores none.
func takesMessages(
	ctx context.Context, js jetstream.JetStream, publisher *publish.Publisher,
) error {
	s, err := js.Stream(ctx, stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return errors.New("there is no stream " + stream.Name + "; an executor makes it")
	}
	if err != nil {
		return fmt.Errorf("the stream %s: %w", stream.Name, err)
	}
	info := s.CachedInfo()
	if most := info.Config.MaxBytes; most > 0 && info.State.Bytes+smallestMessage > uint64(most) {
		return fmt.Errorf("the stream %s is full: it holds %d of %d bytes", stream.Name,
			info.State.Bytes, most)
	}
	if err := publisher.Trouble(time.Now()); err != nil {
		return fmt.Errorf("the last message was not stored: %w", err)
	}
	return nil
}
