package e2e

import (
	"context"
	"fmt"
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

// orderedQueue is the queue that the runners in these tests serve, and also the name of their
// group.
const orderedQueue = "ordered"

// The queue's record changes while a runner determines which of the queue's two streams has the
// older executions. The runner may then hold a message of the same lane from each stream. Both
// executions still run, the older one first.
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
			childtest.Launch(t, nodeRunner(ownRunner, server.URL()))
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

// A runner that is stopped just after it has received the last attempt of an ordered execution runs
// this execution. The delivery of the message already counts as the attempt: if the runner handed
// the message back, the execution would fail at the next runner without having run.
func TestAStoppedRunnerRunsTheLastAttempt(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	id := ingress.Start(t, runnertest.Post{Queue: orderedQueue, OrderKey: "k"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	answerSettings(t, nc, stream.Layout{}, func(delivered bool) stream.QueueStreamPhase {
		if delivered {
			stop()
		}
		return stream.QueuePhaseSharedStream
	})
	run := func(ctx context.Context) error {
		return runner.Run(ctx, server.Connect(t), runner.Options{
			Queue: orderedQueue, Group: orderedQueue, Attempts: 1,
		}, func(context.Context, runner.Execution) (any, error) { return nil, nil })
	}
	if err := run(ctx); err != nil {
		t.Fatal(err)
	}
	next, stopNext := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(next) }()
	if final := ingress.Await(t, id); final.Status != execution.Succeeded {
		t.Errorf("it ended as %+v", final)
	}
	stopNext()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// settingsRequests is the subject to which runners send requests for the record of orderedQueue.
const settingsRequests = "$JS.API.DIRECT.GET.KV_registry.$KV.registry.queue." + orderedQueue

// While a runner cannot read its queue's record, it holds executions with an order key, because an
// older execution may be in the other stream. It does so even if it was able to read the record
// earlier.
func TestARunnerHoldsAMessageWhileItCannotReadTheRecord(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent %t", silent), func(t *testing.T) {
			t.Parallel()
			forBothKits(t, func(
				t *testing.T, launch func(string, kitOptions) func() <-chan struct{},
			) {
				server := natstest.Start(t)
				nc := server.Connect(t)
				ingress, js := runnertest.NewIngress(t, nc), jetStream(t, server.URL())
				post := runnertest.Post{Queue: orderedQueue, OrderKey: "k"}
				ingress.MoveToOwnStream(t, orderedQueue)
				ingress.Start(t, post)
				ingress.MoveToSharedStream(t, orderedQueue)
				older := takeFirst(t, js, stream.Layout{Own: true})
				answer := func(phase stream.QueueStreamPhase) *nats.Subscription {
					return answerSettings(t, nc, stream.Layout{},
						func(bool) stream.QueueStreamPhase { return phase })
				}
				answering := answer(stream.QueuePhaseSharedStream)
				requests := subscribe(t, nc, "$JS.API.CONSUMER.MSG.NEXT."+stream.ExecutionsName+
					"."+laneOfK())
				answers := watchAnswers(t, nc)
				launch(server.URL(), kitOptions{AckWaitMS: 2000})
				await(t, requests)
				if silent {
					subscribe(t, nc, settingsRequests)
				}
				if err := answering.Unsubscribe(); err != nil {
					t.Fatal(err)
				}
				newer := ingress.Start(t, post)
				answers.awaitHeartbeats(3)
				answer(stream.QueuePhaseDrainingOwnStream)
				answers.awaitHeartbeats(3)
				if err := older.DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
				if final := ingress.Await(t, newer); final.Status != execution.Succeeded {
					t.Errorf("it ended as %+v", final)
				}
			})
		})
	}
}

// answerOutdated answers requests for the record of orderedQueue, in place of the registry. Every
// answer but one says that the queue drains its own stream. The other answer is outdated: it says
// that the queue still uses its own stream. answerOutdated gives it once, at the first request
// after a lane's message in the own stream has been delivered, and then sets answered to true.
func answerOutdated(t *testing.T, nc *nats.Conn) (answered *atomic.Bool) {
	answered = &atomic.Bool{}
	answerSettings(t, nc, stream.Layout{Own: true}, func(delivered bool) stream.QueueStreamPhase {
		if delivered && answered.CompareAndSwap(false, true) {
			return stream.QueuePhaseOwnStream
		}
		return stream.QueuePhaseDrainingOwnStream
	})
	return answered
}

// answerSettings answers all requests for the record of orderedQueue, in place of the registry. For
// each answer it calls phase, which returns the queue's phase in the record. It passes delivered as
// true if, in the stream with the given layout, a lane has a message that is delivered but not
// acknowledged.
func answerSettings(
	t *testing.T, nc *nats.Conn, layout stream.Layout,
	phase func(delivered bool) stream.QueueStreamPhase,
) (answering *nats.Subscription) {
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := js.Stream(t.Context(), "KV_registry")
	if err != nil {
		t.Fatal(err)
	}
	// Turn off direct reads, so that only the subscription below answers the requests.
	config := registry.CachedInfo().Config
	config.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	starts, err := js.Stream(t.Context(), layout.StreamName(orderedQueue))
	if err != nil {
		t.Fatal(err)
	}
	delivered := func() bool {
		for info := range starts.ListConsumers(t.Context()).Info() {
			if strings.HasPrefix(info.Name, "runner-ordered-ordered-") && info.NumAckPending > 0 {
				return true
			}
		}
		return false
	}
	answering, err = nc.Subscribe(settingsRequests, func(msg *nats.Msg) {
		settings, err := stream.EncodeQueueSettings(orderedQueue, execution.LanesPerQueue,
			phase(delivered()))
		if err == nil {
			err = msg.Respond(settings)
		}
		if err != nil && t.Context().Err() == nil { // when the test ends, the connection is closed
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answering.Unsubscribe() })
	return answering
}
