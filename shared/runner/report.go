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

// underway are the messages that are being worked on, until they are acknowledged: it says
// of each that it is in good hands, and brings final reports into the stream. It is one
// loop and one subscription for all of them; goroutines, timers and futures for each would
// cost more than the work of a quick handler.
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

// message is one of them.
type message struct {
	jetstream.Msg
	token uint64
	said  time.Time // that it is in good hands

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

// add begins to take care of a message, until it is removed or its report is published.
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

// publish brings a report into the stream. published is called once: with nil when the
// stream has confirmed it, or with an error when it has not for as long as AckWait. A
// report that comes twice does no harm, so it is sent again until then.
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

// confirmed gets the stream's answers.
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
		m.err = fmt.Errorf("the stream does not take it: %s%.500s", reply.Header.Get("Status"), reply.Data)
	}
	u.mu.Unlock()
	if m != nil && stored {
		m.published(nil)
	}
}

// tend does in rounds what must be done in time.
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
