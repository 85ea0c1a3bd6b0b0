package ack

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

const subject = "subject"

// engine returns an Engine on a server of its own, and its stream.
func engine(t *testing.T) (*Engine, jetstream.Stream) {
	t.Helper()
	nc := natstest.Start(t).Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STREAM", Subjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(nc, "STREAM")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, s
}

// Concurrent callers each get the acknowledgement of their own message, and may use it again at
// once.
func TestPublishConcurrently(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 50
	e, s := engine(t)
	var mu sync.Mutex
	stored := map[uint64]string{}
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			body := make([]byte, 100)
			for n := range each {
				text := fmt.Sprintf("%d/%d", caller, n)
				body = append(body[:0], text...)
				got, err := e.Publish(&nats.Msg{Subject: subject, Data: body}, time.Now().Add(time.Minute))
				if err != nil || got.Duplicate {
					t.Errorf("%s: %+v, %v", text, got, err)
				}
				mu.Lock()
				stored[got.Sequence] = text
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(stored) != callers*each {
		t.Errorf("%d sequences of %d messages", len(stored), callers*each)
	}
	for sequence, text := range stored {
		if msg, err := s.GetMsg(t.Context(), sequence); err != nil || !bytes.Equal(msg.Data, []byte(text)) {
			t.Fatalf("message %d is %v, %v; want %s", sequence, msg, err, text)
		}
	}
}

// Every message of a queue gets an answer, also one that the connection does not accept.
func TestAMessageInTheQueueIsRefused(t *testing.T) {
	t.Parallel()
	e, _ := engine(t)
	small, large := newWaiter(), newWaiter()
	small.msg, large.msg = &nats.Msg{Subject: subject}, &nats.Msg{Subject: subject, Data: make([]byte, e.nc.MaxPayload()+1)}
	for i, w := range []*waiter{large, small} {
		w.deadline = time.Now().Add(time.Minute)
		if first := e.enqueue(w); first != (i == 0) {
			t.Errorf("message %d: first is %t", i, first)
		}
	}
	e.sendQueue()
	if got := large.wait(); !errors.Is(got.err, nats.ErrMaxPayload) {
		t.Errorf("a message that is too long: %v", got.err)
	}
	if got := small.wait(); got.err != nil || got.ack.Sequence != 1 {
		t.Errorf("the one after it: %+v", got)
	}
	if !e.enqueue(newWaiter()) {
		t.Error("the queue is not empty")
	}
}

// After a timeout the connection may still be about to read the message.
func TestAMessageIsTheCallersAgainAfterItWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, returned := newWaiter(), false
		go func() {
			w.wait()
			returned = true
		}()
		w.answered(Ack{}, ErrTimeout)
		synctest.Wait()
		if returned {
			t.Error("the message may change while it is sent")
		}
		w.sent <- struct{}{}
		synctest.Wait()
		if !returned {
			t.Error("it was sent")
		}
	})
}

// Send answers once, also for a message that the connection does not accept.
func TestSend(t *testing.T) {
	t.Parallel()
	e, _ := engine(t)
	for _, c := range []struct {
		length int64
		want   answer
	}{
		{e.nc.MaxPayload() + 1, answer{err: nats.ErrMaxPayload}},
		{1, answer{ack: Ack{Sequence: 1}}},
	} {
		answers := make(chan answer, 2)
		e.Send(&nats.Msg{Subject: subject, Data: make([]byte, c.length)}, time.Now().Add(time.Minute), func(a Ack, err error) { answers <- answer{a, err} })
		if got := <-answers; got.ack != c.want.ack || !errors.Is(got.err, c.want.err) {
			t.Errorf("%d bytes: %+v, want %+v", c.length, got, c.want)
		}
		select {
		case again := <-answers:
			t.Errorf("%d bytes: answered again with %+v", c.length, again)
		default:
		}
	}
}
