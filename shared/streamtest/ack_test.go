package streamtest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream/ack"
)

const subject = "subject"

// engine starts a server with a stream. e publishes to the stream s; maxPayload is the server's
// maximum size of a message in bytes.
func engine(t testing.TB) (e *ack.Publisher, s jetstream.Stream, maxPayload int64) {
	t.Helper()
	nc := natstest.Start(t).Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:     "STREAM",
		Subjects: []string{subject},
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err = ack.New(nc, "STREAM")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, s, nc.MaxPayload()
}

// Concurrent callers each receive the response to their own message, and may reuse the message
// immediately.
func TestPublishConcurrently(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 50
	e, s, _ := engine(t)
	var mu sync.Mutex
	stored := map[uint64]string{}
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			body := make([]byte, 100)
			for n := range each {
				text := fmt.Sprintf("%d/%d", caller, n)
				body = append(body[:0], text...)
				got, err := e.Publish(&nats.Msg{Subject: subject, Data: body},
					time.Now().Add(time.Minute))
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
		if msg, err := s.GetMsg(t.Context(), sequence); err != nil ||
			!bytes.Equal(msg.Data, []byte(text)) {
			t.Fatalf("message %d is %v, %v; want %s", sequence, msg, err, text)
		}
	}
}

// 32 callers publish at the same time, half of them messages that are too large. Each caller gets
// the result of its own message.
func TestAMessageInTheQueueIsRefused(t *testing.T) {
	t.Parallel()
	e, _, maxPayload := engine(t)
	large := make([]byte, maxPayload+1)
	var all sync.WaitGroup
	for caller := range 32 {
		all.Go(func() {
			var data []byte
			var want error
			if caller%2 == 0 {
				data, want = large, nats.ErrMaxPayload
			}
			for range 20 {
				_, err := e.Publish(&nats.Msg{Subject: subject, Data: data},
					time.Now().Add(time.Minute))
				if !errors.Is(err, want) {
					t.Errorf("%d bytes: %v, want %v", len(data), err, want)
				}
			}
		})
	}
	all.Wait()
}

// answer holds the arguments that PublishAsync passes to its callback.
type answer struct {
	ack ack.Ack
	err error
}

// PublishAsync calls done exactly once, even for a message that the connection refuses.
func TestSend(t *testing.T) {
	t.Parallel()
	e, _, maxPayload := engine(t)
	for _, c := range []struct {
		length int64
		want   answer
	}{
		{maxPayload + 1, answer{err: nats.ErrMaxPayload}},
		{1, answer{ack: ack.Ack{Sequence: 1}}},
	} {
		answers := make(chan answer, 2)
		e.PublishAsync(&nats.Msg{Subject: subject, Data: make([]byte, c.length)},
			time.Now().Add(time.Minute), func(a ack.Ack, err error) {
				answers <- answer{a, err}
			})
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

// A message is not sent if its deadline has passed before it reaches the connection.
func TestAMessageIsNotSentAfterItsDeadline(t *testing.T) {
	t.Parallel()
	e, s, _ := engine(t)
	late := time.Now().Add(-time.Millisecond)
	_, err := e.Publish(&nats.Msg{Subject: subject, Data: []byte("late")}, late)
	if !errors.Is(err, ack.ErrNotSent) {
		t.Errorf("%v", err)
	}
	if _, err := e.Publish(&nats.Msg{Subject: subject}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil || info.State.Msgs != 1 {
		t.Errorf("%d messages: %v", info.State.Msgs, err)
	}
}

// BenchmarkPublish compares a Publisher with the JetStream client. 64 callers each wait for their
// acknowledgments. The server runs in this process, so all figures include its work.
func BenchmarkPublish(b *testing.B) {
	const callers = 64
	body := bytes.Repeat([]byte("x"), 1000)
	run := func(b *testing.B, publish func() error) {
		b.SetParallelism(callers / runtime.GOMAXPROCS(0))
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if err := publish(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.Run("hookstart", func(b *testing.B) {
		e, _, _ := engine(b)
		run(b, func() error {
			_, err := e.Publish(&nats.Msg{Subject: subject, Data: body},
				time.Now().Add(time.Minute))
			return err
		})
	})
	client := func(b *testing.B) jetstream.JetStream {
		b.Helper()
		js, err := jetstream.New(natstest.Start(b).Connect(b),
			jetstream.WithPublishAsyncMaxPending(callers))
		if err == nil {
			_, err = js.CreateStream(b.Context(), jetstream.StreamConfig{
				Name:     "STREAM",
				Subjects: []string{subject},
			})
		}
		if err != nil {
			b.Fatal(err)
		}
		return js
	}
	b.Run("jetstream, PublishMsgAsync", func(b *testing.B) {
		js := client(b)
		run(b, func() error {
			future, err := js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: body})
			if err != nil {
				return err
			}
			select {
			case <-future.Ok():
				return nil
			case err := <-future.Err():
				return err
			}
		})
	})
	b.Run("jetstream, PublishMsg", func(b *testing.B) {
		js := client(b)
		run(b, func() error {
			_, err := js.PublishMsg(b.Context(), &nats.Msg{Subject: subject, Data: body})
			return err
		})
	})
}
