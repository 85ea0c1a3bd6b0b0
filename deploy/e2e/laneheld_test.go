package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
	"github.com/hookstart/hookstart/shared/stream"
)

// orderedQueue is the queue of the runner programs in these tests. Its group has the same name.
const orderedQueue = "ordered"

// A runner may hold one message of a lane from each of the two streams, if the queue's record
// changes while it decides which stream is older. Both executions still run, the older one first.
func TestALaneHoldsAMessageOfEachStream(t *testing.T) {
	t.Parallel()
	for name, launch := range map[string]func(*testing.T, *natstest.Node){
		"go": func(t *testing.T, server *natstest.Node) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			nc := server.Connect(t)
			go func() {
				done <- runner.Run(ctx, nc, runner.Options{
					Queue: orderedQueue,
					Group: orderedQueue,
				},
					func(context.Context, runner.Execution) (any, error) { return nil, nil })
			}()
			t.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		},
		"node": func(t *testing.T, server *natstest.Node) {
			requireNode(t)
			command := exec.Command("node", "--input-type=module", "--eval", ownRunner)
			command.Dir = nodeExample
			command.Env = append(os.Environ(), "HOOKSTART_NATS_URL="+server.URL())
			childtest.Launch(t, command)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			nc := server.Connect(t)
			ingress := runnertest.NewIngress(t, nc)
			post := runnertest.Post{Queue: orderedQueue, OrderKey: "k"}
			ingress.MoveToOwnStream(t, orderedQueue)
			older := ingress.Start(t, post)
			ingress.MoveToSharedStream(t, orderedQueue)
			newer := ingress.Start(t, post)
			answered := answerOutdated(t, nc)
			launch(t, server)
			ended := map[string]time.Time{}
			for _, id := range []string{older, newer} {
				final := ingress.Await(t, id)
				if final.Status != execution.Succeeded {
					t.Fatalf("%s ended as %+v", id, final)
				}
				ended[id] = final.At
			}
			if !answered.Load() {
				t.Error("the runner did not read the queue's record after it had received a " +
					"message")
			}
			if ended[newer].Before(ended[older]) {
				t.Errorf("the newer execution ended at %v, before the older one at %v",
					ended[newer], ended[older])
			}
		})
	}
}

// answerOutdated answers every request for the record of orderedQueue, in place of the registry:
// the queue drains its own stream. Once, when a message of a lane in that stream has been
// delivered, it answers with the state before: the own stream is the one in use. answered is set
// then.
func answerOutdated(t *testing.T, nc *nats.Conn) (answered *atomic.Bool) {
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := js.Stream(t.Context(), "KV_registry")
	if err != nil {
		t.Fatal(err)
	}
	// The server must not answer as well.
	config := registry.CachedInfo().Config
	config.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	own, err := js.Stream(t.Context(), stream.OwnStreamName(orderedQueue))
	if err != nil {
		t.Fatal(err)
	}
	delivered := func() bool {
		for info := range own.ListConsumers(t.Context()).Info() {
			if strings.HasPrefix(info.Name, "runner-ordered-ordered-") && info.NumAckPending > 0 {
				return true
			}
		}
		return false
	}
	answered = &atomic.Bool{}
	subscription, err := nc.Subscribe(
		"$JS.API.DIRECT.GET.KV_registry.$KV.registry.queue."+orderedQueue,
		func(msg *nats.Msg) {
			phase := stream.QueuePhaseDrainingOwnStream
			if !answered.Load() && delivered() {
				phase = stream.QueuePhaseOwnStream
				answered.Store(true)
			}
			settings, err := stream.EncodeQueueSettings(orderedQueue, execution.NumLanes, phase)
			if err == nil {
				err = msg.Respond(settings)
			}
			if err != nil {
				t.Error(err)
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = subscription.Unsubscribe() })
	return answered
}
