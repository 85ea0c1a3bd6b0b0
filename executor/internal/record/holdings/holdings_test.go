package holdings_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/record/holdings"
	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/stream"
)

func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }

const maxBytes = 200_000

type rig struct {
	t      *testing.T
	server *natstest.Node
	js     jetstream.JetStream
	log    *logtest.Buffer
	sums   *nats.Subscription
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, server: natstest.Start(t), log: &logtest.Buffer{}}
	r.js = r.connect()
	settings := stream.DefaultSettings
	settings.MaxBytes = maxBytes
	err := errors.Join(
		stream.EnsureReportsStream(t.Context(), r.js, 1),
		stream.EnsureSharedStreams(t.Context(), r.js, settings),
	)
	if err == nil {
		r.sums, err = r.js.Conn().SubscribeSync(stream.AccountStorageSubject)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) connect() jetstream.JetStream {
	r.t.Helper()
	nc, err := bus.Connect(r.t.Context(), bus.Options{
		URL: r.server.URL(), ConnectTimeout: 20 * time.Second, Log: logtest.Discard(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return js
}

// run starts a Tracker, as an executor does. The account of a workflow is the first letter of the
// workflow's name.
func (r *rig) run() (stop func()) {
	r.t.Helper()
	log := logrus.New()
	log.SetOutput(r.log)
	account := func(workflowID string) string {
		if workflowID == "deleted" {
			return ""
		}
		return workflowID[:1]
	}
	h := holdings.New(holdings.Config{JetStream: r.connect(), AccountOf: account, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	r.t.Cleanup(stop)
	return stop
}

// publish stores messages of a workflow until their total size is at least the given number of
// bytes.
func (r *rig) publish(workflowID string, bytes int) {
	r.t.Helper()
	before, body := r.used(), []byte(strings.Repeat("x", 3000))
	for n := 0; r.used() < before+uint64(bytes); n++ {
		start := execution.Start{
			ID: uuid.NewString(), WorkflowID: workflowID, NodeID: "n", AccountID: "a", Queue: "q",
			Payload: execution.Payload{Kind: execution.BodyText, Body: body},
		}
		var msg *nats.Msg
		var err error
		switch n % 3 {
		case 0:
			start.DeliveryID, start.Trace = "d",
				"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			msg, err = stream.StartMessage(start)
		case 1:
			start.OrderKey = "k"
			msg, err = stream.StartMessage(start)
		default:
			msg, err = stream.RejectedMessage(execution.Rejection{
				ID: start.ID, WorkflowID: workflowID, NodeID: "n", AccountID: "a", Queue: "q",
				Payload: start.Payload,
			})
		}
		if err == nil {
			_, err = r.js.PublishMsg(r.t.Context(), msg)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) info() *jetstream.StreamInfo {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), stream.ExecutionsName)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo()
}

func (r *rig) used() uint64 { return r.info().State.Bytes }

// next waits for the next published sums and returns them.
func (r *rig) next() map[string]int64 {
	r.t.Helper()
	msg, err := r.sums.NextMsg(40 * time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	name, sums, err := stream.DecodeAccountStorage(msg.Data)
	if err != nil || name != stream.ExecutionsName {
		r.t.Fatalf("%s, %v", name, err)
	}
	return sums
}

func total(sums map[string]int64) (n uint64) {
	for bytes := range maps.Values(sums) {
		n += uint64(bytes)
	}
	return n
}

// await waits for published sums for which right(sums) is true. what describes these sums in the
// error.
func (r *rig) await(what string, right func(map[string]int64) bool) {
	r.t.Helper()
	var sums map[string]int64
	for range 40 {
		if sums = r.next(); right(sums) {
			return
		}
	}
	r.t.Fatalf("%s: %v", what, sums)
}

// TestSums checks that the published number of bytes of each account matches what the stream holds,
// and stays correct when messages arrive or expire.
func TestSums(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.publish("a1", maxBytes/10)
	r.publish("b", maxBytes/2)
	r.run()
	r.publish("a2", maxBytes*22/100)
	b := int64(0)
	r.await("all accounts", func(sums map[string]int64) bool {
		b = sums["b"]
		return len(sums) == 2 && total(sums) == r.used() && b > maxBytes/2
	})
	r.publish("c", maxBytes/10)
	r.publish("deleted", 1)
	known := func(sums map[string]int64) bool { // one message has no account
		return total(sums) < r.used() && total(sums) > r.used()-5000
	}
	r.await("what came later", func(sums map[string]int64) bool {
		return len(sums) == 3 && known(sums) && sums["c"] > maxBytes/10
	})
	text := r.log.String()
	if strings.Count(text, "nine tenths full") != 1 || !strings.Contains(text, "b ") {
		t.Errorf("the log: %s", text)
	}
	// Purge the first five messages, which belong to a1. The stream is so small that each chunk has
	// only one message, so the bytes of the purged messages are subtracted immediately, and the
	// sums match the stream again.
	s, err := r.js.Stream(t.Context(), stream.ExecutionsName)
	if err == nil {
		err = s.Purge(t.Context(), jetstream.WithPurgeSequence(6))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.await("what expired", func(sums map[string]int64) bool {
		return known(sums) && sums["b"] == b
	})
	// Purge messages until the stream is less than seven tenths full. The Tracker then stops
	// reading the stream and deletes its consumer.
	if err := s.Purge(t.Context(), jetstream.WithPurgeKeep(10)); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		_, err := r.js.Consumer(t.Context(), stream.ExecutionsName,
			stream.AccountStorageConsumerName)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the consumer remains")
		}
	}
}

// One of two executors computes the sums. When it stops, the other one takes over. The published
// sums always cover all messages.
func TestTwoExecutors(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.publish("a", maxBytes*85/100)
	used := r.used()
	whole := func(sums map[string]int64) {
		t.Helper()
		if total(sums) != used {
			t.Fatalf("%v, the stream holds %d", sums, used)
		}
	}
	stopFirst := r.run()
	whole(r.next())
	stopSecond := r.run()
	for range 3 {
		whole(r.next())
	}
	stopFirst()
	for range 2 {
		whole(r.next())
	}
	r.run()
	stopSecond()
	whole(r.next())
	// Restart NATS, which loses the consumer.
	r.server.Stop()
	r.server.Restart()
	var err error
	r.js = r.connect()
	if r.sums, err = r.js.Conn().SubscribeSync(stream.AccountStorageSubject); err != nil {
		t.Fatal(err)
	}
	whole(r.next())
}
