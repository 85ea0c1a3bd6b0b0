// Package publish publishes messages to the stream. Its results say what is known: stored, not stored, or perhaps stored.
package publish

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/ack"
)

// The reasons why the stream does not take a message.
var (
	// ErrUnavailable means that the stream did not answer in time, or could not be reached.
	// A message with a Nats-Msg-Id may have been stored; sent again, it is recognised. Nor is it known then whether this
	// request or an earlier one had stored it: a sender is never told that its first request is a repeat.
	ErrUnavailable = errors.New("the stream is unavailable")
	// ErrOverloaded means that the stream has too much to do. Nothing was stored.
	ErrOverloaded = errors.New("the stream is overloaded")
	// ErrStorageFull means that the stream takes no more until something is removed. Nothing was stored.
	ErrStorageFull = errors.New("the stream's storage is full")
	// ErrTooLong means that the message is longer than the server, or the stream, takes. Nothing was stored, nor will it be.
	ErrTooLong = errors.New("the message is too long")
)

// attemptTimeout bounds an attempt that may be repeated. A change of leader takes about a quarter of a second.
const attemptTimeout = time.Second

// reconnectGrace is how long a message waits for a lost connection: a server that restarts is often back by then.
const reconnectGrace = time.Second

// lookUpAtLeast is the least time to find out whether the stored message is this request's own. Without an answer the request is refused. With the default --publish-timeout it
// stays below the ten seconds that senders wait.
const lookUpAtLeast = 2 * time.Second

// Ack says that a message is stored.
type Ack = ack.Ack

// Publisher publishes. It is safe for concurrent use.
type Publisher struct {
	nc      *nats.Conn
	acks    *ack.Engine
	stream  jetstream.Stream
	timeout time.Duration
	trouble atomic.Pointer[trouble] // nil: the last message that reached the stream was stored
}

// trouble is that the stream is there, and did not store a message.
type trouble struct {
	at         time.Time
	err        error
	reconnects uint64 // of the connection until then
}

// troubleFor is how long a message that was not stored keeps an ingress from being ready. Then the next request tries again.
const troubleFor = 15 * time.Second

// Trouble says why the stream did not store the last message; nil: it did, or that is long ago, or on another connection. A message
// made up to ask would be recorded.
func (p *Publisher) Trouble(now time.Time) error {
	if t := p.trouble.Load(); t != nil && now.Sub(t.at) < troubleFor && t.reconnects == p.nc.Stats().Reconnects {
		return t.err
	}
	return nil
}

// note remembers that a message was not stored.
func (p *Publisher) note(err error) error {
	p.trouble.Store(&trouble{time.Now(), err, p.nc.Stats().Reconnects})
	return err
}

// unavailable is remembered only if the stream kept silent: a missing connection or stream shows otherwise.
func (p *Publisher) unavailable(err error) error {
	because := fmt.Errorf("%w: %w", ErrUnavailable, err)
	if errors.Is(err, ack.ErrTimeout) {
		return p.note(because)
	}
	return because
}

// New publishes over one connection; measured, more gain nothing. The stream must exist. timeout bounds a sender's wait for an answer.
func New(ctx context.Context, nc *nats.Conn, timeout time.Duration) (*Publisher, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	p := &Publisher{nc: nc, timeout: timeout}
	if p.stream, err = stream.Find(ctx, js); err != nil {
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	if p.acks, err = ack.New(nc, stream.Name); err != nil {
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	return p, nil
}

// Close ends publishing. What is still on its way fails.
func (p *Publisher) Close() { p.acks.Close() }

// Publish stores a message. A nil error means that the stream has confirmed it. Its errors are those of this package.
//
// A message with a Nats-Msg-Id is sent again under the same ID whenever what became of
// it is not known, until there is an answer or the time is up. Its traceparent must be that of no other request: by it
// Publish recognises its own message. One without a Nats-Msg-Id is sent once only, but for the cases in which it surely was not stored.
func (p *Publisher) Publish(msg *nats.Msg) (Ack, error) {
	start := time.Now()
	deadline := start.Add(p.timeout)
	repeatable := len(msg.Header[jetstream.MsgIDHeader]) > 0
	patience := p.timeout // one attempt has all the time there is
	if repeatable {
		patience = min(attemptTimeout, p.timeout)
	}
	now := start
	unknown := false // whether an earlier attempt may have been stored
	for attempt := 0; ; attempt++ {
		got, err := p.acks.Publish(msg, now.Add(patience))
		switch o := classify(err); {
		case o == stored:
			if got.Duplicate && unknown {
				ours, err := p.isOurs(got.Sequence, msg, deadline)
				if err != nil {
					return Ack{}, err
				}
				got.Duplicate = !ours
			}
			if !got.Duplicate && p.trouble.Load() != nil { // for a repeat, nothing was stored
				p.trouble.Store(nil)
			}
			return got, nil
		case o == full:
			return Ack{}, p.note(fmt.Errorf("%w: %w", ErrStorageFull, err))
		case o == tooLong:
			return Ack{}, fmt.Errorf("%w: %w", ErrTooLong, err)
		case o == overloaded:
			return Ack{}, fmt.Errorf("%w: %w", ErrOverloaded, err)
		case o == disconnected && time.Since(start) > reconnectGrace,
			o == noAnswer && !repeatable:
			return Ack{}, p.unavailable(err)
		case o == noAnswer:
			unknown = true
		case o == inProcess, o == noLeader, o == disconnected:
			// Somebody's message with this ID is being stored, perhaps our own earlier one; or nobody
			// was there to take it.
		}
		pause := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
		if time.Now().Add(pause + attemptTimeout).After(deadline) {
			return Ack{}, p.unavailable(err)
		}
		<-time.After(pause)
		now = time.Now()
	}
}

// outcome is the result of one attempt.
type outcome int

const (
	stored       outcome = iota
	disconnected         // surely not stored: there is no connection
	noLeader             // surely not stored: the stream has no leader now
	noAnswer             // perhaps stored
	inProcess            // another message with the same ID is being stored
	overloaded           // refused
	full                 // refused
	tooLong              // refused, or never sent: it is longer than the stream, or the server, takes
)

// The server's error codes; see errors.json of nats-server.
const (
	codeStoreFailed         = 10077 // a limit of the stream, or the disk
	codeStorageExceeded     = 10047
	codeTooLong             = 10054 // the stream's max_msg_size
	codeMemoryExceeded      = 10028
	codeDuplicateInProcess  = 10158
	codeTooManyRequests     = 10167
	codeInsufficient        = 10023
	codeAccountResources    = 10002
	codeClusterNotAvailable = 10008
)

func classify(err error) outcome {
	api, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return stored
	case refused:
		switch uint16(api.ErrorCode) {
		case codeStoreFailed, codeStorageExceeded, codeMemoryExceeded:
			return full
		case codeTooLong:
			return tooLong
		case codeDuplicateInProcess:
			return inProcess
		case codeTooManyRequests, codeInsufficient, codeAccountResources:
			return overloaded
		case codeClusterNotAvailable:
			return noAnswer // the leader may have handed it on before it stepped down
		default:
			return overloaded // refused for a reason that is not known here: nothing was stored
		}
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting):
		return disconnected
	case errors.Is(err, nats.ErrMaxPayload):
		return tooLong
	case errors.Is(err, nats.ErrNoResponders):
		return noLeader
	default: // a timeout, or a connection that broke before the answer came
		return noAnswer
	}
}

// isOurs reports whether the stored message is the one that this request sent: then it has its traceparent, whose span is random. A
// message that has none is another request's. A cluster does not answer while it elects a leader, and a replica may lag; so isOurs
// asks again until the deadline, and for lookUpAtLeast in any case: after an outage, many answers come at the deadline. Without an
// answer it is not known: the error is ErrUnavailable.
func (p *Publisher) isOurs(sequence uint64, msg *nats.Msg, deadline time.Time) (bool, error) {
	if least := time.Now().Add(lookUpAtLeast); deadline.Before(least) {
		deadline = least
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for {
		asking, stop := context.WithTimeout(ctx, attemptTimeout/2)
		have, err := p.stream.GetMsg(asking, sequence)
		stop()
		switch {
		case err == nil:
			trace := have.Header.Get(stream.HeaderTrace)
			return trace != "" && trace == msg.Header.Get(stream.HeaderTrace), nil
		case errors.Is(err, jetstream.ErrMsgNotFound) && p.isGone(ctx, sequence):
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("%w: the message is stored, and could not be read to see whether this request or an earlier one sent it: %w", ErrUnavailable, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// isGone reports whether the stream has deleted a message: so old a one was not stored by this request. A replica that lags
// does not have it either, but its last sequence is lower.
func (p *Publisher) isGone(ctx context.Context, sequence uint64) bool {
	info, err := p.stream.Info(ctx)
	return err == nil && info.State.LastSeq >= sequence && info.State.FirstSeq > sequence
}
