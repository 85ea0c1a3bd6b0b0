package runner

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/ack"
)

// underway holds the messages in flight until they are acknowledged. It sends a heartbeat for each, and repeats each final
// report until the stream has stored it. One loop serves all messages: a goroutine and timers for each would cost more than a
// quick handler.
type underway struct {
	acks    *ack.Engine
	ackWait time.Duration
	stop    chan struct{}
	stopped chan struct{}

	mu       sync.Mutex
	messages map[key]*message
}

// key tells an execution's message from others. A stream that a power cut took back uses sequences again.
type key struct {
	sequence uint64
	id       string
}

// message is a message in flight. The underway's mu guards its fields until it is removed.
type message struct {
	key
	jetstream.Msg           // its last delivery
	heartbeat     time.Time // the last one

	report    *nats.Msg // nil until there is a final state
	began     time.Time // to report it
	err       error     // the last attempt's
	published func(error)
}

// newUnderway must be closed.
func newUnderway(nc *nats.Conn, ackWait time.Duration) (*underway, error) {
	acks, err := ack.New(nc, stream.ProgressName)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the stream's confirmations: %w", err)
	}
	u := &underway{acks: acks, ackWait: ackWait, stop: make(chan struct{}), stopped: make(chan struct{}), messages: map[key]*message{}}
	go u.tend()
	return u, nil
}

func (u *underway) close() {
	close(u.stop)
	<-u.stopped
	u.acks.Close()
}

// add sends heartbeats for a message until it is removed or its report is published. It returns nil for one that is in flight
// here: a NATS server that restarts can forget heartbeats, and deliver it again. The new delivery takes the place of the old one.
func (u *underway) add(msg jetstream.Msg, k key) *message {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m, known := u.messages[k]; known {
		m.Msg, m.heartbeat = msg, time.Now()
		return nil
	}
	m := &message{key: k, Msg: msg, heartbeat: time.Now()}
	u.messages[k] = m
	return m
}

func (u *underway) remove(m *message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.messages, m.key)
}

// publish publishes a report, and repeats it until the stream confirms it; repeated reports are harmless. It calls published once:
// with nil, or with an error when there is no confirmation within AckWait.
func (u *underway) publish(m *message, report *nats.Msg, published func(error)) {
	u.mu.Lock()
	m.report, m.began, m.published = report, time.Now(), published
	u.mu.Unlock()
	u.send(m)
}

// send publishes a report once. The answer to any attempt counts until AckWait is over.
func (u *underway) send(m *message) {
	attempt := *m.report // the engine gives each attempt a reply subject of its own
	if err := u.acks.Send(&attempt, m.began.Add(u.ackWait), func(_ ack.Ack, err error) { u.answered(m, err) }); err != nil {
		u.answered(m, err)
	}
}

// answered handles the stream's answer to a report. After an error, the next round sends it again.
func (u *underway) answered(m *message, err error) {
	u.mu.Lock()
	waits := u.messages[m.key] == m // if not, an earlier attempt was confirmed, or AckWait is over
	if m.err = err; waits && err == nil {
		delete(u.messages, m.key)
	}
	u.mu.Unlock()
	if waits && err == nil {
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
	var alive []jetstream.Msg
	var again, givenUp []*message
	var reasons []error
	u.mu.Lock()
	for _, m := range u.messages {
		if now.Sub(m.heartbeat) >= u.ackWait/4 {
			m.heartbeat = now
			alive = append(alive, m.Msg)
		}
		switch waited := now.Sub(m.began); {
		case m.report == nil:
		case waited > u.ackWait:
			delete(u.messages, m.key)
			givenUp, reasons = append(givenUp, m), append(reasons, m.err)
		case waited >= u.ackWait/10:
			again = append(again, m)
		}
	}
	u.mu.Unlock()
	for _, msg := range alive {
		_ = msg.InProgress()
	}
	for _, m := range again {
		u.send(m)
	}
	for i, m := range givenUp {
		m.published(errors.Join(fmt.Errorf("the stream has not confirmed the report within %s", u.ackWait), reasons[i]))
	}
}
