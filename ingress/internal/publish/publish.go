// Package publish publishes messages to the stream. Its errors distinguish messages that are
// certainly not stored from those that may be stored.
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

// Errors of Publish and LookupDuplicate. After ErrUnavailable and ErrOutcomeUnknown, the message
// may have been stored. After the others, it was certainly not stored.
var (
	// ErrUnavailable means that the stream did not reply in time, or could not be reached. A
	// message with a Nats-Msg-Id may have been stored; if it is sent again, it is recognized.
	// ErrUnavailable is also returned if it is unknown whether this request or an earlier one
	// stored the message: a sender must never be told that its first request is a repeat.
	ErrUnavailable = errors.New("the stream is unavailable")
	// ErrOutcomeUnknown wraps ErrUnavailable. It means that a message without a Nats-Msg-Id may
	// have been stored, so that it may be stored twice if it is sent again.
	ErrOutcomeUnknown = fmt.Errorf("%w, and may have stored the message", ErrUnavailable)
	// ErrOverloaded means that the stream is overloaded. Nothing was stored.
	ErrOverloaded = errors.New("the stream is overloaded")
	// ErrStorageFull means that no more messages can be stored until some are removed, because the
	// stream, the server or the account has reached a limit. Nothing was stored.
	ErrStorageFull = errors.New("the stream's storage is full")
	// ErrTooLong means that the message exceeds the maximum size that the server or the stream
	// allows. The message was not stored, and retrying cannot help.
	ErrTooLong = errors.New("the message is too long")
)

// attemptTimeout is the maximum duration of an attempt that may be retried. A leader election takes
// about a quarter of a second.
const attemptTimeout = time.Second

// reconnectGrace is how long Publish waits for a lost connection to be restored. The time counts
// from the first attempt that found the connection lost. A restarting server is often back within
// that time.
const reconnectGrace = time.Second

// minStoredMessageLookupTime is the minimum time that isSentByThisRequest has to find out whether
// this request has sent the stored message. If that time is not enough, the request is refused.
// With the default --publish-timeout, the total time stays below the ten seconds that senders wait.
const minStoredMessageLookupTime = 2 * time.Second

// Ack is the confirmation that a message has been stored.
type Ack = ack.Ack

// StreamPublisher publishes start messages and rejections to one stream. It is safe for
// concurrent use.
type StreamPublisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	acks    *ack.Publisher
	name    string // name of the stream
	timeout time.Duration
	// lastFailure describes why the last message that reached the stream was not stored. It is nil
	// if that message was stored.
	lastFailure atomic.Pointer[storeFailure]
}

// storeFailure records that a stream could be reached but did not store a message.
type storeFailure struct {
	at         time.Time // when the stream failed to store the message
	err        error
	reconnects uint64 // the connection's number of reconnects at that time
}

// failureExpiry is how long an ingress is not ready after the stream has failed to store a message.
// After that time, it becomes ready again, because only a new request can show whether the stream
// still fails.
const failureExpiry = 15 * time.Second

// LastFailure returns why the stream did not store the last message. It returns nil if the message
// was stored, or if the failure is older than failureExpiry or occurred before the last reconnect.
// LastFailure sends no test message, because the stream would store it.
func (p *StreamPublisher) LastFailure(now time.Time) error {
	if t := p.lastFailure.Load(); t != nil && now.Sub(t.at) < failureExpiry &&
		t.reconnects == p.nc.Stats().Reconnects {
		return t.err
	}
	return nil
}

// recordFailure records that a message was not stored, and returns err.
func (p *StreamPublisher) recordFailure(err error) error {
	p.lastFailure.Store(&storeFailure{time.Now(), err, p.nc.Stats().Reconnects})
	return err
}

// wrapUnavailable wraps err in kind, which is ErrUnavailable or ErrOutcomeUnknown. It records a
// failure for LastFailure only if the stream did not reply. Other readiness checks notice a lost
// connection or a missing stream.
func (p *StreamPublisher) wrapUnavailable(kind, err error) error {
	because := fmt.Errorf("%w: %w", kind, err)
	if errors.Is(err, ack.ErrTimeout) {
		return p.recordFailure(because)
	}
	return because
}

// New returns a StreamPublisher for the shared stream, and waits until that stream exists.
// timeout is the maximum time to wait for the stream's confirmation of a message. All messages use
// one connection, because more connections were no faster in measurements.
func New(ctx context.Context, nc *nats.Conn, timeout time.Duration) (*StreamPublisher, error) {
	p, err := NewForStream(nc, stream.ExecutionsName, timeout)
	if err != nil {
		return nil, err
	}
	if _, err := stream.AwaitExecutionsStream(ctx, p.js); err != nil {
		p.Close()
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	return p, nil
}

// NewForStream returns a StreamPublisher for the named stream. It makes no remote call.
func NewForStream(
	nc *nats.Conn,
	streamName string,
	timeout time.Duration,
) (*StreamPublisher, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	p := &StreamPublisher{nc: nc, js: js, name: streamName, timeout: timeout}
	if p.acks, err = ack.New(nc, streamName); err != nil {
		return nil, fmt.Errorf("set up publishing: %w", err)
	}
	return p, nil
}

// StreamChoice represents the decision to publish a message to a particular stream. The decision
// can become outdated when a queue or a workflow moves.
type StreamChoice interface {
	// IsCurrent reports whether the message may still be stored in that stream.
	IsCurrent() bool
}

// Close stops publishing. Messages that have not been confirmed yet fail.
func (p *StreamPublisher) Close() { p.acks.Close() }

// Publish publishes a message. It returns a nil error once the stream has confirmed that the
// message is stored. Any other error wraps one of this package's errors.
//
// If a message with a Nats-Msg-Id gets no reply, Publish resends it until it gets one or the time
// is up. The stream may then report a resent message as a duplicate of the first attempt. To tell
// this from a real duplicate, Publish compares the traceparent of the stored message with that of
// its own message; traceparents must therefore be unique. All requests have one, so no additional
// header is needed. A message without a Nats-Msg-Id is resent only if it was certainly not stored.
//
// Before each resend, Publish checks that choice is still current. If the queue has moved, the
// message must not be stored in the old stream, because the new stream would not recognize its
// duplicates. A nil choice is always current.
func (p *StreamPublisher) Publish(msg *nats.Msg, choice StreamChoice) (Ack, error) {
	p.pauseIfFull()
	start := time.Now()
	deadline := start.Add(p.timeout)
	repeatable := len(msg.Header[jetstream.MsgIDHeader]) > 0
	patience := p.timeout // a single attempt may use the whole timeout
	if repeatable {
		patience = min(attemptTimeout, p.timeout)
	}
	now := start
	unknown := false     // whether an earlier attempt may have stored the message
	var lostAt time.Time // when the connection was found lost; zero if the last attempt had one
	for attempt := 0; ; attempt++ {
		got, err := p.acks.Publish(msg, now.Add(patience))
		o := classifyAttempt(err)
		if o != outcomeDisconnected {
			lostAt = time.Time{}
		} else if lostAt.IsZero() {
			lostAt = time.Now()
		}
		switch {
		case o == outcomeStored:
			if got.Duplicate && unknown {
				ours, err := p.isSentByThisRequest(got.Sequence, msg, deadline)
				if err != nil {
					return Ack{}, err
				}
				got.Duplicate = !ours
			}
			// The stream stored nothing for a repeat, so the confirmation of a repeat does not
			// prove that the stream can store messages again.
			if !got.Duplicate && p.lastFailure.Load() != nil {
				p.lastFailure.Store(nil)
			}
			return got, nil
		case unknown && (o == outcomeStorageFull || o == outcomeOverloaded):
			// An earlier attempt may have stored the message, so this is no refusal.
			return Ack{}, p.wrapUnavailable(ErrUnavailable, err)
		case o == outcomeStorageFull:
			return Ack{}, p.recordFailure(fmt.Errorf("%w: %w", ErrStorageFull, err))
		case o == outcomeMessageTooLong:
			return Ack{}, fmt.Errorf("%w: %w", ErrTooLong, err)
		case o == outcomeOverloaded:
			return Ack{}, fmt.Errorf("%w: %w", ErrOverloaded, err)
		case o == outcomeDisconnected && time.Since(lostAt) > reconnectGrace:
			return Ack{}, p.wrapUnavailable(ErrUnavailable, err)
		case o == outcomeNoReply && !repeatable:
			return Ack{}, p.wrapUnavailable(ErrOutcomeUnknown, err)
		case o == outcomeNoReply:
			unknown = true
		case o == outcomeDuplicateInProcess, o == outcomeNoLeader, o == outcomeDisconnected:
			// Retry. Either another message with this ID is being stored, perhaps from an earlier
			// attempt of this call, or no server was available to accept the message.
		}
		pause := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
		if time.Now().Add(pause + attemptTimeout).After(deadline) {
			return Ack{}, p.wrapUnavailable(ErrUnavailable, err)
		}
		<-time.After(pause)
		if choice != nil && !choice.IsCurrent() {
			return Ack{}, p.wrapUnavailable(ErrUnavailable, err)
		}
		if now = time.Now(); now.Add(attemptTimeout).After(deadline) { // IsCurrent may have waited
			return Ack{}, p.wrapUnavailable(ErrUnavailable, err)
		}
	}
}

// fullStreamInterval is the interval at which messages are sent to a full stream. It is the maximum
// time by which the refusal of a message is delayed.
const fullStreamInterval = 5 * time.Millisecond

// pauseIfFull delays a message if the stream, within the last second, refused the most recent one
// because it was full: it waits until the next multiple of fullStreamInterval. All messages that
// arrive meanwhile are then sent together. Each of them must be sent, because only the stream knows
// which ones are repeats and whether it has room again. Without the pause, a sender that floods a
// full stream would wake this process and two NATS servers for every message, and slow down the
// other streams.
func (p *StreamPublisher) pauseIfFull() {
	last := p.lastFailure.Load()
	if last == nil || !errors.Is(last.err, ErrStorageFull) || time.Since(last.at) > time.Second {
		return
	}
	elapsed := time.Duration(time.Now().UnixNano()) % fullStreamInterval
	<-time.After(fullStreamInterval - elapsed)
}

// LookupDuplicate is for a message that must not be stored, because the account has used up its
// share of the storage. If the message's Nats-Msg-Id is in the stream's deduplication window,
// LookupDuplicate returns the confirmation of the message that is stored with it. Otherwise, the
// message is a new one, and the error wraps ErrStorageFull. If the stream does not reply, or its
// reply does not show whether it knows the ID, the error wraps ErrUnavailable.
//
// LookupDuplicate never stores anything. It sends a message with the ID, without data, and with an
// invalid Nats-Rollup header. The stream refuses that header only after it has looked up the ID
// (see processJetStreamMsg and checkMsgHeadersPreClusteredProposal of nats-server 2.15.2).
func (p *StreamPublisher) LookupDuplicate(msg *nats.Msg) (Ack, error) {
	id := msg.Header[jetstream.MsgIDHeader]
	if len(id) == 0 {
		return Ack{}, ErrStorageFull
	}
	question := &nats.Msg{
		Subject: msg.Subject,
		Header:  nats.Header{jetstream.MsgIDHeader: id, jetstream.MsgRollup: {"none"}},
	}
	got, err := p.acks.Publish(question, time.Now().Add(min(attemptTimeout, p.timeout)))
	switch {
	case err == nil && got.Duplicate:
		return got, nil
	// The storage may be reported as full even for a repeat: a cluster checks the server's and the
	// account's limits before it looks up the ID.
	case stream.ErrorCode(err) == stream.CodeRollup, stream.IsStorageFull(err):
		return Ack{}, ErrStorageFull
	default: // for example, a message with this ID is being stored
		return Ack{},
			fmt.Errorf("%w: whether the request is a repeat is not known: %w", ErrUnavailable, err)
	}
}

// attemptOutcome is the result of one attempt to publish a message.
type attemptOutcome int

const (
	outcomeStored attemptOutcome = iota
	// outcomeDisconnected means that the message was certainly not stored: there is no connection,
	// or earlier messages blocked the connection until this message's deadline.
	outcomeDisconnected
	// outcomeNoLeader means that the message was certainly not stored: the stream has no leader at
	// present.
	outcomeNoLeader
	outcomeNoReply            // perhaps stored
	outcomeDuplicateInProcess // another message with the same ID is being stored
	outcomeOverloaded         // refused
	outcomeStorageFull        // refused
	// outcomeMessageTooLong means that the message was certainly not stored: it exceeds the maximum
	// length of the stream or the server.
	outcomeMessageTooLong
)

func classifyAttempt(err error) attemptOutcome {
	api, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return outcomeStored
	case stream.IsStorageFull(err):
		return outcomeStorageFull
	case refused:
		switch uint16(api.ErrorCode) {
		case stream.CodeMessageTooLong:
			return outcomeMessageTooLong
		case stream.CodeDuplicateInProcess:
			return outcomeDuplicateInProcess
		case stream.CodeTooManyRequests:
			return outcomeOverloaded
		case stream.CodeNotAvailable:
			// The message may have been stored: the leader may have forwarded it before it stepped
			// down.
			return outcomeNoReply
		default:
			return outcomeOverloaded // refused for an unknown reason: nothing was stored
		}
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionDraining), errors.Is(err, nats.ErrConnectionReconnecting),
		errors.Is(err, ack.ErrNotSent):
		return outcomeDisconnected
	case errors.Is(err, nats.ErrMaxPayload):
		return outcomeMessageTooLong
	case errors.Is(err, nats.ErrNoResponders):
		return outcomeNoLeader
	default: // a timeout, or a connection that broke before the reply arrived
		return outcomeNoReply
	}
}

// isSentByThisRequest reports whether this request has sent the message with the given sequence in
// the stream: a message of this request has the same traceparent as msg, whose span is random.
// isSentByThisRequest retries until the deadline, because a cluster does not reply while it elects
// a leader, and a replica may lag. It retries for at least minStoredMessageLookupTime, because
// after an outage many replies arrive just before their deadlines. If it still cannot tell, it
// returns ErrUnavailable.
func (p *StreamPublisher) isSentByThisRequest(
	sequence uint64, msg *nats.Msg, deadline time.Time,
) (bool, error) {
	if least := time.Now().Add(minStoredMessageLookupTime); deadline.Before(least) {
		deadline = least
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for {
		asking, stop := context.WithTimeout(ctx, attemptTimeout/2)
		trace, err := p.storedTrace(asking, sequence)
		stop()
		switch {
		case err == nil:
			return trace != "" && trace == msg.Header.Get(stream.HeaderTrace), nil
		case errors.Is(err, jetstream.ErrMsgNotFound) && p.isDeleted(ctx, sequence):
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

// isDeleted reports whether the stream has deleted a message, which means that it is too old to be
// from this request. A lagging replica does not have the message either, but reports a lower last
// sequence.
func (p *StreamPublisher) isDeleted(ctx context.Context, sequence uint64) bool {
	s, err := p.js.Stream(ctx, p.name)
	if err != nil {
		return false
	}
	state := s.CachedInfo().State
	return state.LastSeq >= sequence && state.FirstSeq > sequence
}

// storedTrace returns the traceparent of the message with the given sequence number in the stream,
// or "" if the message has none. Any replica may respond. jetstream.Stream is not used, because
// obtaining one requires the stream's leader.
func (p *StreamPublisher) storedTrace(ctx context.Context, sequence uint64) (string, error) {
	msg, err := p.nc.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"DIRECT.GET."+p.name,
		fmt.Appendf(nil, `{"seq":%d}`, sequence))
	if err != nil {
		return "", err
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return msg.Header.Get(stream.HeaderTrace), nil
	case "404":
		return "", jetstream.ErrMsgNotFound
	default:
		return "",
			fmt.Errorf("the server's answer: %s %s", status, msg.Header.Get("Description"))
	}
}
