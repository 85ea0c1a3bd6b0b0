// Package publish publishes messages to the stream. Its results distinguish messages that are
// stored, not stored, and perhaps stored.
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

// These are the reasons why the stream does not store a message.
var (
	// ErrUnavailable means that the stream did not answer in time, or could not be reached. A
	// message with a Nats-Msg-Id may have been stored; if it is sent again, it is recognised.
	// ErrUnavailable is also returned if it is not known whether this request or an earlier one has
	// stored the message: a sender must never be told that its first request is a repeat.
	ErrUnavailable = errors.New("the stream is unavailable")
	// ErrOverloaded means that the stream has too much to do. Nothing was stored.
	ErrOverloaded = errors.New("the stream is overloaded")
	// ErrStorageFull means that the stream stores no more messages until something is removed.
	// Nothing was stored.
	ErrStorageFull = errors.New("the stream's storage is full")
	// ErrTooLong means that the message is longer than the maximum of the server or the stream.
	// Nothing was stored, nor will it be.
	ErrTooLong = errors.New("the message is too long")
)

// attemptTimeout is the maximum duration of an attempt that may be repeated. A change of leader
// takes about a quarter of a second.
const attemptTimeout = time.Second

// reconnectGrace is the time for which a message waits for a lost connection: a server that
// restarts is often back by then.
const reconnectGrace = time.Second

// lookUpAtLeast is the minimum time for finding out whether the stored message belongs to this
// request. Without an answer the request is refused. With the default --publish-timeout the total
// stays below the ten seconds that senders wait.
const lookUpAtLeast = 2 * time.Second

// Ack is the confirmation that a message is stored.
type Ack = ack.Ack

// Publisher publishes messages to one stream. It is safe for concurrent use.
type Publisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	acks    *ack.Engine
	name    string                           // of the stream
	stream  atomic.Pointer[jetstream.Stream] // nil until it was looked up
	timeout time.Duration
	// nil means that the last message that reached the stream was stored.
	trouble atomic.Pointer[trouble]
}

// trouble is a failure of the stream to store a message although it is reachable.
type trouble struct {
	at         time.Time
	err        error
	reconnects uint64 // number of reconnects of the connection at that time
}

// troubleFor is the time for which a message that was not stored keeps an ingress from being ready.
// After it the next request tries again.
const troubleFor = 15 * time.Second

// Trouble returns the reason why the stream did not store the last message. It returns nil if the
// message was stored, or if the failure is long ago or occurred on an earlier connection. Trouble
// sends no test message, because the stream would record it.
func (p *Publisher) Trouble(now time.Time) error {
	if t := p.trouble.Load(); t != nil && now.Sub(t.at) < troubleFor &&
		t.reconnects == p.nc.Stats().Reconnects {
		return t.err
	}
	return nil
}

// note remembers that a message was not stored.
func (p *Publisher) note(err error) error {
	p.trouble.Store(&trouble{time.Now(), err, p.nc.Stats().Reconnects})
	return err
}

// unavailable remembers the failure only if the stream did not answer: a missing connection or
// stream is visible otherwise.
func (p *Publisher) unavailable(err error) error {
	because := fmt.Errorf("%w: %w", ErrUnavailable, err)
	if errors.Is(err, ack.ErrTimeout) {
		return p.note(because)
	}
	return because
}

// New returns a Publisher for the stream that all queues share. It uses one connection; in
// measurements, more connections were no faster. The stream must exist. timeout is the maximum time
// that a sender waits for an answer.
func New(ctx context.Context, nc *nats.Conn, timeout time.Duration) (*Publisher, error) {
	p, err := NewFor(nc, stream.Name, timeout)
	if err != nil {
		return nil, err
	}
	found, err := stream.Find(ctx, p.js)
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	p.stream.Store(&found)
	return p, nil
}

// NewFor returns a Publisher for the stream with a name. It makes no remote call.
func NewFor(nc *nats.Conn, streamName string, timeout time.Duration) (*Publisher, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	p := &Publisher{nc: nc, js: js, name: streamName, timeout: timeout}
	if p.acks, err = ack.New(nc, streamName); err != nil {
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	return p, nil
}

// Close ends publishing. Messages without a confirmation fail.
func (p *Publisher) Close() { p.acks.Close() }

// Publish stores a message. A nil error means that the stream has confirmed it. Its errors are
// those of this package.
//
// A message with a Nats-Msg-Id is sent again under the same ID as long as it is not known whether
// it was stored, until there is an answer or the time is up. Its traceparent must differ from that
// of any other request: Publish recognises its own message by it. A message without a Nats-Msg-Id
// is sent only once, except when it was certainly not stored.
func (p *Publisher) Publish(msg *nats.Msg) (Ack, error) {
	start := time.Now()
	deadline := start.Add(p.timeout)
	repeatable := len(msg.Header[jetstream.MsgIDHeader]) > 0
	patience := p.timeout // one attempt has all the time
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
			// Another message with this ID is being stored, perhaps from an earlier attempt of this
			// call, or there was no server to accept the message.
		}
		pause := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
		if time.Now().Add(pause + attemptTimeout).After(deadline) {
			return Ack{}, p.unavailable(err)
		}
		<-time.After(pause)
		now = time.Now()
	}
}

// Repeat returns the confirmation of a message whose Nats-Msg-Id the stream remembers. For any
// other message its error wraps ErrStorageFull. It stores nothing in either case: it asks with a
// message that has no data, and a header that the stream refuses after it has looked for the ID
// (Nats-Rollup with a value that does not exist; processJetStreamMsg and
// checkMsgHeadersPreClusteredProposal of nats-server 2.15.2).
func (p *Publisher) Repeat(msg *nats.Msg) (Ack, error) {
	id := msg.Header[jetstream.MsgIDHeader]
	if len(id) == 0 {
		return Ack{}, ErrStorageFull
	}
	question := &nats.Msg{
		Subject: msg.Subject,
		Header:  nats.Header{jetstream.MsgIDHeader: id, jetstream.MsgRollup: {"none"}},
	}
	got, err := p.acks.Publish(question, time.Now().Add(min(attemptTimeout, p.timeout)))
	switch api, refused := errors.AsType[*jetstream.APIError](err); {
	case err == nil && got.Duplicate:
		return got, nil
	case refused && uint16(api.ErrorCode) == codeRollup:
		return Ack{}, ErrStorageFull
	default: // for example, a message with this ID is being stored
		return Ack{},
			fmt.Errorf("%w: whether the request is a repeat is not known: %w", ErrUnavailable, err)
	}
}

// outcome is the result of one attempt.
type outcome int

const (
	stored       outcome = iota
	disconnected         // certainly not stored: there is no connection
	noLeader             // certainly not stored: the stream has no leader at present
	noAnswer             // perhaps stored
	inProcess            // another message with the same ID is being stored
	overloaded           // refused
	full                 // refused
	// Refused, or never sent: it is longer than the maximum of the stream or the server.
	tooLong
)

// These are the server's error codes; see errors.json of nats-server.
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
	codeRollup              = 10111 // Nats-Rollup is not allowed, or has a wrong value
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
			return noAnswer // the leader may have passed it on before it stepped down
		default:
			return overloaded // refused for an unknown reason: nothing was stored
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

// isOurs reports whether this request has sent the stored message. That message has
// the request's traceparent, whose span is random; a message without a traceparent is another
// request's. A cluster does not answer while it elects a leader, and a replica may lag. So isOurs
// asks again until the deadline, and for at least lookUpAtLeast, because after an outage many
// answers arrive at the deadline. Without an answer the result is not known, and the error is
// ErrUnavailable.
func (p *Publisher) isOurs(sequence uint64, msg *nats.Msg, deadline time.Time) (bool, error) {
	if least := time.Now().Add(lookUpAtLeast); deadline.Before(least) {
		deadline = least
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for {
		asking, stop := context.WithTimeout(ctx, attemptTimeout/2)
		have, err := p.message(asking, sequence)
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
			return false,
				fmt.Errorf("%w: the message is stored, and could not be read to see whether this "+
					"request or an earlier one sent it: %w", ErrUnavailable, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// isGone reports whether the stream has deleted a message. A message that is so old was not stored
// by this request. A replica that lags does not have the message either, but its last sequence is
// lower.
func (p *Publisher) isGone(ctx context.Context, sequence uint64) bool {
	s, err := p.lookUp(ctx)
	if err != nil {
		return false
	}
	info, err := s.Info(ctx)
	return err == nil && info.State.LastSeq >= sequence && info.State.FirstSeq > sequence
}

// lookUp looks the stream up once, and not for each message.
func (p *Publisher) lookUp(ctx context.Context) (jetstream.Stream, error) {
	if known := p.stream.Load(); known != nil {
		return *known, nil
	}
	found, err := p.js.Stream(ctx, p.name)
	if err != nil {
		return nil, err
	}
	p.stream.Store(&found)
	return found, nil
}

// message reads a message of the stream.
func (p *Publisher) message(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	s, err := p.lookUp(ctx)
	if err != nil {
		return nil, err
	}
	return s.GetMsg(ctx, sequence)
}
