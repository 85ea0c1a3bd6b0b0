package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/execution"
)

var orderedExecutions = flag.Int("ordered", 0,
	"number of executions in TestOrderHoldsWhileRunnersAreKilled, of 500 keys, with a kill every "+
		"2 s; 0: a short test")

// makeOrdered creates a workflow with the queue "killed" and an order key from the query, and
// returns its URL.
func makeOrdered(t *testing.T, l *localProgram) string {
	t.Helper()
	path := makeWorkflow(t, l.client(), "killed")
	if _, err := l.client().PutWorkflow(t.Context(), "killed", api.PutWorkflow{
		AccountID: "tests",
		Name:      "killed",
		Queue:     "killed",
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: "node", OrderKey: "query:key"}},
	}); err != nil {
		t.Fatal(err)
	}
	return l.ingress + path
}

// Four runners of one group are killed and replaced one after another. The handlers for each key
// begin in the order in which the executions were accepted, and all executions end.
func TestOrderHoldsWhileRunnersAreKilled(t *testing.T) {
	t.Parallel()
	executions, keys, takes := 300, 30, 10*time.Millisecond
	if *orderedExecutions > 0 {
		executions, keys = *orderedExecutions, 500
	}
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	url := makeOrdered(t, l)
	var all []*testRunner
	begin := func() *testRunner {
		r := &testRunner{process: launch(t, "test-runner", l.nats, takes.String())}
		r.Await("(ready)")
		all = append(all, r)
		return r
	}
	members := []*testRunner{begin(), begin(), begin(), begin()}
	want := map[int][]string{} // execution IDs by key, in the order of acceptance
	keyOf := map[string]int{}
	for n := range executions {
		key := n % keys
		a, err := post(t.Context(), fmt.Sprintf("%s&key=k%d", url, key), nil,
			strings.NewReader("{}"))
		if err != nil || a.status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		want[key] = append(want[key], a.ExecutionID)
		keyOf[a.ExecutionID] = key
	}
	kills := 0
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for deadline := time.Now().Add(time.Hour); time.Now().Before(deadline); <-tick.C {
		ran := 0
		for _, r := range all {
			ran += strings.Count(r.Output(), "\nend ")
		}
		due := ran >= (kills+1)*executions/4
		if *orderedExecutions > 0 {
			due = time.Since(last) >= 2*time.Second
		}
		if due {
			last = time.Now()
			victim := members[kills%len(members)]
			victim.Kill()
			victim.killed = true
			members[kills%len(members)] = begin()
			kills++
		}
		if ran >= executions {
			break
		}
	}
	final := map[string]api.Execution{}
	within(t, 2*time.Minute, "end of all executions", func() bool {
		finalStates(t, l.client(), "killed", final)
		return len(final) == executions
	})
	for _, r := range members {
		r.Terminate()
	}
	for id, e := range final {
		if execution.Status(e.Status) != execution.Succeeded {
			t.Errorf("%s is %s", id, e.Status)
		}
	}
	type run struct {
		id           string
		began, ended int64 // ended is 0 if the handler did not return
	}
	byKey, repeats := map[int][]run{}, 0
	for _, r := range all {
		ends := map[string]int64{}
		for line := range strings.Lines(r.Output()) {
			var id string
			var at int64
			if n, _ := fmt.Sscanf(line, "end %s %d", &id, &at); n == 2 {
				ends[id] = at
			}
		}
		for id, of := range r.runs(t) {
			byKey[keyOf[id]] = append(byKey[keyOf[id]], run{id, of.began, ends[id]})
		}
	}
	for key, runs := range byKey {
		slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.began, b.began) })
		var begins []string
		for i, r := range runs {
			if len(begins) > 0 && begins[len(begins)-1] == r.id {
				repeats++
			} else {
				begins = append(begins, r.id)
			}
			if i > 0 && runs[i-1].ended > r.began {
				t.Errorf("key %d: %s began before %s had ended", key, r.id, runs[i-1].id)
			}
		}
		if !slices.Equal(begins, want[key]) {
			t.Errorf("key %d: handlers began with\n%v, accepted were\n%v", key, begins, want[key])
		}
	}
	t.Logf("%d executions of %d keys, %d runners killed, all in order; %d handler runs were "+
		"repeats", executions, keys, kills, repeats)
}

// A runner that is frozen for longer than the ack wait aborts its handler when it resumes; another
// member of the group has run the execution.
func TestAFrozenRunnerGivesUpWhatIsOrdered(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	url := makeOrdered(t, l) + "&key=k"
	begin := func(takes string) *testRunner {
		r := &testRunner{process: launch(t, "test-runner", l.nats, takes)}
		r.Await("(ready)")
		return r
	}
	frozen := begin("1h")
	first, err := post(t.Context(), url, nil, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := post(t.Context(), url, nil, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	frozen.Await("(begin " + first.ExecutionID + ")")
	if err := syscall.Kill(frozen.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := begin("1ms")
	other.Await("(end " + first.ExecutionID + ")")
	other.Await("(end " + second.ExecutionID + ")")
	if err := syscall.Kill(frozen.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	frozen.Await("(lost " + first.ExecutionID + ")")
	for _, id := range []string{first.ExecutionID, second.ExecutionID} {
		recorded(t, l.client(), id, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
	}
	if strings.Contains(frozen.Output(), second.ExecutionID) {
		t.Error("the frozen runner began the second execution, too")
	}
}
