package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// pullExpiry is how long a request for messages stays open at the server. It is short because, in a
// cluster, a server does not notice that a runner in a separate NATS account is gone. A message
// that the server sends to such a runner is lost: it is redelivered only after AckWait, and the
// lost delivery counts as an attempt.
const pullExpiry = 5 * time.Second

// pullSource is a consumer of the group that delivers executions without an order key: the one in
// the shared stream, or the one in the queue's own stream.
type pullSource struct {
	stream.Layout
	consumer jetstream.Consumer
}

// consumeSource pulls messages from s and starts their executions until ctx ends. It returns an
// error if s can no longer be used. Executions that have already started keep running.
func (r *runner) consumeSource(ctx context.Context, s *pullSource) error {
	wait, failed := minPullPause, 0
	for {
		free := takeFreeSlots(ctx, r.freeSlots)
		if free == 0 {
			return nil
		}
		pull := r.pull
		if r.exclusiveSlotsCtx.Err() != nil { // other loops also need concurrency slots
			pull = r.pullWithSharedSlots
			for ; free > (r.Concurrency+1)/2; free-- {
				r.freeSlot()
			}
		}
		began, err := pull(ctx, s, free)
		for range free - began {
			r.freeSlot()
		}
		switch {
		case began > 0:
			wait, failed = minPullPause, 0
			r.lastExecutionFromOwnStream.Store(s.Own)
		case err == nil && !r.usesLongPoll(s):
			failed = 0
			sleep(ctx, wait)
			wait = min(wait*3/2, maxPullPause)
		}
		if err == nil {
			continue
		}
		// The server is restarting or has no leader, or the consumer no longer exists.
		failed++
		if !s.Own && (isNotFound(err) || failed%maxPullFailures == 0) {
			if deleted := r.checkConsumer(ctx, s.consumer); deleted != nil {
				err = deleted
			}
		}
		if !isTemporary(err) || s.Own && failed >= maxPullFailures {
			return fmt.Errorf("runner: consumer %s of %s: %w", r.consumerName(),
				s.StreamName(r.Queue), err)
		}
		sleep(ctx, maxPullPause)
	}
}

const (
	// minPullPause and maxPullPause limit the pause after a request that the server answered
	// immediately because there were no messages. The pause grows with each such request.
	minPullPause, maxPullPause = 50 * time.Millisecond, 500 * time.Millisecond
	// maxPullFailures is the number of consecutive failed requests after which a consumer is looked
	// up again.
	maxPullFailures = 5
)

// isTemporary reports whether a request for messages that has failed may succeed later.
func isTemporary(err error) bool {
	return !errors.Is(err, jetstream.ErrConsumerDeleted) &&
		!errors.Is(err, jetstream.ErrBadRequest) && !errors.Is(err, errIteratorFailed)
}

// errIteratorFailed means that the iterator over the messages of a request has failed.
var errIteratorFailed = errors.New("the request for messages has failed")

// usesLongPoll reports whether a request to s stays open until there are messages. If the queue has
// its own stream, this applies only to the source that delivered the last execution, because an
// open request reserves concurrency slots. The other source is polled at intervals.
func (r *runner) usesLongPoll(s *pullSource) bool {
	return r.ownStreamSource.Load() == nil || r.lastExecutionFromOwnStream.Load() == s.Own
}

// takeFreeSlots waits for a free slot and then takes all that are free. It returns their
// number, or 0 if ctx ends first.
func takeFreeSlots(ctx context.Context, freeSlots <-chan struct{}) (n int) {
	if ctx.Err() != nil {
		return 0 // select would choose at random if there are free slots, too
	}
	select {
	case <-freeSlots:
	case <-ctx.Done():
		return 0
	}
	for n = 1; ; n++ {
		select {
		case <-freeSlots:
		default:
			return n
		}
	}
}

// pull requests one message for each of the free concurrency slots, and starts the executions of
// the messages as they arrive, until it has received them all, ctx ends, or exclusiveSlotsCtx is
// canceled. Each call has its own iterator. A long-lived iterator would request more messages as
// soon as half of them had been received, even if no slot was free. A message that waits for a slot
// for longer than AckWait would also run on another member.
func (r *runner) pull(ctx context.Context, s *pullSource, slots int) (began int, err error) {
	messages, err := s.consumer.Messages(jetstream.PullMaxMessages(slots),
		jetstream.StopAfter(slots), jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullExpiry/2))
	if err != nil {
		return 0, errors.Join(errIteratorFailed, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Drain)()
	//nolint:contextcheck // it says since when slots are shared
	defer context.AfterFunc(r.exclusiveSlotsCtx, messages.Drain)()
	for {
		msg, err := stream.NextWhileConsumerExists(ctx, s.consumer, messages)
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return began, nil
		case isNotFound(err):
			return began, err
		case err != nil:
			return began, errors.Join(errIteratorFailed, err)
		case r.beginOrNak(ctx, msg):
			began++
		}
	}
}

// pullWithSharedSlots is like pull, but makes a single request and returns when that request ends,
// so that lanes, or the source in the other stream, can use the slots.
func (r *runner) pullWithSharedSlots(ctx context.Context, s *pullSource, slots int) (began int,
	err error,
) {
	if !r.nc.IsConnected() {
		// Do not send a request while disconnected: a request that fails leaks a subscription
		// (nats.go 1.55.0).
		return 0, nats.ErrDisconnected
	}
	var batch jetstream.MessageBatch
	if r.usesLongPoll(s) {
		batch, err = s.consumer.Fetch(slots, jetstream.FetchMaxWait(pullExpirySharedSlots))
	} else {
		batch, err = s.consumer.FetchNoWait(slots)
	}
	if err != nil {
		return 0, err // the connection is lost; if it is closed, ctx ends
	}
	for msg := range batch.Messages() {
		if r.beginOrNak(ctx, msg) {
			began++
		}
	}
	return began, ignoreNoMessage(batch.Error())
}

// nakDelay is the delay with which a stopping runner hands a message back. It is longer than the
// longest request of pullWithSharedSlots. Otherwise, the server could keep redelivering the message
// to the request that is still open in the same runner, until no attempt is left.
const nakDelay = pullExpirySharedSlots + 100*time.Millisecond

// beginOrNak begins an execution without an order key and returns true. If the runner is stopping
// and this is not the message's last attempt, it hands the message back to the group instead and
// returns false.
func (r *runner) beginOrNak(ctx context.Context, msg jetstream.Msg) bool {
	if ctx.Err() != nil && !r.isLastAttempt(msg) {
		_ = msg.NakWithDelay(nakDelay)
		return false
	}
	r.unacknowledgedMessages.Add(1)
	//nolint:contextcheck // what a handler has done is reported after ctx has ended, too
	r.beginAttempt(msg, nil)
	return true
}

// isLastAttempt reports whether this is a message's last attempt. Such a message must not be handed
// back before the handler has been called: the next member would then report the execution as
// failed without ever making this attempt.
func (r *runner) isLastAttempt(msg jetstream.Msg) bool {
	meta, err := msg.Metadata()
	return err == nil && int(min(meta.NumDelivered, 1<<30)) >= r.Attempts
}

// ignoreNoMessage returns nil if err only means that there is no message at the moment, and
// otherwise err.
func ignoreNoMessage(err error) error {
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
		return nil
	}
	return err
}
