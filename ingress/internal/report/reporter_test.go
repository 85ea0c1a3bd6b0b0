package report

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/stream"
)

func connect(t *testing.T) (jetstream.JetStream, *natstest.Node) {
	t.Helper()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.EnsureReportsStream(t.Context(), js, 1); err != nil {
		t.Fatal(err)
	}
	return js, server
}

func stored(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream.ReportsName)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func message(t *testing.T, captured []byte) *nats.Msg {
	t.Helper()
	msg, err := stream.SendersMessage(fmt.Sprint(len(captured)), time.Now(),
		[]stream.SenderActivity{{WorkflowID: "wf", Captured: captured}})
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// A report that exceeds the maximum size of a NATS message is dropped, so that the later reports
// can be sent.
func TestAReportThatIsTooLong(t *testing.T) {
	t.Parallel()
	js, _ := connect(t)
	taken := []*nats.Msg{message(t, make([]byte, 2<<20)), message(t, nil)}
	r := newReporter(js, logtest.Discard(), "tests", time.Hour, func() (*nats.Msg, error) {
		msg := taken[0]
		taken = taken[1:]
		return msg, nil
	})
	r.send(t.Context())
	if n := stored(t, js); n != 0 {
		t.Fatalf("%d reports are stored", n)
	}
	r.send(t.Context())
	if n := stored(t, js); n != 1 {
		t.Errorf("%d reports are stored", n)
	}
}

// If a report is still unconfirmed when the context of Run ends, Run sends that report again. It
// then sends another report with everything that was counted after the first one.
func TestTheLastReports(t *testing.T) {
	t.Parallel()
	js, server := connect(t)
	senders := NewSenderObserver(js, logtest.Discard())
	senders.Observe("a", "node", "notion", SenderObservation{DeliveryStored: true})
	server.Stop()
	senders.send(t.Context())
	senders.Observe("b", "node", "notion", SenderObservation{DeliveryStored: true})
	server.Restart()
	if err := js.Conn().FlushTimeout(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	senders.Run(ended)
	if n := stored(t, js); n != 2 {
		t.Errorf("%d reports are stored", n)
	}
}

// If a provider sends two secrets before the next report, the first one is captured.
func TestTheFirstCapturedSecretCounts(t *testing.T) {
	t.Parallel()
	senders := NewSenderObserver(nil, logtest.Discard())
	for _, secret := range []string{"first", "second"} {
		senders.Observe("wf", "node", "notion", SenderObservation{CapturedSecret: []byte(secret)})
	}
	msg, err := senders.drainToMessage()
	if err != nil {
		t.Fatal(err)
	}
	_, _, seen, err := stream.DecodeSenders(msg.Data)
	if err != nil || len(seen) != 1 || string(seen[0].Captured) != "first" {
		t.Errorf("%+v, %v", seen, err)
	}
}

// If many secrets have been captured, they are divided among several reports, so that each report
// stays below the maximum size of a NATS message.
func TestManyCapturedSecrets(t *testing.T) {
	t.Parallel()
	js, _ := connect(t)
	senders := NewSenderObserver(js, logtest.Discard())
	const many, length = 300, 4096
	for i := range many {
		senders.Observe(fmt.Sprint(i), "node", "notion",
			SenderObservation{CapturedSecret: bytes.Repeat([]byte{1}, length)})
	}
	got := map[string]bool{}
	for reports := 1; len(got) < many; reports++ {
		msg, err := senders.drainToMessage()
		if err != nil || msg == nil {
			t.Fatalf("report %d: %v, %v", reports, msg, err)
		}
		if len(msg.Data) > 512<<10 {
			t.Errorf("report %d has %d bytes", reports, len(msg.Data))
		}
		_, _, seen, err := stream.DecodeSenders(msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, activity := range seen {
			got[activity.WorkflowID] = true
		}
	}
}

// If maxSendersPerReport nodes are waiting for the next report, another node is added only if its
// secret was captured. If twice as many nodes are waiting, even a captured secret is discarded, and
// Count returns false.
func TestACapturedSecretBesideManyNodes(t *testing.T) {
	t.Parallel()
	senders := NewSenderObserver(nil, logtest.Discard())
	count := func(id int, seen SenderObservation) bool {
		return senders.Observe(fmt.Sprint(id), "node", "notion", seen)
	}
	secret := SenderObservation{CapturedSecret: []byte{1}}
	for id := range maxSendersPerReport {
		if !count(id, SenderObservation{DeliveryStored: true}) {
			t.Fatal(id)
		}
	}
	if count(maxSendersPerReport, SenderObservation{DeliveryStored: true}) ||
		!count(maxSendersPerReport, secret) {
		t.Error("another node without a secret was counted, or one with a secret was not")
	}
	for id := range 2 * maxSendersPerReport {
		count(id, secret)
	}
	if count(2*maxSendersPerReport, secret) {
		t.Error("the number of nodes is not bounded")
	}
	for range 2 { // a report has at most maxSendersPerReport nodes, so that NATS accepts it
		msg, err := senders.drainToMessage()
		if err != nil {
			t.Fatal(err)
		}
		_, _, seen, err := stream.DecodeSenders(msg.Data)
		if err != nil || len(seen) != maxSendersPerReport {
			t.Errorf("%d nodes are reported: %v", len(seen), err)
		}
	}
}
