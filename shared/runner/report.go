package runner

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// underway holds the messages in flight, until they are acknowledged. It sends a heartbeat for
// each, and publishes final reports. One loop and one subscription serve all of them:
// goroutines, timers and futures for each message would cost more than a quick handler.
//
// It is not the publisher of an ingress (ingress/internal/publish), which also matches PubAcks with messages. There a
// request waits, within its deadline, for the stream's sequence and whether it is a duplicate, and decides by the kind
// of error. Here nobody waits: a report is repeated until it is stored, in the same table and by the same round as the
// heartbeats. What both could share is the subscription and the table: about 30 lines, for a type with options.
type underway struct {
	nc      *nats.Conn
	ackWait time.Duration
	inbox   string // the stream's confirmations come here; ends in a dot
	replies *nats.Subscription
	stop    chan struct{}
	stopped chan struct{}

	mu       sync.Mutex
	last     uint64
	messages map[uint64]*message
}

// message is a message in flight.
type message struct {
	jetstream.Msg
	token uint64
	said  time.Time // the last heartbeat

	report    *nats.Msg // nil until there is a final state
	began     time.Time // to report it
	err       error     // the last attempt's
	published func(error)
}

// newUnderway must be closed.
func newUnderway(nc *nats.Conn, ackWait time.Duration) (*underway, error) {
	u := &underway{
		nc: nc, ackWait: ackWait, inbox: nc.NewInbox() + ".", stop: make(chan struct{}), stopped: make(chan struct{}),
		messages: map[uint64]*message{},
	}
	var err error
	if u.replies, err = nc.Subscribe(u.inbox+"*", u.confirmed); err != nil {
		return nil, fmt.Errorf("listen for the stream's confirmations: %w", err)
	}
	go u.tend()
	return u, nil
}

func (u *underway) close() {
	close(u.stop)
	<-u.stopped
	_ = u.replies.Unsubscribe()
}

// add sends heartbeats for a message until it is removed or its report is published.
func (u *underway) add(msg jetstream.Msg) *message {
	m := &message{Msg: msg, said: time.Now()}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last++
	m.token = u.last
	u.messages[m.token] = m
	return m
}

func (u *underway) remove(m *message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.messages, m.token)
}

// publish publishes a report, and repeats it until the stream confirms it; repeated reports are
// harmless. It calls published once: with nil after the confirmation, or with an error when there is
// none within AckWait.
func (u *underway) publish(m *message, report *nats.Msg, published func(error)) {
	report.Reply = u.inbox + strconv.FormatUint(m.token, 36)
	u.mu.Lock()
	m.report, m.began, m.published = report, time.Now(), published
	u.mu.Unlock()
	if err := u.nc.PublishMsg(report); err != nil {
		u.failed(m, err)
	}
}

// failed remembers why; the next round tries again.
func (u *underway) failed(m *message, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m.err = err
}

// confirmed handles the stream's PubAcks.
func (u *underway) confirmed(reply *nats.Msg) {
	token, err := strconv.ParseUint(strings.TrimPrefix(reply.Subject, u.inbox), 36, 64)
	if err != nil {
		return
	}
	// {"stream":"PROGRESS","seq":1}, or {"error":…,…}, or a status without data: nobody was there.
	stored := bytes.HasPrefix(reply.Data, []byte(`{"stream":`)) && !bytes.Contains(reply.Data, []byte(`"error":`))
	u.mu.Lock()
	m := u.messages[token]
	switch {
	case m == nil: // confirmed before, or given up
	case stored:
		delete(u.messages, token)
	default:
		m.err = fmt.Errorf("the stream refused it: %s%.500s", reply.Header.Get("Status"), reply.Data)
	}
	u.mu.Unlock()
	if m != nil && stored {
		m.published(nil)
	}
}

// tend runs round regularly until stop.
func (u *underway) tend() {
	defer close(u.stopped)
	tick := time.NewTicker(max(u.ackWait/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			u.round(now)
		case <-u.stop:
			return
		}
	}
}

func (u *underway) round(now time.Time) {
	var alive, again, givenUp []*message
	var reasons []error
	u.mu.Lock()
	for token, m := range u.messages {
		if now.Sub(m.said) >= u.ackWait/4 {
			m.said = now
			alive = append(alive, m)
		}
		switch waited := now.Sub(m.began); {
		case m.report == nil:
		case waited > u.ackWait:
			delete(u.messages, token)
			givenUp, reasons = append(givenUp, m), append(reasons, m.err)
		case waited >= u.ackWait/10:
			again = append(again, m)
		}
	}
	u.mu.Unlock()
	for _, m := range alive {
		_ = m.InProgress()
	}
	for _, m := range again {
		if err := u.nc.PublishMsg(m.report); err != nil {
			u.failed(m, err)
		}
	}
	for i, m := range givenUp {
		m.published(errors.Join(fmt.Errorf("the stream has not confirmed the report within %s", u.ackWait), reasons[i]))
	}
}
