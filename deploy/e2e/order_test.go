package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

var orderedExecutions = flag.Int("ordered", 0,
	"number of executions in TestOrderHoldsWhileRunnersAreKilled and TestOrderHoldsInACluster, of "+
		"500 keys, with a kill every 2 s; 0: short tests")

// makeOrdered creates a workflow and returns the path and query of its webhook URL. The workflow's
// executions are in the queue "killed", and their order key is the query parameter "key".
func makeOrdered(t *testing.T, c *apiclient.Client) string {
	t.Helper()
	path := makeWorkflow(t, c, "killed")
	if _, err := c.PutWorkflow(t.Context(), "killed", api.PutWorkflow{
		AccountID: "tests",
		Name:      "killed",
		Queue:     "killed",
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: "node", OrderKey: "query:key"}},
	}); err != nil {
		t.Fatal(err)
	}
	return path
}

// ordered runs executions with order keys on four runners of one group.
type ordered struct {
	t       *testing.T
	client  *apiclient.Client
	runner  []string         // program and arguments of a runner
	members []*testRunner    // the four runners that are running
	all     []*testRunner    // all runners, including those that were killed
	want    map[int][]string // execution IDs by key, in the order of acceptance
	keyOf   map[string]int   // number of the order key, keyed by execution ID
	kills   int
}

func newOrdered(t *testing.T, c *apiclient.Client, runner ...string) *ordered {
	o := &ordered{
		t:      t,
		client: c,
		runner: runner,
		want:   map[int][]string{},
		keyOf:  map[string]int{},
	}
	for range 4 {
		o.members = append(o.members, o.startRunner())
	}
	return o
}

func (o *ordered) startRunner() *testRunner {
	o.t.Helper()
	r := &testRunner{process: launch(o.t, o.runner[0], o.runner[1:]...)}
	r.Await("(ready)")
	o.all = append(o.all, r)
	return r
}

// replaceRunner kills a runner and starts another one in its place. Repeated calls replace the
// runners in turn.
func (o *ordered) replaceRunner() {
	o.t.Helper()
	i := o.kills % len(o.members)
	o.members[i].Kill()
	o.members[i].killed = true
	o.members[i] = o.startRunner()
	o.kills++
}

// post starts executions with the order keys k0, k1 and so on in turn. executions and keys are the
// numbers of executions and of keys. A request that does not get a 200 is repeated with the same
// delivery ID for up to a minute.
func (o *ordered) post(url string, executions, keys int) error {
	for n := range executions {
		key := n % keys
		for deadline := time.Now().Add(time.Minute); ; {
			ctx, cancel := context.WithTimeout(o.t.Context(), 10*time.Second)
			a, err := post(ctx, fmt.Sprintf("%s&key=k%d", url, key),
				map[string]string{"X-GitHub-Delivery": fmt.Sprint("delivery-", n)},
				strings.NewReader("{}"))
			cancel()
			if err == nil && a.Status == http.StatusOK {
				o.want[key] = append(o.want[key], a.ExecutionID)
				o.keyOf[a.ExecutionID] = key
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("delivery %d: %+v, %w", n, a, err)
			}
		}
	}
	return nil
}

// run starts executions with post, and returns when all of them have ended. Meanwhile it calls
// disturb repeatedly: every 2 s in a long test, and otherwise whenever another 1/parts of the
// executions have ended.
func (o *ordered) run(url string, executions, keys, parts int, disturb func()) {
	o.t.Helper()
	posted := make(chan error, 1)
	go func() { posted <- o.post(url, executions, keys) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last, done := time.Now(), 0
	for deadline := time.Now().Add(time.Hour); time.Now().Before(deadline); <-tick.C {
		ended := o.ended()
		due := ended >= (done+1)*executions/parts
		if *orderedExecutions > 0 {
			due = time.Since(last) >= 2*time.Second
		}
		if due {
			disturb()
			last = time.Now()
			done++
		}
		if ended >= executions {
			break
		}
	}
	if err := <-posted; err != nil {
		o.t.Fatal(err)
	}
}

// ended returns how many handlers have returned without an error, in all runners together.
func (o *ordered) ended() int {
	n := 0
	for _, r := range o.all {
		n += strings.Count(r.Output(), "\nend ")
	}
	return n
}

// check waits until all executions have ended, and checks that the handlers of each key ran in the
// order of acceptance. failed is the number of runs whose handler failed. repeats is the number of
// times that an execution ran again although its handler had not failed, for example because its
// runner was killed.
func (o *ordered) check() (failed, repeats int) {
	t := o.t
	t.Helper()
	final := map[string]api.Execution{}
	within(t, 2*time.Minute, "end of all executions", func() bool {
		finalStates(t, o.client, "killed", final)
		return len(final) == len(o.keyOf)
	})
	for _, r := range o.members {
		r.Terminate()
	}
	for id, e := range final {
		if execution.Status(e.Status) != execution.Succeeded {
			t.Errorf("%s is %s", id, e.Status)
		}
	}
	// Record each run separately, because an execution may run several times, even in the same
	// process.
	type run struct {
		id           string
		by           int   // process ID of the runner
		began, ended int64 // ended is 0 if the handler did not return
		failed       bool
	}
	byKey := map[int][]*run{}
	for _, r := range o.all {
		open := map[string]*run{}
		for line := range strings.Lines(r.Output()) {
			var what, id string
			var at int64
			if n, _ := fmt.Sscanf(line, "%s %s %d", &what, &id, &at); n != 3 {
				continue
			}
			switch key, ok := o.keyOf[id]; {
			case !ok:
			case what == "begin":
				open[id] = &run{id: id, by: r.PID(), began: at}
				byKey[key] = append(byKey[key], open[id])
			case what == "end", what == "failed":
				open[id].ended, open[id].failed = at, what == "failed"
			}
		}
	}
	for key, want := range o.want {
		runs := byKey[key]
		slices.SortFunc(runs, func(a, b *run) int { return cmp.Compare(a.began, b.began) })
		var begins []string
		for i, r := range runs {
			if r.failed {
				failed++
			}
			switch {
			case len(begins) == 0 || begins[len(begins)-1] != r.id:
				begins = append(begins, r.id)
			case !runs[i-1].failed:
				repeats++
			}
			if i > 0 && runs[i-1].ended > r.began {
				t.Errorf("key %d: a run began before the one before it had ended: %+v, %+v", key,
					*runs[i-1], *r)
			}
		}
		if !slices.Equal(begins, want) {
			t.Errorf("key %d: handlers began with\n%v, accepted were\n%v", key, begins, want)
		}
	}
	return failed, repeats
}

// Four runners of one group are killed and replaced one after another. The handlers for each key
// begin in the order in which the executions were accepted, and all executions end.
func TestOrderHoldsWhileRunnersAreKilled(t *testing.T) {
	t.Parallel()
	executions, keys := 300, 30
	if *orderedExecutions > 0 {
		executions, keys = *orderedExecutions, 500
	}
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	url := l.ingress + makeOrdered(t, l.client())
	o := newOrdered(t, l.client(), "test-runner", l.nats, "10ms")
	o.run(url, executions, keys, 4, o.replaceRunner)
	_, repeats := o.check()
	t.Logf("%d executions of %d keys, %d runners killed, all in order; %d handler runs were "+
		"repeats", executions, keys, o.kills, repeats)
}

// While deliveries arrive, runners are killed, the leader of the stream changes, and first attempts
// fail. The handlers for each key begin in the order of acceptance, never two at once.
func TestOrderHoldsInACluster(t *testing.T) {
	t.Parallel()
	executions, keys := 150, 15
	if *orderedExecutions > 0 {
		executions, keys = *orderedExecutions, 500
	}
	cluster := natstest.StartCluster(t, 3)
	flags := []string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + cluster.URLs(),
		"--log-level=info",
	}
	executor := launch(t, "executor", append([]string{
		"--replicas=3", "--admin-token=" + adminToken,
		"--database-url=sqlite:" + filepath.Join(t.TempDir(), "executions.db"),
	}, flags...)...)
	client := apiclient.New("http://"+executor.Await(`"addr":"([^"]+)".*executor is ready`),
		adminToken)
	ingress := launch(t, "ingress", flags...)
	url := "http://" + ingress.Await(`"addr":"([^"]+)".*ingress is ready`) + makeOrdered(t, client)
	o := newOrdered(t, client, "test-runner", cluster.URLs(), "10ms", "10")
	leaders := 0
	o.run(url, executions, keys, 6, func() {
		if o.kills < 4*(leaders+1) { // four kills, then a change of the leader
			o.replaceRunner()
			return
		}
		was := cluster.Leader(stream.ExecutionsName)
		cluster.Stop(was)
		cluster.Leader(stream.ExecutionsName) // waits for the next leader
		cluster.Restart(was)
		leaders++
	})
	failed, repeats := o.check()
	if leaders == 0 || failed == 0 {
		t.Errorf("%d changes of the leader, %d failed attempts", leaders, failed)
	}
	t.Logf("%d executions of %d keys, %d runners killed, %d changes of the leader, %d failed "+
		"attempts, all in order; %d handler runs were repeats for other reasons",
		executions, keys, o.kills, leaders, failed, repeats)
}

// A runner is frozen during a handler for longer than the ack wait, so another member of the group
// runs the ordered execution. When the first runner resumes, it aborts its handler and does not run
// the next execution of the lane.
func TestAFrozenRunnerGivesUpWhatIsOrdered(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	url := l.ingress + makeOrdered(t, l.client()) + "&key=k"
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
