package runnertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// begins records which ordered executions begin, and in which order. It fails the test if two
// executions with the same key run at the same time.
type begins struct {
	t *testing.T

	mu      sync.Mutex
	running map[string]string   // execution IDs, by key
	order   map[string][]string // IDs by key, in the order in which they first began
}

func (b *begins) begin(key, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.running[key]; other != "" {
		b.t.Errorf("key %s: %s began while %s ran", key, id, other)
	}
	b.running[key] = id
	if !slices.Contains(b.order[key], id) {
		b.order[key] = append(b.order[key], id)
	} else if last := b.order[key]; last[len(last)-1] != id {
		b.t.Errorf("key %s: %s began again after %s", key, id, last[len(last)-1])
	}
}

func (b *begins) end(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, key)
}

// Executions with the same key begin one after another, in the order of their start messages, even
// if attempts fail and a member of the group leaves. All executions succeed in the end, including
// one without a key.
func TestOrderedExecutionsBeginInOrder(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	b := &begins{t: t, running: map[string]string{}, order: map[string][]string{}}
	handler := func(_ context.Context, e runner.Execution) (any, error) {
		if e.OrderKey == "" {
			return nil, nil
		}
		b.begin(e.OrderKey, e.ID)
		defer b.end(e.OrderKey)
		if e.Attempt == 1 && e.DeliveryID == "fails" {
			return nil, errors.New("once")
		}
		return nil, nil
	}
	const keys, each = 40, 6
	want := map[string][]string{}
	var last []string
	for n := range each {
		for k := range keys {
			key := fmt.Sprint("key ", k)
			post := runnertest.Post{
				OrderKey:   key,
				WorkflowID: fmt.Sprint("wf", k%3),
				NodeID:     fmt.Sprint("n", n, "-", k),
			}
			if (n+k)%7 == 0 {
				post.DeliveryID = "fails"
			}
			id := ingress.Start(t, post)
			want[key] = append(want[key], id)
			if n == each-1 {
				last = append(last, id)
			}
		}
	}
	last = append(last, ingress.Start(t, runnertest.Post{}))
	options := runner.Options{Concurrency: 3, Backoff: soon}
	leaves := start(t, server.Connect(t), options, handler)
	start(t, server.Connect(t), options, handler)
	start(t, server.Connect(t), runner.Options{Concurrency: 1, Backoff: soon}, handler)
	ingress.Await(t, want["key 7"][1])
	leaves()
	for _, id := range last {
		if final := ingress.Await(t, id); final.Status != execution.Succeeded {
			t.Errorf("%s ended as %+v", id, final)
		}
	}
	for key := range want {
		if !slices.Equal(b.order[key], want[key]) {
			t.Errorf("%s began in the order\n%v, started in\n%v", key, b.order[key], want[key])
		}
	}
}

// An execution that keeps failing blocks its lane until its last attempt. It does not block other
// lanes.
func TestAFailingExecutionHoldsUpItsKey(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	fails := ingress.Start(t, runnertest.Post{OrderKey: "a", WorkflowID: "fails"})
	var behind, other string
	// Start one execution in the lane of the failing execution, and one in another lane.
	for n := 0; behind == "" || other == ""; n++ {
		key := fmt.Sprint(n)
		same := execution.LaneOf("workflow", key) == execution.LaneOf("fails", "a")
		switch {
		case same && behind == "":
			behind = ingress.Start(t, runnertest.Post{OrderKey: key})
		case !same && other == "":
			other = ingress.Start(t, runnertest.Post{OrderKey: key})
		}
	}
	var mu sync.Mutex
	var attempts []string
	otherEnded := make(chan struct{})
	start(t, nc, runner.Options{Attempts: 3, Backoff: soon}, func(
		_ context.Context, e runner.Execution,
	) (any, error) {
		mu.Lock()
		attempts = append(attempts, e.ID)
		mu.Unlock()
		switch e.ID {
		case fails:
			<-otherEnded
			return nil, errors.New("always")
		case other:
			close(otherEnded)
		}
		return nil, nil
	})
	if final := ingress.Await(t, fails); final.Status != execution.Failed || final.Attempt != 3 {
		t.Errorf("it ended as %+v", final)
	}
	if final := ingress.Await(t, behind); final.Status != execution.Succeeded {
		t.Errorf("the one behind it ended as %+v", final)
	}
	mu.Lock()
	defer mu.Unlock()
	attempts = slices.DeleteFunc(attempts, func(id string) bool { return id == other })
	if !slices.Equal(attempts, []string{fails, fails, fails, behind}) {
		t.Errorf("attempts: %v", attempts)
	}
}

// If the server has lost the acknowledgments of a lane's consumer, it redelivers executions that
// have ended. The runner does not call a handler for them again, because later executions with the
// same key have already run.
func TestAnOrderedExecutionThatHasEndedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	begun := make(chan string, 10)
	handler := func(_ context.Context, e runner.Execution) (any, error) {
		begun <- e.ID
		return nil, nil
	}
	stop := start(t, nc, runner.Options{}, handler)
	ids := []string{
		ingress.Start(t, runnertest.Post{OrderKey: "a"}), ingress.Start(t, runnertest.Post{
			OrderKey: "a",
		}),
	}
	ingress.Await(t, ids[1])
	stop()
	loseAcknowledgments(t, nc, "group")
	start(t, nc, runner.Options{}, handler)
	ids = append(ids, ingress.Start(t, runnertest.Post{OrderKey: "a"}))
	ingress.Await(t, ids[2])
	close(begun)
	var got []string
	for id := range begun {
		got = append(got, id)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("handlers began with %v, and not with %v", got, ids)
	}
}

// answerReportReads sets whether the server responds to requests for reports in the given stream.
func answerReportReads(t *testing.T, js jetstream.JetStream, name string, answer bool) {
	t.Helper()
	reports, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	config := reports.CachedInfo().Config
	config.AllowDirect = answer
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// In an outage of NATS, nothing responds to a runner's requests for the last report on an ordered
// execution. A runner that has read reports in that stream before does not call the handler during
// the outage, because the execution may have ended already. In a stream in which it has never read
// a report, it gives up after a moment and calls the handler: an account may have the permission to
// read reports in the shared stream, but not in a queue's own stream.
func TestAnOrderedExecutionWaitsForItsLastReport(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan string, 10)
	start(t, nc, runner.Options{}, func(_ context.Context, e runner.Execution) (any, error) {
		begun <- e.ID
		return nil, nil
	})
	expectBegun(t, begun, ingress.Start(t, runnertest.Post{OrderKey: "a"}))
	answerReportReads(t, js, stream.ProgressName, false)
	second := ingress.Start(t, runnertest.Post{OrderKey: "a"})
	select {
	case id := <-begun:
		t.Errorf("%s began without the last report", id)
	case <-time.After(3 * time.Second): // a runner without an earlier read waits only 2 s
	}
	answerReportReads(t, js, stream.ProgressName, true)
	expectBegun(t, begun, second)
	if got := ingress.Await(t, second); got.Status != execution.Succeeded {
		t.Errorf("%+v", got)
	}
	ingress.MoveToOwnStream(t, execution.DefaultQueue)
	answerReportReads(t, js, stream.OwnProgressStreamName(execution.DefaultQueue), false)
	expectBegun(t, begun, ingress.Start(t, runnertest.Post{OrderKey: "b"}))
}

// Each group runs an ordered execution, even if another group has ended it before. If the server
// has lost the acknowledgments of a group's lane consumer, this group does not run the execution
// again, even if the last report is from another group.
func TestEachGroupRunsAnOrderedExecution(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	begun := make(chan string, 10)
	startGroup := func(group string) (stop func()) {
		return start(t, nc, runner.Options{Group: group}, func(
			_ context.Context, e runner.Execution,
		) (any, error) {
			begun <- group + " " + e.ID
			return nil, nil
		})
	}
	first := ingress.Start(t, runnertest.Post{OrderKey: "a"})
	for _, group := range []string{"one", "two"} {
		stop := startGroup(group)
		expectBegun(t, begun, group+" "+first)
		stop()
	}
	second := ingress.Start(t, runnertest.Post{OrderKey: "a"})
	for _, group := range []string{"one", "two"} {
		loseAcknowledgments(t, nc, group)
		startGroup(group)
		expectBegun(t, begun, group+" "+second)
	}
}

// If several groups report on an ordered execution at the same time, the last report names all of
// them. So none of them runs the execution again when it is redelivered.
func TestGroupsEndAnOrderedExecutionTogether(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	groups := []string{"one", "two", "three", "four"}
	var arrived sync.WaitGroup
	arrived.Add(len(groups))
	begun := make(chan string, 10)
	var stops []func()
	first := ingress.Start(t, runnertest.Post{OrderKey: "a"})
	startGroup := func(group string) (stop func()) {
		return start(t, nc, runner.Options{Group: group, ReportRunningAfter: -1}, func(
			_ context.Context, e runner.Execution,
		) (any, error) {
			begun <- group + " " + e.ID
			if e.ID == first {
				arrived.Done()
				arrived.Wait()
			}
			return nil, nil
		})
	}
	for _, group := range groups {
		stops = append(stops, startGroup(group))
	}
	arrived.Wait()
	for range groups {
		<-begun
	}
	for _, stop := range stops {
		stop()
	}
	second := ingress.Start(t, runnertest.Post{OrderKey: "a"})
	for _, group := range groups {
		loseAcknowledgments(t, nc, group)
		startGroup(group)
		expectBegun(t, begun, group+" "+second)
	}
}

// expectBegun waits up to 20 s for the next text from begun, which handlers send when they begin.
// The test fails if the text is not want.
func expectBegun(t *testing.T, begun <-chan string, want string) {
	t.Helper()
	select {
	case got := <-begun:
		if got != want {
			t.Errorf("%s began, want %s", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not begin", want)
	}
}

// loseAcknowledgments makes the server redeliver all executions with the order key "a" to a group,
// as if it had lost the group's acknowledgments.
func loseAcknowledgments(t *testing.T, nc *nats.Conn, group string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	lane := stream.RunnerGroup{
		Queue: execution.DefaultQueue,
		Group: group,
	}.LaneConsumerName(execution.LaneOf("workflow", "a"))
	_, err = js.ResetConsumerToSequence(t.Context(), stream.ExecutionsName, lane, 1)
	if err != nil {
		t.Fatal(err)
	}
}

// A runner reads the last report on an ordered execution to find out whether it has ended. If the
// response is lost, the runner requests it again.
func TestAnOrderedExecutionSurvivesALostResponse(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// The test responds to requests for reports itself.
	answerReportReads(t, js, stream.ProgressName, false)
	var asked atomic.Int32
	if _, err := nc.Subscribe("$JS.API.DIRECT.GET."+stream.ProgressName+".>", func(msg *nats.Msg) {
		if asked.Add(1) == 1 {
			return
		}
		notFound := nats.NewMsg(msg.Reply)
		notFound.Header.Set("Status", "404")
		if err := msg.RespondMsg(notFound); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	start(t, nc, runner.Options{}, func(context.Context, runner.Execution) (any, error) {
		return nil, nil
	})
	id := ingress.Start(t, runnertest.Post{OrderKey: "a"})
	if final := ingress.Await(t, id); final.Status != execution.Succeeded {
		t.Errorf("it ended as %+v", final)
	}
	if n := asked.Load(); n < 2 {
		t.Errorf("the runner asked %d times for the last report", n)
	}
}

// A new leader of a consumer may deliver a message again, to another client. The context of the
// handler that works on the message then ends with ErrLost, even if every heartbeat is confirmed.
func TestAHandlerEndsWhenItsMessageIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	start(t, nc, runner.Options{AckWait: 2 * time.Second},
		func(ctx context.Context, _ runner.Execution) (any, error) {
			begun <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, nil
		})
	ingress.Start(t, runnertest.Post{OrderKey: "a"})
	<-begun
	lane, err := js.Consumer(t.Context(), stream.ExecutionsName, stream.RunnerGroup{
		Queue: execution.DefaultQueue,
		Group: "group",
	}.LaneConsumerName(execution.LaneOf("workflow", "a")))
	if err != nil {
		t.Fatal(err)
	}
	info := lane.CachedInfo()
	// Hand the message back on behalf of the runner, so that the server delivers it again.
	nak := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.0.0", info.Stream, info.Name, info.Delivered.Stream,
		info.Delivered.Consumer)
	if err := nc.Publish(nak, []byte("-NAK")); err != nil {
		t.Fatal(err)
	}
	again, err := lane.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, runner.ErrLost) {
		t.Errorf("the handler ended with %v", err)
	}
	if err := again.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A new group with OnlyNew receives only the executions that are accepted after it was created,
// even from a lane whose consumer is created later.
func TestLanesBeginWhereTheirGroupBegan(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	ingress.Start(t, runnertest.Post{OrderKey: "a"})
	begun := make(chan string, 10)
	ready := make(chan struct{})
	start(t, nc, runner.Options{OnlyNew: true, OnReady: func() {
		close(ready)
	}}, func(_ context.Context, e runner.Execution) (any, error) {
		begun <- e.ID
		return nil, nil
	})
	<-ready
	id := ingress.Start(t, runnertest.Post{OrderKey: "a"})
	ingress.Await(t, id)
	if got := <-begun; got != id {
		t.Errorf("a handler began with %s, and not with %s", got, id)
	}
}

// The consumer of a lane has the name and the settings that runners in other languages rely on. A
// group whose own consumer would have the same name cannot start.
func TestConsumersOfLanes(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := server.Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	start(t, nc, runner.Options{AckWait: 7 * time.Second},
		func(context.Context, runner.Execution) (any, error) {
			return nil, nil
		})
	ingress.Await(t, ingress.Start(t, runnertest.Post{OrderKey: "a"}))
	lane := execution.LaneOf("workflow", "a")
	consumer, err := js.Consumer(t.Context(), "EXECUTIONS",
		fmt.Sprint("runner-default-group-", lane))
	if err != nil {
		t.Fatal(err)
	}
	if c := consumer.CachedInfo().Config; c.MaxAckPending != 1 ||
		c.FilterSubject != fmt.Sprint("executions.ordered.default.", lane, ".>") ||
		c.AckWait != 7*time.Second {
		t.Errorf("%+v", c)
	}
	// A group is refused if its own consumer would have the name of another group's lane consumer.
	err = runner.Run(t.Context(), nc, runner.Options{Group: fmt.Sprint("group-", lane)}, func(
		context.Context, runner.Execution,
	) (any, error) {
		return nil, nil
	})
	if !errors.Is(err, stream.ErrConsumerConflict) {
		t.Errorf("a group with the name of a lane: %v", err)
	}
}
