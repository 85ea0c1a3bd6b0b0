package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// An API call requeues 10,000 dead letters. The executor is killed meanwhile and restarted, and the
// call is repeated. In the end, each dead letter has been requeued exactly once.
func TestRequeueSurvivesAKill(t *testing.T) {
	t.Parallel()
	const letters = 10_000
	server, database := natstest.Start(t), filepath.Join(t.TempDir(), "executions.db")
	launchExecutor := func() (*process, *apiclient.Client) {
		p := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
			"--nats-url="+server.URL(),
			"--database-url=sqlite:"+database, "--admin-token="+adminToken)
		return p,
			apiclient.New("http://"+p.Await(`"addr":"([^"]+)".*executor is ready`), adminToken)
	}
	executor, client := launchExecutor()
	makeWorkflow(t, client, "wf")
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	failMany(t, js, letters)
	within(t, 2*time.Minute, "dead letters", func() bool {
		return countLetters(t, client) == letters
	})

	// Kill the executor while it requeues, as soon as a hundredth of the dead letters have been
	// requeued. With a larger share, the kill could come too late on a busy machine, because
	// RequeueDeadLetters returns after 30 s even if dead letters are left.
	done := make(chan error, 1)
	go func() {
		_, err := client.RequeueDeadLetters(t.Context(), api.SelectDeadLetters{WorkflowID: "wf"})
		done <- err
	}()
	within(t, time.Minute, "requeues", func() bool {
		return lastSequence(t, js) >= letters+letters/100
	})
	executor.Kill()
	if err := <-done; err == nil {
		t.Error("the call was answered: the kill came too late")
	}
	_, client = launchExecutor()
	requeued, end := 0, time.Now().Add(2*time.Minute)
	for {
		answer, err := client.RequeueDeadLetters(t.Context(), api.SelectDeadLetters{
			WorkflowID: "wf",
		})
		if api.IsCode(err, api.CodeUnavailable) && time.Now().Before(end) {
			continue // NATS was too slow for one of the messages; the call can be repeated
		}
		if err != nil {
			t.Fatal(err)
		}
		if requeued += answer.Requeued; answer.Requeued == 0 {
			break
		}
	}
	if left := countLetters(t, client); left != 0 || requeued == 0 || requeued > letters {
		t.Errorf("%d requeued after the kill, %d left", requeued, left)
	}
	times := requeuesOf(t, js)
	if len(times) != letters {
		t.Errorf("%d of %d were requeued", len(times), letters)
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s was requeued %d times", id, n)
		}
	}
	t.Logf("%d were requeued before the kill, and %d after", letters-requeued, requeued)
}

// failMany creates n failed executions by publishing the messages that an ingress and a runner
// would publish.
func failMany(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		payload, err := execution.NewPayload("application/json", fmt.Appendf(nil, `{"n":%d}`, i))
		if err != nil {
			t.Fatal(err)
		}
		start := execution.Start{
			ID:         uuid.NewString(),
			WorkflowID: "wf",
			NodeID:     "node",
			AccountID:  "tests",
			Queue:      "default",
			Source:     execution.SourceWebhook,
			AcceptedAt: time.Now(),
			Payload:    payload,
		}
		msg, err := stream.StartMessage(start)
		if err == nil {
			_, err = js.PublishMsgAsync(msg)
		}
		if err != nil {
			t.Fatal(err)
		}
		msg, err = stream.ProgressMessage("default", "wf", "node", "", execution.Progress{
			ID:     start.ID,
			Status: execution.Failed,
			At:     time.Now(),
			Error:  "on purpose",
		})
		if err == nil {
			_, err = js.PublishMsgAsync(msg)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
}

// countLetters returns the number of all dead letters, for which it reads every page of the list.
func countLetters(t *testing.T, c *apiclient.Client) (n int) {
	t.Helper()
	for range items(t, func(p apiclient.Page) (api.List[api.DeadLetter], error) {
		return c.DeadLetters(t.Context(), apiclient.DeadLetterFilter{}, p)
	}) {
		n++
	}
	return n
}

func lastSequence(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream.ExecutionsName)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// requeuesOf returns how often each execution has been requeued, keyed by execution ID. It counts
// the start messages in the stream whose RerunOf is the ID of the execution.
func requeuesOf(t *testing.T, js jetstream.JetStream) map[string]int {
	t.Helper()
	times := map[string]int{}
	if err := stream.ForEachMessage(t.Context(), js, stream.ExecutionsName,
		jetstream.OrderedConsumerConfig{},
		func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
			event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
			if err == nil && event.Start != nil && event.Start.RerunOf != "" {
				times[event.Start.RerunOf]++
			}
			return err
		}); err != nil {
		t.Fatal(err)
	}
	return times
}
