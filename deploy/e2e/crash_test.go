package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/stream"
)

// ledger records the executions that the program has acknowledged to the senders.
type ledger struct {
	mu sync.Mutex
	// acknowledged maps execution IDs to delivery IDs, or to "" if a delivery has no ID.
	acknowledged map[string]string
}

func (l *ledger) add(a deliver.Answer, deliveryID string) (doubled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.acknowledged[a.ExecutionID]
	l.acknowledged[a.ExecutionID] = deliveryID
	return ok && !a.Deduplicated
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged)
}

// send posts deliveries until ctx ends or the program exits. url returns the URL for the next
// delivery. Every other delivery has an ID, which begins with the numbers run and sender.
func (l *ledger) send(ctx context.Context, t *testing.T, sender, run int, url func() string) {
	for n := 0; ctx.Err() == nil; n++ {
		deliveryID, header := "", map[string]string{"Content-Type": "application/json"}
		if n%2 == 0 {
			deliveryID = fmt.Sprintf("%d-%d-%d", run, sender, n)
			header["X-GitHub-Delivery"] = deliveryID
		}
		a, err := post(ctx, url(), header, strings.NewReader(`{"n":1}`))
		switch {
		case err != nil:
			// The program was killed, or the test is over. Unacknowledged requests do not count.
			return
		case a.Status == 200:
			if l.add(a, deliveryID) {
				t.Errorf("execution %s was given to two deliveries", a.ExecutionID)
			}
		case a.Code != "unavailable" && a.Code != "overloaded":
			t.Errorf("answer %+v", a)
			return
		}
	}
}

// The program is killed five times under load. Afterwards each acknowledged execution is recorded
// exactly once, and repeats of earlier deliveries are still recognized.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	const kills, senders, perRun = 5, 8, 150
	dir := t.TempDir()
	l := &ledger{acknowledged: map[string]string{}}
	path := ""
	for run := range kills {
		p := launchLocal(t, dir, "--log-level=warn")
		if path == "" {
			path = makeWorkflow(t, p.client(), "load")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		before := l.len()
		for sender := range senders {
			wg.Go(func() { l.send(ctx, t, sender, run, func() string { return p.ingress + path }) })
		}
		tick := time.NewTicker(time.Millisecond)
		for l.len() < before+perRun && ctx.Err() == nil {
			<-tick.C
		}
		tick.Stop()
		p.Kill() // while requests are in flight
		wg.Wait()
		cancel()
	}
	t.Logf("%d acknowledged", l.len())
	if l.len() < kills*perRun {
		t.Fatal("there was too little load")
	}

	p := launchLocal(t, dir, "--log-level=warn")
	for id, deliveryID := range l.acknowledged {
		if deliveryID == "" {
			continue
		}
		a, err := post(t.Context(), p.ingress+path, map[string]string{
			"X-GitHub-Delivery": deliveryID,
		}, strings.NewReader("again"))
		if err != nil || a.ExecutionID != id || !a.Deduplicated {
			t.Fatalf("delivery %s was %s, again: %+v, %v", deliveryID, id, a, err)
		}
	}
	checkLedger(t, l.acknowledged, p.nats, p.client(), "load")
}

// checkLedger checks that each acknowledged execution is stored and recorded exactly once. There
// may be more executions than were acknowledged, because a kill may have interrupted the response.
func checkLedger(
	t *testing.T, acknowledged map[string]string, natsURL string, c *apiclient.Client,
	workflowID string,
) {
	t.Helper()
	stored := storedStarts(t, natsURL, workflowID)
	for id := range acknowledged {
		if stored[id] != 1 {
			t.Errorf("%s is %d times in the stream", id, stored[id])
		}
	}
	for id, n := range stored {
		if n != 1 {
			t.Errorf("%s is %d times in the stream", id, n)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for {
		records := recordedIDs(t, c, workflowID)
		if len(records) >= len(stored) {
			for id, n := range records {
				if n != 1 || stored[id] != 1 {
					t.Errorf("%s is %d times recorded, %d times stored", id, n, stored[id])
				}
			}
			return
		}
		select {
		case <-ctx.Done():
			missing := maps.Clone(stored)
			for id := range records {
				delete(missing, id)
			}
			t.Fatalf("%d of %d executions are not recorded", len(missing), len(stored))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// storedStarts returns the number of start messages that each execution of a workflow has in the
// shared stream, keyed by execution ID.
func storedStarts(t *testing.T, natsURL, workflowID string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	if err := stream.ForEachMessage(t.Context(), jetStream(t, natsURL), stream.ExecutionsName,
		jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{"executions.start.*." + workflowID + ".*"},
		}, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
			counts[msg.Headers().Get(stream.HeaderExecutionID)]++
			return nil
		}); err != nil {
		t.Fatal(err)
	}
	return counts
}

// recordedIDs returns the number of records that each execution of a workflow has, keyed by
// execution ID.
func recordedIDs(t *testing.T, c *apiclient.Client, workflowID string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for e := range executions(t, c, apiclient.ExecutionFilter{WorkflowID: workflowID}) {
		counts[e.ExecutionID]++
	}
	return counts
}
