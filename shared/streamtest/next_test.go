package streamtest

import (
	"bytes"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

// Next sends another pull request even if the client receives the messages of the previous request
// before its write of that request has returned.
func TestNextAsksForMore(t *testing.T) {
	t.Parallel()
	const messages = 40
	server := natstest.Start(t)
	// Each write goes to the server immediately, but a write with a pull request returns late. So
	// the request can be answered before the client considers it sent.
	nc, err := nats.Connect(server.URL(), nats.WriteBufferSize(1),
		nats.SetCustomDialer(lateDialer{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:     "NEXT",
		Subjects: []string{"next"},
	}); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if _, err := js.Publish(t.Context(), "next",
			strconv.AppendInt(nil, int64(i), 10)); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := js.CreateConsumer(t.Context(), "NEXT", jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	iterator, err := consumer.Messages(jetstream.PullMaxMessages(4),
		jetstream.PullExpiry(time.Hour), jetstream.PullHeartbeat(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	// If the iterator failed to send a request, Next would wait for two missed heartbeats, which
	// takes 60 s. Stop the iterator after 30 s, so that Next and the test fail sooner.
	defer time.AfterFunc(30*time.Second, iterator.Stop).Stop()
	defer iterator.Stop()
	for i := range messages {
		msg, err := stream.Next(iterator)
		if err != nil {
			t.Fatalf("message %d of %d: %v", i, messages, err)
		}
		if got := string(msg.Data()); got != strconv.Itoa(i) {
			t.Fatalf("message %d is %s", i, got)
		}
	}
}

type lateDialer struct{}

func (lateDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return lateConn{conn}, err
}

// lateConn is a connection on which a write with a pull request returns 5 ms late, so that the
// requested messages usually arrive first.
type lateConn struct{ net.Conn }

func (c lateConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if bytes.Contains(data, []byte("CONSUMER.MSG.NEXT")) {
		<-time.After(5 * time.Millisecond)
	}
	return n, err
}
