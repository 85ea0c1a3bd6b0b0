package e2e

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
)

var canceledExecutions = flag.Int("canceled", 300,
	"TestCanceledAtRandomMoments: so many executions")

// canceling is what a call that cancels an execution has answered, and when.
type canceling struct {
	status   string
	ended    bool  // it had ended already
	answered int64 // microseconds since 1970
}

// Executions are canceled at random moments while their runners are killed: each has one end, which
// stays, and no handler begins after its cancel was answered as canceled.
func TestCanceledAtRandomMoments(t *testing.T) {
	t.Parallel()
	executions, takes := *canceledExecutions, 100*time.Millisecond
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	path := makeWorkflow(t, l.client(), "canceled")
	if _, err := l.client().PutWorkflow(t.Context(), "canceled", api.PutWorkflow{
		AccountID: "tests",
		Name:      "canceled",
		Queue:     "killed",
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	var all []*testRunner
	begin := func() *testRunner {
		r := &testRunner{process: launch(t, "test-runner", l.nats, takes.String())}
		r.Await("(ready)")
		all = append(all, r)
		return r
	}
	members := []*testRunner{begin(), begin()}
	ids := <-sendAll(t, l.ingress+path, executions)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })

	// Those that wait, those that run and those that have ended are canceled beside kills.
	answers := make([]canceling, len(ids))
	var calls sync.WaitGroup
	for some := range 4 {
		calls.Go(func() {
			for i := some; i < len(ids); i += 4 {
				answers[i] = l.cancel(t, ids[i])
			}
		})
	}
	called := make(chan struct{})
	go func() { calls.Wait(); close(called) }()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	kills := 0
	for going := true; going || kills == 0; kills++ {
		select {
		case <-called:
			going = false
		case <-tick.C:
		}
		victim := members[kills%len(members)]
		victim.Kill()
		victim.killed = true
		members[kills%len(members)] = begin()
	}
	final := map[string]api.Execution{}
	for deadline := time.Now().Add(2 * time.Minute); len(final) < len(ids) &&
		time.Now().Before(deadline); <-tick.C {
		finalStates(t, l.client(), "canceled", final)
	}
	for _, r := range members {
		r.Terminate()
	}
	finalStates(t, l.client(), "canceled", final)

	lastBegin := map[string]int64{}
	for _, r := range all {
		for id, run := range r.runs(t) {
			lastBegin[id] = max(lastBegin[id], run.began)
		}
	}
	count := map[string]int{}
	for i, id := range ids {
		answer, e := answers[i], final[id]
		count[e.Status]++
		switch {
		case !slices.Contains([]string{"succeeded", "canceled"}, e.Status):
			t.Errorf("execution %s is %q, its cancel was answered %+v", id, e.Status, answer)
		case answer.status == string(execution.Canceled) && e.Status != answer.status:
			t.Errorf("execution %s was answered as canceled, and is %s", id, e.Status)
		case answer.status == string(execution.Canceled) && lastBegin[id] > answer.answered:
			t.Errorf("a handler began with %s %d µs after it was answered as canceled", id,
				lastBegin[id]-answer.answered)
		case answer.ended && e.Status != string(execution.Succeeded):
			t.Errorf("execution %s had ended, and is %s", id, e.Status)
		}
	}
	if count["canceled"] == 0 || len(final) != len(ids) {
		t.Errorf("%d of %d ended: %v", len(final), len(ids), count)
	}
	t.Logf("%d executions, %d kills: %v", len(ids), kills, count)
}

// cancel cancels an execution as soon as it is recorded.
func (l *localProgram) cancel(t *testing.T, id string) canceling {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		e, err := l.client().CancelExecution(t.Context(), id)
		answered := time.Now().UnixMicro()
		problem, refused := errors.AsType[*api.Problem](err)
		switch {
		case err == nil:
			return canceling{status: e.Status, answered: answered}
		case refused && problem.Code == api.CodeAlreadyEnded:
			return canceling{ended: true, answered: answered}
		case !refused || problem.Code != api.CodeNotFound || time.Now().After(deadline):
			t.Errorf("cancel %s: %v", id, err)
			return canceling{}
		}
	}
}
