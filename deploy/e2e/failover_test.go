package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/runner"
)

var failovers = flag.Int("failovers", 0,
	"TestDatabaseFailsOver: so many failovers, at 200 deliveries/s; 0: a few")

// failoverRun records the observations of the senders and the runner: the acknowledged deliveries
// and the runs of executions.
type failoverRun struct {
	mu       sync.Mutex
	accepted map[string]string // execution IDs keyed by delivery ID
	runs     map[string]int    // number of runs by execution ID
	failing  map[string]bool   // IDs of the executions that the runner reported as failed
	// after holds the IDs of the executions that ran again although an earlier run had ended. An ID
	// is listed once for each such run.
	after []string
}

// A database standby that lags behind is promoted repeatedly under load. It lacks some executions,
// and some of the reports that executions have ended. All of these are recorded again from the
// streams. No execution that has ended runs again, and /readyz reports the recovery while it lasts.
func TestDatabaseFailsOver(t *testing.T) {
	t.Parallel()
	rounds, perSecond, lag := 2, 50, time.Second
	if *failovers > 0 {
		rounds, perSecond, lag = *failovers, 200, 2*time.Second
	}
	pair := pgtest.StartReplicatedPair(t)
	i := installOn(t, pair.URL(), 1)
	second := launch(t, "executor", "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+i.nats.URL(),
		"--database-url="+pair.URL(), "--admin-token="+adminToken,
		"--public-url=https://hooks.example.com")
	executors := []*process{i.executor, second}
	var ops []string
	for _, p := range executors {
		ops = append(ops, "http://"+p.Await(`executor is ready.*"ops_addr":"([^"]+)"`))
	}
	url := i.urls[0] + makeWorkflow(t, i.client, "paid")
	run := &failoverRun{
		accepted: map[string]string{},
		runs:     map[string]int{},
		failing:  map[string]bool{},
	}
	stopRunner := run.work(t, i.nats.Connect(t, nats.MaxReconnects(-1)))
	stopSending := run.send(t, url, perSecond)
	var took []time.Duration
	for range rounds {
		check(t, pair.StartStandby(t.Context()))
		pause(t, lag/2) // both databases record the executions of this interval
		check(t, pair.StopStandby())
		pause(t, lag) // only the primary records the executions of this interval
		before := []int{len(executors[0].Output()), len(executors[1].Output())}
		check(t, pair.FailOver(t.Context()))
		promoted := time.Now()
		for recovered := false; !recovered &&
			t.Context().Err() == nil; pause(t, 10*time.Millisecond) {
			for n, p := range executors { // one of the executors rewinds the recorder's consumers
				recovered = recovered ||
					strings.Contains(p.Output()[before[n]:],
						"the database has again what was acknowledged")
			}
			if time.Since(promoted) > time.Minute {
				t.Fatal("no executor says that the database has again what it lacked")
			}
		}
		for _, url := range ops {
			awaitReady(t, url)
		}
		took = append(took, time.Since(promoted).Round(time.Millisecond))
	}
	stopSending()
	run.examine(t, i.client)
	stopRunner()
	behind := 0
	for _, p := range executors {
		behind += strings.Count(p.Output(), "the database is behind what was acknowledged")
		if strings.Contains(p.Output(), "ended as failed") {
			t.Error("executions were ended that no runner had failed")
		}
	}
	if behind < rounds {
		t.Errorf("the database was behind %d times after %d failovers", behind, rounds)
	}
	slices.Sort(took)
	t.Logf("%d failovers, %d deliveries: ready again after %s to %s, half within %s; %d "+
		"consumers moved back", rounds, len(run.accepted),
		took[0], took[len(took)-1], took[len(took)/2], behind)
}

// work starts a runner that runs executions until stop is called. Executions whose delivery ID ends
// in 7 fail.
func (f *failoverRun) work(t *testing.T, nc *nats.Conn) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	ended := map[string]bool{}
	go func() {
		done <- runner.Run(ctx, nc, runner.Options{Group: "g", Concurrency: 16, Attempts: 1}, func(
			_ context.Context, e runner.Execution,
		) (any, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.runs[e.ID]++
			if ended[e.ID] {
				f.after = append(f.after, e.ID)
			}
			ended[e.ID] = true
			if strings.HasSuffix(e.DeliveryID, "7") {
				f.failing[e.ID] = true
				return nil, runner.Permanent(errors.New("of seven"))
			}
			return map[string]string{"delivery": e.DeliveryID}, nil
		})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// send sends deliveries at a constant rate until stop is called, and retries each until it is
// accepted.
func (f *failoverRun) send(t *testing.T, url string, perSecond int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			//nolint:contextcheck // a delivery is finished after the senders have stopped
			sending.Go(func() {
				delivery := fmt.Sprint("delivery-", n)
				for t.Context().Err() == nil {
					a, err := post(t.Context(), url, map[string]string{
						"X-Webhook-Delivery-Id": delivery,
					}, strings.NewReader("{}"))
					if err == nil && a.Status == http.StatusOK {
						f.mu.Lock()
						f.accepted[delivery] = a.ExecutionID
						f.mu.Unlock()
						return
					}
				}
			})
		}
	})
	return func() { cancel(); sending.Wait() }
}

// examine waits until all accepted deliveries have a record with a final status, and then compares
// the records with the observations of the senders and the runner.
func (f *failoverRun) examine(t *testing.T, c *apiclient.Client) {
	t.Helper()
	records := map[string]api.Execution{}
	deadline := time.Now().Add(2 * time.Minute)
	for open := -1; open != 0 && time.Now().Before(deadline) &&
		t.Context().Err() == nil; pause(t, 200*time.Millisecond) {
		records, open = map[string]api.Execution{}, 0
		for e := range executions(t, c, apiclient.ExecutionFilter{WorkflowID: "paid"}) {
			if _, ok := records[e.ExecutionID]; ok {
				t.Errorf("%s is recorded twice", e.ExecutionID)
			}
			records[e.ExecutionID] = e
			if e.Status == "queued" || e.Status == "running" {
				open++
			}
		}
		open += max(0, len(f.accepted)-len(records))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(slices.Compact(slices.Sorted(maps.Values(f.accepted)))); n != len(records) ||
		n != len(f.accepted) {
		t.Errorf("%d deliveries, %d executions, %d records", len(f.accepted), n, len(records))
	}
	wrong, again := 0, 0
	for delivery, id := range f.accepted {
		want := "succeeded"
		if f.failing[id] {
			want = "failed"
		}
		if got := records[id]; got.Status != want {
			wrong++
			if wrong <= 5 {
				t.Errorf("%s (%s) is %q, its runner reported %q: %+v", id, delivery, got.Status,
					want, got)
			}
		}
		if f.runs[id] != 1 {
			again++
		}
	}
	t.Logf("%d deliveries, %d records, %d in another state than reported, %d ran not once, %d "+
		"ran again after their end",
		len(f.accepted), len(records), wrong, again, len(f.after))
	if wrong+again+len(f.after) > 0 {
		t.Error("see above")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pause sleeps for d, or until the test's context is done.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// awaitReady waits until a program's /readyz responds with 200.
func awaitReady(t *testing.T, ops string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for last := ""; ; pause(t, 20*time.Millisecond) {
		status, text, err := child.HTTPGet(ctx, ops+"/readyz")
		if ctx.Err() != nil {
			t.Fatalf("not ready: %s (%v)", last, err)
		}
		if last = text; status == http.StatusOK {
			return
		}
	}
}
