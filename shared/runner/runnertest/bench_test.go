package runnertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// BenchmarkRunner compares a runner with variants that use plain nats.go. The variants take turns
// on one server, which runs in a separate process. An operation is several thousand executions of
// 1 KB with each variant.
//
//	bare         Consume with explicit acknowledgements, and nothing else
//	unconfirmed  also decodes each message, and publishes the final report without waiting
//	             for a confirmation, so that a report may get lost
//	confirmed    like unconfirmed, but acknowledges a message only when the stream has stored
//	             the report: the least work that loses no report, as a runner promises
//	runner       Run with everything that it does
//
// The metrics x-bare, x-unconfirmed and x-confirmed are the runner's throughput divided by the
// throughput of the named variant.
//
// In "wait=10ms" and "wait=1ms", the handler only waits, like one that calls a database or a
// service, and the concurrency is a runner's default. In "empty", the handler does nothing, and the
// concurrency is the number of messages that Consume prefetches. Most of the work, including the
// server's, is then storing the reports.
func BenchmarkRunner(b *testing.B) {
	wait := func(d time.Duration) func() { return func() { <-time.After(d) } }
	b.Run("wait=10ms", func(b *testing.B) { compare(b, 2_000, 10, wait(10*time.Millisecond)) })
	b.Run("wait=1ms", func(b *testing.B) { compare(b, 10_000, 10, wait(time.Millisecond)) })
	b.Run("empty", func(b *testing.B) { compare(b, 10_000, 500, func() {}) })
}

func compare(b *testing.B, executions, places int, work func()) {
	server := natstest.StartProcess(b)
	nc := server.Connect(b)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(executions))
	if err == nil {
		err = stream.EnsureSharedStreams(b.Context(), js, stream.DefaultSettings)
	}
	if err != nil {
		b.Fatal(err)
	}
	for range executions {
		msg, err := stream.StartMessage(execution.Start{
			ID:         uuid.NewString(),
			WorkflowID: "workflow",
			NodeID:     "webhook",
			AccountID:  "account",
			Queue:      "default",
			Source:     execution.SourceWebhook,
			AcceptedAt: time.Now(),
			Payload: execution.Payload{
				ContentType: "application/json",
				Kind:        execution.BodyJSON,
				Body:        []byte(`"` + strings.Repeat("x", 1000) + `"`),
			},
			Headers: execution.Values{
				"Content-Type":      {"application/json"},
				"User-Agent":        {"bench"},
				"X-Github-Event":    {"push"},
				"X-Github-Delivery": {"d"},
			},
			Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		})
		if err == nil {
			_, err = js.PublishMsgAsync(msg)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()

	ways := []struct {
		name    string
		reports int
		run     func(ctx context.Context, nc *nats.Conn, group string, done func()) error
	}{
		{"bare", 0, consume(places, work, nil)},
		{"unconfirmed", 1, consume(places, work, unconfirmed)},
		{"confirmed", 1, consume(places, work, confirmed)},
		{"runner", 1, func(ctx context.Context, nc *nats.Conn, group string, done func()) error {
			return runner.Run(ctx, nc, runner.Options{Group: group, Concurrency: places}, func(
				context.Context, runner.Execution,
			) (any, error) {
				work()
				done()
				return map[string]bool{"ok": true}, nil
			})
		}},
	}
	took := map[string][]time.Duration{}
	round := 0
	for b.Loop() {
		for i := range ways {
			way := ways[(round+i)%len(ways)] // so that no variant always goes first
			took[way.name] = append(took[way.name],
				once(b, server, js, executions, way.reports*executions,
					fmt.Sprintf("g-%d-%d", round, i), way.run))
		}
		round++
	}
	// typical holds the median duration of each variant in seconds. A mean would be distorted by
	// the rounds in which Consume stops requesting messages for a while (see stream.Next).
	typical := map[string]float64{}
	for _, way := range ways {
		slices.Sort(took[way.name])
		typical[way.name] = took[way.name][round/2].Seconds()
		b.ReportMetric(float64(executions)/typical[way.name], way.name+"/s")
	}
	for _, way := range ways[:len(ways)-1] {
		b.ReportMetric(typical[way.name]/typical["runner"], "x-"+way.name)
	}
	b.ReportMetric(0, "ns/op")
}

// once makes a new group process the whole stream with the function run, and returns how long that
// takes: until the server has received as many acknowledgments as there are executions, and has
// stored the given number of reports. run gets the group's name, and must call its last argument
// after each execution.
func once(
	b *testing.B, server *natstest.Node, js jetstream.JetStream, executions, reports int,
	group string, run func(context.Context, *nats.Conn, string, func()) error,
) time.Duration {
	b.Helper()
	nc := server.Connect(b)
	defer nc.Close()
	consumer, err := js.CreateConsumer(b.Context(), stream.ExecutionsName, jetstream.ConsumerConfig{
		Durable: "runner-default-" + group, FilterSubject: stream.QueueFilterSubject("default"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 15 * time.Second, MaxAckPending: 10_000,
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := js.Stream(b.Context(), stream.ProgressName)
	if err != nil {
		b.Fatal(err)
	}
	before := s.CachedInfo().State.LastSeq
	ctx, stop := context.WithCancel(b.Context())
	var count atomic.Int64
	all, ended := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	go func() {
		ended <- run(ctx, nc, group, func() {
			if count.Add(1) == int64(executions) {
				close(all)
			}
		})
	}()
	<-all
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		info, err := consumer.Info(b.Context())
		if err != nil || info.AckFloor.Consumer != uint64(executions) {
			continue
		}
		if has, err := s.Info(b.Context()); err == nil &&
			has.State.LastSeq >= before+uint64(reports) {
			break
		}
	}
	took := time.Since(began)
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	err = js.DeleteConsumer(b.Context(), stream.ExecutionsName, "runner-default-"+group)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Purge(b.Context()); err != nil {
		b.Fatal(err)
	}
	return took
}

// consume returns a function that runs executions with plain nats.go, as one would write it without
// package runner. For each message it calls first work and then reports. It processes up to places
// messages at the same time. reports must publish the final report on msg, and must call
// acknowledge as soon as msg may be acknowledged. If reports is nil, messages are acknowledged
// without a report.
func consume(
	places int, work func(), reports func(
		js jetstream.JetStream, msg jetstream.Msg, acknowledge func(error),
	) error,
) func(context.Context, *nats.Conn, string, func()) error {
	return func(ctx context.Context, nc *nats.Conn, group string, done func()) error {
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(20_000))
		if err != nil {
			return err
		}
		consumer, err := js.Consumer(ctx, stream.ExecutionsName, "runner-default-"+group)
		if err != nil {
			return err
		}
		failed := make(chan error, 1)
		handle := func(msg jetstream.Msg) {
			work()
			acknowledge := func(err error) {
				if err == nil {
					err = msg.Ack()
				}
				if err != nil {
					failed <- err
				}
				done()
			}
			if reports == nil {
				acknowledge(nil)
			} else if err := reports(js, msg, acknowledge); err != nil {
				failed <- err
			}
		}
		taken := make(chan jetstream.Msg)
		defer close(taken)
		for range places {
			go func() {
				for msg := range taken {
					handle(msg)
				}
			}()
		}
		consuming, err := consumer.Consume(func(msg jetstream.Msg) { taken <- msg })
		if err != nil {
			return err
		}
		defer func() {
			consuming.Stop()
			<-consuming.Closed()
		}()
		select {
		case err = <-failed:
		case <-ctx.Done():
		}
		return err
	}
}

// unconfirmed publishes the final report on the execution in msg, and calls acknowledge without
// waiting for a confirmation.
func unconfirmed(js jetstream.JetStream, msg jetstream.Msg, acknowledge func(error)) error {
	succeeded, err := finalReport(msg)
	if err == nil {
		err = js.Conn().PublishMsg(succeeded)
	}
	acknowledge(err)
	return nil
}

// confirmed publishes the final report on the execution in msg, and calls acknowledge once the
// stream has stored the report.
func confirmed(js jetstream.JetStream, msg jetstream.Msg, acknowledge func(error)) error {
	succeeded, err := finalReport(msg)
	if err != nil {
		return err
	}
	future, err := js.PublishMsgAsync(succeeded)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-future.Ok():
			acknowledge(nil)
		case err := <-future.Err():
			acknowledge(err)
		}
	}()
	return nil
}

func finalReport(msg jetstream.Msg) (*nats.Msg, error) {
	event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		return nil, err
	}
	s, now := event.Start, time.Now()
	return stream.ProgressMessage(s.Queue, s.WorkflowID, s.NodeID, s.Trace,
		execution.Progress{
			ID:        s.ID,
			Status:    execution.Succeeded,
			At:        now,
			StartedAt: now,
			Output:    []byte(`{"ok":true}`),
		})
}
