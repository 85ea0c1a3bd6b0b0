package runnertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// A message that arrives at a runner that is stopping counts as an attempt. If the execution has
// attempts left, the runner returns the message to the server; otherwise, it runs the execution.
func TestWhatArrivesAtTheStopIsNotLost(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 2} {
		server := natstest.Start(t)
		nc := server.Connect(t)
		ingress := runnertest.NewIngress(t, nc)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		requests, err := nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT." + stream.ExecutionsName +
			".runner-default-group")
		if err != nil {
			t.Fatal(err)
		}
		proxy := server.NewProxy(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		// AckWait is so long that only messages that were handed back are redelivered.
		options := runner.Options{Group: "group", Attempts: attempts, AckWait: time.Hour}
		handler := func(_ context.Context, e runner.Execution) (any, error) {
			return e.Attempt, nil
		}
		stopping, err := nats.Connect(proxy.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer stopping.Close()
		go func() { ended <- runner.Run(ctx, stopping, options, handler) }()
		if _, err := requests.NextMsg(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		proxy.Silence()
		id := ingress.Start(t, runnertest.Post{})
		sending, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for sent := 0; sent == 0; {
			consumer, err := js.Consumer(sending, stream.ExecutionsName, "runner-default-group")
			if err != nil {
				t.Fatal(err)
			}
			info := consumer.CachedInfo()
			if sent = info.NumAckPending; sent == 0 && info.NumWaiting == 0 {
				proxy.Heal() // the request has expired: let the runner send the next one
			}
		}
		// Wait until the server has sent the first message to the runner. NumAckPending does not
		// show that, because the server counts a delivery before it sends the message. But the
		// server sends a stream's messages and confirmations in order, so once it has confirmed
		// this later message, it has also sent the first one.
		ingress.Start(t, runnertest.Post{Queue: "other"})
		stop()
		proxy.Heal()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		start(t, server.Connect(t), options, handler)
		if got := ingress.Await(t, id); got.Status != execution.Succeeded {
			t.Errorf("with %d attempts: %+v", attempts, got)
		}
	}
}
