package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lanePullTimeout is how long a request for the next message of a lane stays open.
const lanePullTimeout = time.Second

// lanePull is a request for the next message of a lane. If the lane is empty, the server responds
// immediately that there is no message. It does not respond immediately while a message of the lane
// is unacknowledged.
//
// A lanePull drains its subscription when it ends, so that it still receives a message that the
// server has already sent. jetstream.Consumer.FetchNoWait would unsubscribe after a second instead,
// and drop such a message. No member would then get the message until AckWait has passed, and the
// lost delivery would count as an attempt.
type lanePull struct {
	consumerName string
	sub          *nats.Subscription // receives one response
}

// errNoResponse means that the server has not responded to a lanePull yet.
var errNoResponse = errors.New("no response yet")

// newLanePull sends a request to a consumer. The caller must call next until it returns anything
// but errNoResponse, or call finish.
func newLanePull(nc *nats.Conn, consumer *jetstream.ConsumerInfo) (*lanePull, error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", consumer.Name, err)
	}
	subject := "$JS.API.CONSUMER.MSG.NEXT." + consumer.Stream + "." + consumer.Name
	request := []byte(`{"batch":1,"no_wait":true}`)
	if err := nc.PublishRequest(subject, sub.Subject, request); err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("consumer %s: %w", consumer.Name, err)
	}
	return &lanePull{consumer.Name, sub}, nil
}

// next returns the message in the response, or nil if the lane has no message at the moment. It
// returns errNoResponse if there is no response before the timeout has passed or ctx ends.
func (p *lanePull) next(ctx context.Context, timeout time.Duration) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	msg, err := p.sub.NextMsgWithContext(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, errNoResponse
	}
	_ = p.sub.Unsubscribe()
	return p.parse(msg, err)
}

// finish waits for the response until lanePullTimeout has passed or ctx ends. Then it ends the
// request. If the server sends a message before it learns that the request has ended, finish still
// returns this message.
func (p *lanePull) finish(ctx context.Context) (jetstream.Msg, error) {
	msg, err := p.next(ctx, lanePullTimeout)
	if !errors.Is(err, errNoResponse) {
		return msg, err
	}
	if err := p.sub.Drain(); err != nil {
		return nil, fmt.Errorf("consumer %s: %w", p.consumerName, err)
	}
	// After draining, the client closes the subscription once it has received everything that the
	// server had sent. ErrBadSubscription therefore means that no message was sent.
	last, err := p.sub.NextMsgWithContext(context.WithoutCancel(ctx))
	if !errors.Is(err, nats.ErrBadSubscription) {
		return p.parse(last, err)
	}
	return nil, nil
}

// parse returns the message in a response, or nil if the response says that there is no message.
func (p *lanePull) parse(msg *nats.Msg, err error) (jetstream.Msg, error) {
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", p.consumerName, err)
	}
	status := msg.Header.Get("Status")
	switch {
	case len(msg.Data) > 0 || status == "":
		return laneMessage{msg}, nil
	case status == "404" || status == "408": // no message, or earlier requests are still waiting
		return nil, nil
	}
	return nil, fmt.Errorf("consumer %s: status %s %s", p.consumerName, status,
		msg.Header.Get("Description"))
}

// laneMessage is a message that was received in response to a lanePull. It implements
// jetstream.Msg, because package jetstream cannot make one from a *nats.Msg.
type laneMessage struct{ msg *nats.Msg }

func (m laneMessage) Data() []byte                       { return m.msg.Data }
func (m laneMessage) Headers() nats.Header               { return m.msg.Header }
func (m laneMessage) Subject() string                    { return m.msg.Subject }
func (m laneMessage) Reply() string                      { return m.msg.Reply }
func (m laneMessage) Ack() error                         { return m.msg.Ack() }
func (m laneMessage) Nak() error                         { return m.msg.Nak() }
func (m laneMessage) NakWithDelay(d time.Duration) error { return m.msg.NakWithDelay(d) }
func (m laneMessage) InProgress() error                  { return m.msg.InProgress() }
func (m laneMessage) Term() error                        { return m.msg.Term() }

// DoubleAck acknowledges the message and waits for the server's confirmation.
func (m laneMessage) DoubleAck(ctx context.Context) error {
	return m.msg.AckSync(nats.Context(ctx))
}

// TermWithReason is like Term, and gives the reason to the server, which publishes it in an
// advisory.
func (m laneMessage) TermWithReason(reason string) error {
	return m.msg.Respond([]byte("+TERM " + reason))
}

// Metadata returns the metadata that the server has encoded in the message's reply subject.
func (m laneMessage) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := m.msg.Metadata()
	if err != nil {
		return nil, err
	}
	return &jetstream.MsgMetadata{
		Sequence:     jetstream.SequencePair(meta.Sequence),
		NumDelivered: meta.NumDelivered,
		NumPending:   meta.NumPending,
		Timestamp:    meta.Timestamp,
		Stream:       meta.Stream,
		Consumer:     meta.Consumer,
		Domain:       meta.Domain,
	}, nil
}
