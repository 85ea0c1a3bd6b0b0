package local_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/stream"
)

// A power cut can leave files that the NATS server cannot read, such as the states of the consumers
// of the recorder and the runners. After a restart with such files, every execution is recorded
// exactly once, no finished execution runs again, and unfinished executions are delivered to the
// runners.
func TestConsumersThatAPowerCutHasDamaged(t *testing.T) {
	t.Parallel()
	t.Run("of the shared stream", func(t *testing.T) {
		t.Parallel()
		damageConsumers(t, stream.Layout{})
	})
	t.Run("of queues' own streams", func(t *testing.T) {
		t.Parallel()
		damageConsumers(t, stream.Layout{Own: true})
	})
}

func damageConsumers(t *testing.T, at stream.Layout) {
	dir, group := t.TempDir(), stream.RunnerGroup{Queue: "other", Group: "g"}
	first := launchReady(t, dir)
	moveQueue := func(name string) {
		t.Helper()
		if !at.Own {
			return
		}
		if _, err := first.client().SetQueueStream(t.Context(), name,
			api.PutQueueStream{}); err != nil {
			t.Fatal(err)
		}
	}
	moveQueue("demo")
	finished := first.accepted(t)
	for _, id := range finished {
		first.awaitStatus(t, id, "succeeded")
	}
	if _, err := first.client().PutWorkflow(t.Context(), "demo", api.PutWorkflow{
		AccountID: "demo",
		Name:      "Demo",
		Queue:     group.Queue,
		Triggers:  []api.PutTrigger{{NodeID: "webhook"}},
	}); err != nil {
		t.Fatal(err)
	}
	moveQueue(group.Queue)
	waiting := first.accepted(t)
	for _, id := range waiting {
		first.awaitStatus(t, id, "queued")
	}
	if _, err := stream.EnsureConsumer(t.Context(), first.jetStream(t),
		group.ConsumerConfigForLayout(at, time.Minute)); err != nil {
		t.Fatal(err)
	}
	reports := reportsOf(t, first.jetStream(t))
	first.Terminate()

	states, err := filepath.Glob(filepath.Join(dir, "nats/jetstream/$G/streams/*/obs/*/o.dat"))
	if err != nil || len(states) < 4 {
		t.Fatalf("%q, %v", states, err)
	}
	other := filepath.Join(dir, "nats/jetstream/$G/streams", at.StreamName(group.Queue), "obs",
		group.ConsumerName(), "o.dat")
	for _, path := range append(states, other) {
		if err := os.WriteFile(path, make([]byte, 16), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	second := launchReady(t, dir)
	second.awaitReadyz(t, "ready")
	for _, id := range second.accepted(t) {
		second.awaitStatus(t, id, "queued")
		waiting = append(waiting, id)
	}
	if list, err := second.client().Executions(t.Context(), apiclient.ExecutionFilter{},
		apiclient.Page{}); err != nil || len(list.Items) != len(finished)+len(waiting) {
		t.Errorf("%d executions are recorded, not %d, %v", len(list.Items),
			len(finished)+len(waiting), err)
	}
	second.givenTo(t, at.StreamName(group.Queue), group, waiting)
	if after := reportsOf(t, second.jetStream(t)); after != reports {
		t.Errorf("%d reports, and %d before: executions ran again", after, reports)
	}
}

// accepted posts three requests and returns the IDs of their executions.
func (r *running) accepted(t *testing.T) (ids []string) {
	t.Helper()
	for range 3 {
		a, err := r.post(t.Context(), "", strings.NewReader("{}"))
		if err != nil || a.status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		ids = append(ids, a.ExecutionID)
	}
	return ids
}

func (r *running) awaitStatus(t *testing.T, id, status string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := r.client().Execution(ctx, id)
		if err == nil && e.Status == status {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is never %s: %+v, %v", id, status, e, err)
		}
		<-tick.C
	}
}

func (r *running) jetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(r.Await(`\nNATS +(\S+)`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// reportsOf returns how many reports the runners have ever sent, including reports that have been
// deleted from their streams.
func reportsOf(t *testing.T, js jetstream.JetStream) (count uint64) {
	t.Helper()
	all := js.ListStreams(t.Context())
	for info := range all.Info() {
		if strings.HasPrefix(info.Config.Name, stream.ProgressName) {
			count += info.State.LastSeq
		}
	}
	if all.Err() != nil {
		t.Fatal(all.Err())
	}
	return count
}

// givenTo acts as a runner of the group: it consumes the stream until it has received all
// executions with the given IDs.
func (r *running) givenTo(
	t *testing.T, streamName string, group stream.RunnerGroup, ids []string,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	consumer, err := r.jetStream(t).Consumer(ctx, streamName, group.ConsumerName())
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	for len(missing) > 0 {
		msg, err := consumer.Next(jetstream.FetchContext(ctx))
		if err != nil {
			t.Fatalf("%d executions were not given to the runners: %v", len(missing), err)
		}
		delete(missing, msg.Headers().Get(stream.HeaderExecutionID))
		if err := msg.DoubleAck(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
