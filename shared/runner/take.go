package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// pullExpiry is the time for which a request for messages stays at the server. A cluster in which
// runners have an account of their own does not notice that the runner of a request has ended: a
// message that it sends for the request is delivered again after AckWait, as the next attempt.
const pullExpiry = 5 * time.Second

// take begins executions until the context ends. It calls stop when it fails; executions that were
// begun may finish.
func (r *runner) take(ctx context.Context, stop func(), consumer jetstream.Consumer) error {
	for {
		free := takeAll(ctx, r.places)
		if free == 0 {
			return nil
		}
		pull := r.pull
		if r.lanes.Err() != nil { // lanes need places, too
			pull = r.pullBesideLanes
			for ; free > (r.Concurrency+1)/2; free-- {
				r.leave()
			}
		}
		began, err := pull(ctx, consumer, free)
		for range free - began {
			r.leave()
		}
		if err != nil {
			stop()
			return fmt.Errorf("runner: consumer %s: %w", r.consumer(), err)
		}
	}
}

// takeAll takes all available tokens, after it has waited for the first one. It returns 0 when the
// context ends.
func takeAll(ctx context.Context, tokens <-chan struct{}) (n int) {
	select {
	case <-tokens:
	case <-ctx.Done():
		return 0
	}
	for n = 1; ; n++ {
		select {
		case <-tokens:
		default:
			return n
		}
	}
}

// pull asks the server for as many messages as there are free places, and begins them as they
// arrive, until it has them all or the context ends. Each request has its own iterator: an iterator
// with a longer life asks for more when half of its messages were taken, however long their
// handlers work. A message that waits for a place longer than AckWait would also run in another
// member.
func (r *runner) pull(ctx context.Context, consumer jetstream.Consumer, places int) (began int, err error) {
	messages, err := consumer.Messages(jetstream.PullMaxMessages(places), jetstream.StopAfter(places), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullExpiry/2))
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Drain)()
	defer context.AfterFunc(r.lanes, messages.Drain)() //nolint:contextcheck // it says since when the queue has lanes
	for {
		msg, err := stream.Next(messages)
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return began, nil
		case err != nil:
			return began, err
		case r.beginOrNak(ctx, msg):
			began++
		}
	}
}

// pullBesideLanes does the same as pull, but asks once, and returns when the request has expired:
// lanes can use the places then.
func (r *runner) pullBesideLanes(ctx context.Context, consumer jetstream.Consumer, places int) (began int, err error) {
	batch, err := consumer.Fetch(places, jetstream.FetchMaxWait(pullExpiryWithLanes))
	if err != nil {
		return 0, err
	}
	for msg := range batch.Messages() {
		if r.beginOrNak(ctx, msg) {
			began++
		}
	}
	if err := batch.Error(); errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrBadRequest) {
		return began, err
	} else if err != nil { // the server restarts, or has no leader
		pause(ctx, laneLatest)
	}
	return began, nil
}

// beginOrNak begins an execution without an order key, and returns true. When the runner stops, it
// returns the message to the group, and false.
func (r *runner) beginOrNak(ctx context.Context, msg jetstream.Msg) bool {
	if ctx.Err() != nil && !r.isLastAttempt(msg) {
		_ = msg.Nak() // not begun: another member gets it at once
		return false
	}
	r.unacknowledged.Add(1)
	r.begin(msg, nil) //nolint:contextcheck // what a handler has done is reported after ctx has ended, too
	return true
}

// isLastAttempt reports whether a message has reached its last attempt. If it were returned now, it
// would fail at the next member, even if no handler has seen it.
func (r *runner) isLastAttempt(msg jetstream.Msg) bool {
	meta, err := msg.Metadata()
	return err == nil && int(min(meta.NumDelivered, 1<<30)) >= r.Attempts
}
