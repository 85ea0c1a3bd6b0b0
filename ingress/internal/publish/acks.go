package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// acks hands the stream's PubAcks to the waiting requests. It does what the futures of nats.go
// do at a lower cost: no JSON decoding, no timer and no allocation for each message. Measured on a whole request: 0.86 of the CPU.
type acks struct {
	nc     *nats.Conn
	prefix string // of reply subjects; a waiter's number follows
	sub    *nats.Subscription

	mu      sync.Mutex
	waiting map[uint64]*waiter
	next    uint64
	closed  bool // nobody would bring an answer any more

	idle sync.Pool // of *waiter
	stop chan struct{}
	done chan struct{}
}

// waiter is one message on its way.
type waiter struct {
	deadline time.Time
	answer   chan answer // holds one: whoever takes the waiter out of the table sends it
}

type answer struct {
	ack Ack
	err error
}

// Errors of a message whose fate is not known.
var (
	errTimeout      = errors.New("the stream did not answer in time")
	errDisconnected = errors.New("the connection broke before the stream answered")
)

// sweepEvery is how precisely deadlines are kept.
const sweepEvery = 50 * time.Millisecond

func newAcks(nc *nats.Conn) (*acks, error) {
	a := &acks{
		nc: nc, prefix: nc.NewInbox() + ".", waiting: map[uint64]*waiter{},
		idle: sync.Pool{New: func() any { return &waiter{answer: make(chan answer, 1)} }},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	var err error
	if a.sub, err = nc.Subscribe(a.prefix+"*", a.hear); err != nil {
		return nil, err
	}
	// Answers are small, and dropping one would make a sender wait in vain.
	if err := a.sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	go a.watch(nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED))
	return a, nil
}

// close fails all remaining waiters.
func (a *acks) close() {
	close(a.stop)
	<-a.done
	_ = a.sub.Unsubscribe()
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.fail(errDisconnected, func(*waiter) bool { return true })
}

// publish sends a message and waits for the stream's answer to it until the deadline.
func (a *acks) publish(msg *nats.Msg, deadline time.Time) (Ack, error) {
	w, ok := a.idle.Get().(*waiter)
	if !ok {
		panic("the pool holds waiters only")
	}
	w.deadline = deadline
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return Ack{}, nats.ErrConnectionClosed
	}
	a.next++
	number := a.next
	a.waiting[number] = w
	a.mu.Unlock()

	msg.Reply = a.prefix + strconv.FormatUint(number, 36)
	if err := a.nc.PublishMsg(msg); err != nil {
		if a.take(number) != nil {
			a.idle.Put(w)
			return Ack{}, err
		}
		// Somebody has failed it already: the answer is there.
	}
	got := <-w.answer
	a.idle.Put(w)
	return got.ack, got.err
}

func (a *acks) take(number uint64) *waiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[number]
	delete(a.waiting, number)
	return w
}

func (a *acks) hear(msg *nats.Msg) {
	number, err := strconv.ParseUint(msg.Subject[len(a.prefix):], 36, 64)
	if err != nil {
		return
	}
	if w := a.take(number); w != nil {
		ack, err := parseAck(msg)
		w.answer <- answer{ack, err}
	}
}

// watch fails waiters after their deadline, and all of them when the connection is lost.
func (a *acks) watch(lost <-chan nats.Status) {
	defer close(a.done)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.stop:
			return
		case <-lost:
			a.fail(errDisconnected, func(*waiter) bool { return true })
		case now := <-tick.C:
			a.fail(errTimeout, func(w *waiter) bool { return now.After(w.deadline) })
		}
	}
}

func (a *acks) fail(err error, which func(*waiter) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for number, w := range a.waiting {
		if which(w) {
			delete(a.waiting, number)
			w.answer <- answer{err: err}
		}
	}
}

// What an acknowledgement looks like: {"stream":"EXECUTIONS","seq":7,"duplicate": true}, the
// last member only for a repeat. There is a space or not.
var (
	ackStart     = []byte(`{"stream":"` + stream.Name + `",`)
	ackSequence  = []byte(`"seq":`)
	ackDuplicate = []byte(`"duplicate":`)
	ackTrue      = []byte("true")
	ackError     = []byte(`"error":`)
)

func parseAck(msg *nats.Msg) (Ack, error) {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return Ack{}, nats.ErrNoResponders
	}
	data := msg.Data
	if bytes.HasPrefix(data, ackStart) && !bytes.Contains(data, ackError) {
		if _, rest, found := bytes.Cut(data, ackSequence); found {
			if sequence, end := leadingNumber(rest); end > 0 {
				_, repeat, _ := bytes.Cut(rest[end:], ackDuplicate)
				return Ack{Sequence: sequence, Duplicate: bytes.HasPrefix(bytes.TrimLeft(repeat, " "), ackTrue)}, nil
			}
		}
	}
	// An error, or white space where none was so far: the long way.
	var slow struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &slow); err != nil {
		return Ack{}, err
	}
	if slow.Error != nil {
		return Ack{}, slow.Error
	}
	if slow.Stream != stream.Name || slow.Sequence == 0 {
		return Ack{}, errors.New("what answered is not the stream")
	}
	return Ack{Sequence: slow.Sequence, Duplicate: slow.Duplicate}, nil
}

// leadingNumber reads the digits, after a space perhaps, that data begins with; end is 0
// when there are none.
func leadingNumber(data []byte) (number uint64, end int) {
	for end < len(data) && data[end] == ' ' {
		end++
	}
	start := end
	for end < len(data) && data[end] >= '0' && data[end] <= '9' {
		number = number*10 + uint64(data[end]-'0')
		end++
	}
	if end == start {
		return 0, 0
	}
	return number, end
}
