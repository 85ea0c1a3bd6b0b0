package e2e

import (
	"errors"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
)

var canceledExecutions = flag.Int("canceled", 300,
	"TestCanceledAtRandomMoments: so many executions")

// canceling holds the response to a call that cancels an execution, and the time of the call.
type canceling struct {
	status   string
	ended    bool  // whether the execution had already ended
	again    bool  // whether the call was a retry, because an earlier one got no response
	answered int64 // time of the response, in microseconds since 1970
}

// Executions are canceled at random moments while their runners and the executor are killed. Each
// execution ends exactly once, and its end does not change, even when the database is restored from
// an older copy. No handler begins after its execution was reported as canceled.
func TestCanceledAtRandomMoments(t *testing.T) {
	t.Parallel()
	executions, takes := *canceledExecutions, 100*time.Millisecond
	b := startBreakable(t, 2, "test-runner", takes.String())
	path := makeWorkflow(t, b.client.Load(), "canceled")
	if _, err := b.client.Load().PutWorkflow(t.Context(), "canceled", api.PutWorkflow{
		AccountID: "tests",
		Name:      "canceled",
		Queue:     "killed",
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	ids := <-sendAll(t, *b.urls[0].Load()+path, executions)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })

	// Waiting, running and ended executions are canceled while processes are killed.
	answers := make([]canceling, len(ids))
	var calls sync.WaitGroup
	for some := range 4 {
		calls.Go(func() {
			for i := some; i < len(ids) && t.Context().Err() == nil; i += 4 {
				answers[i] = b.cancel(ids[i])
			}
		})
	}
	t.Cleanup(calls.Wait)
	called := make(chan struct{})
	go func() { calls.Wait(); close(called) }()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	kills, older := 0, filepath.Join(t.TempDir(), "older")
	for going := true; going || kills < 3; kills++ {
		select {
		case <-called:
			going = false
		case <-tick.C:
		}
		switch {
		case kills == 0:
			b.copyDatabase(older)
		case kills%3 == 0:
			b.replaceExecutor()
		default:
			b.replaceRunner(kills)
		}
	}
	final := map[string]api.Execution{}
	allFinal := func() {
		for deadline := time.Now().Add(2 * time.Minute); len(final) < len(ids) &&
			time.Now().Before(deadline); <-tick.C {
			finalStates(t, b.client.Load(), "canceled", final)
		}
	}
	allFinal()
	for _, r := range b.members {
		r.Terminate()
	}
	finalStates(t, b.client.Load(), "canceled", final)
	before := final
	b.restoreDatabase(older)
	final = map[string]api.Execution{}
	allFinal()
	for id, e := range before {
		// Compare the times of succeeded executions only. The time of a cancellation is stored only
		// in the database, so it may be missing from the restored copy.
		if now := final[id]; now.Status != e.Status || e.Status == string(execution.Succeeded) &&
			!now.FinishedAt.Equal(e.FinishedAt) {
			t.Errorf("after the restore %+v became %+v", e, now)
		}
	}

	lastBegin := map[string]int64{}
	for _, r := range b.runners {
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
		case answer.ended && !answer.again && e.Status != string(execution.Succeeded):
			t.Errorf("execution %s had ended, and is %s", id, e.Status)
		}
	}
	if count["canceled"] == 0 || len(final) != len(ids) {
		t.Errorf("%d of %d ended: %v", len(final), len(ids), count)
	}
	t.Logf("%d executions, %d kills: %v", len(ids), kills, count)
}

// cancel cancels an execution as soon as it is recorded, and retries while the executor does not
// respond.
func (b *breakable) cancel(id string) (c canceling) {
	for deadline := time.Now().Add(time.Minute); b.t.Context().Err() == nil; {
		e, err := b.client.Load().CancelExecution(b.t.Context(), id)
		c.answered = time.Now().UnixMicro()
		problem, refused := errors.AsType[*api.Problem](err)
		switch {
		case err == nil:
			c.status = e.Status
			return c
		case refused && problem.Code == api.CodeAlreadyEnded:
			c.ended = true
			return c
		case time.Now().After(deadline), refused && problem.Code != api.CodeNotFound:
			b.t.Errorf("cancel %s: %v", id, err)
			return c
		case !refused:
			c.again = true
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-b.t.Context().Done():
		}
	}
	return c
}
