package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

var killedRunners = flag.Int("runners", 0,
	"number of executions in TestKilledRunners, with a kill every 2 s; 0: a short test")

const (
	places        = 8 // number of executions that each runner runs concurrently
	runnerAckWait = 2 * time.Second
)

// beRunner runs the program test-runner: a runner that prints when it begins and ends each
// execution. Its arguments are the NATS URL, the duration of each execution, and optionally a
// number N: the first attempt of about one in N executions fails.
func beRunner() {
	takes, err := time.ParseDuration(os.Args[2])
	oneIn := 0
	if err == nil && len(os.Args) > 3 {
		oneIn, err = strconv.Atoi(os.Args[3])
	}
	if err == nil {
		err = runRunner(os.Args[1], takes, oneIn)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errFirstAttempt is the error with which test-runner's handler fails a first attempt on purpose.
var errFirstAttempt = errors.New("the first attempt fails")

func runRunner(natsURL string, takes time.Duration, oneIn int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(natsURL, nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	fmt.Fprintln(os.Stdout, "ready")
	return runner.Run(ctx, nc, runner.Options{
		Queue:       "killed",
		Group:       "killed",
		Concurrency: places,
		AckWait:     runnerAckWait,
		Attempts:    100, // attempts that a kill interrupts count, too
		Backoff:     func(int) time.Duration { return 50 * time.Millisecond },
	},
		func(ctx context.Context, e runner.Execution) (any, error) {
			// Use a single write, so that a killed process has written either the whole line or
			// nothing.
			fmt.Fprintln(os.Stdout, "begin", e.ID, time.Now().UnixMicro())
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				if errors.Is(context.Cause(ctx), runner.ErrLost) {
					fmt.Fprintln(os.Stdout, "lost", e.ID)
				}
				return nil, ctx.Err()
			}
			if oneIn > 0 && e.Attempt == 1 && crc32.ChecksumIEEE([]byte(e.ID))%uint32(oneIn) == 0 {
				fmt.Fprintln(os.Stdout, "failed", e.ID, time.Now().UnixMicro())
				return nil, errFirstAttempt
			}
			fmt.Fprintln(os.Stdout, "end", e.ID, time.Now().UnixMicro())
			return map[string]int{"pid": os.Getpid()}, nil
		})
}

// testRunner is a process that runs the program test-runner.
type testRunner struct {
	*process
	killed bool
}

// testRun is one run of an execution.
type testRun struct {
	by    *testRunner
	began int64 // microseconds since 1970; comparable, because all runners are on one machine
	// after is the number of handlers that returned later than this run's handler in the same
	// process, or -1 if this run's handler did not return.
	after int
}

// runs returns the runs of the process, keyed by execution ID.
func (r *testRunner) runs(t *testing.T) map[string]*testRun {
	t.Helper()
	all, returned := map[string]*testRun{}, 0
	for line := range strings.Lines(r.Output()) {
		words := strings.Fields(line)
		switch {
		case !strings.HasSuffix(line, "\n") || len(words) != 3:
		case words[0] == "begin":
			began, err := strconv.ParseInt(words[2], 10, 64)
			if err != nil || all[words[1]] != nil {
				t.Errorf("process %d ran execution %s twice: %v", r.PID(), words[1], err)
			}
			all[words[1]] = &testRun{by: r, began: began, after: -1}
		case words[0] == "end":
			returned++
			all[words[1]].after = returned // for now, the number of returns so far
		}
	}
	for _, run := range all {
		if run.after > 0 {
			run.after = returned - run.after
		}
	}
	return all
}

// Four runners of one group are killed and replaced one after another. Every execution succeeds,
// and its final state never changes. Only executions that were in flight at a kill run again.
func TestKilledRunners(t *testing.T) {
	t.Parallel()
	executions, takes, look := 1000, 20*time.Millisecond, 20*time.Millisecond
	if *killedRunners > 0 {
		executions, takes, look = *killedRunners, 50*time.Millisecond, 250*time.Millisecond
	}
	began := time.Now()
	l := launchLocal(t, t.TempDir(), "--log-level=warn")
	path := makeWorkflow(t, l.client(), "killed")
	if _, err := l.client().PutWorkflow(t.Context(), "killed", api.PutWorkflow{
		AccountID: "tests",
		Name:      "killed",
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
	members := []*testRunner{begin(), begin(), begin(), begin()}
	accepted := sendAll(t, l.ingress+path, executions)

	// In the background, keep checking that executions that have ended do not change any more.
	final := map[string]api.Execution{}
	observe := func() { finalStates(t, l.client(), "killed", final) }
	stopObserving, observed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(observed)
		for {
			observe()
			select {
			case <-stopObserving:
				return
			case <-time.After(look):
			}
		}
	}()
	// Kill a runner each time a quarter of the executions has run or, in a long test, every 2 s.
	kill := func(n int) {
		victim := members[n%len(members)]
		victim.Kill()
		victim.killed = true
		members[n%len(members)] = begin()
	}
	kills := 0
	tick := time.NewTicker(look)
	defer tick.Stop()
	for last := time.Now(); ; <-tick.C {
		ran := 0
		for _, r := range all {
			ran += strings.Count(r.Output(), "\nend ")
		}
		if ran >= executions {
			break
		}
		due := ran >= (kills+1)*executions/4 // after each quarter but the last
		if *killedRunners > 0 {
			due = time.Since(last) >= 2*time.Second
		}
		if due {
			last = time.Now()
			kill(kills)
			kills++
		}
	}
	close(stopObserving)
	<-observed
	ids := <-accepted
	for deadline := time.Now().Add(2 * time.Minute); len(final) < len(ids) &&
		time.Now().Before(deadline); <-tick.C {
		observe()
	}
	observe()
	for _, r := range members {
		r.Terminate()
	}

	for _, id := range ids {
		if e := final[id]; e.Status != "succeeded" {
			t.Errorf("execution %s is %q", id, e.Status)
		}
	}
	if len(final) != executions || kills == 0 {
		t.Errorf("%d of %d executions ended; %d kills", len(final), executions, kills)
	}
	repeats, unacknowledged := checkRepeats(t, all)
	reports := checkFirstEndCounts(t, l, ids)
	t.Logf("%d executions, %d runners killed, all succeeded in %s: %d handler runs were "+
		"repeated, %d of them had returned and were not acknowledged yet; %d final reports",
		executions, kills, time.Since(began).Round(100*time.Millisecond), repeats, unacknowledged,
		reports)
}

// sendAll posts n deliveries in the background. When all of them have been accepted, it sends the
// IDs of their executions on the returned channel. The test fails if a delivery is not accepted.
func sendAll(t *testing.T, url string, n int) <-chan []string {
	t.Helper()
	accepted := make(chan []string, 1)
	var (
		next    atomic.Int64
		mu      sync.Mutex
		ids     []string
		senders sync.WaitGroup
	)
	for range 4 {
		senders.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				a, err := post(t.Context(), url, map[string]string{
					"X-GitHub-Delivery": fmt.Sprint(i),
				}, strings.NewReader("{}"))
				if err != nil || a.Status != 200 {
					t.Errorf("delivery %d: %+v, %v", i, a, err)
					return
				}
				mu.Lock()
				ids = append(ids, a.ExecutionID)
				mu.Unlock()
			}
		})
	}
	go func() {
		senders.Wait()
		accepted <- ids
	}()
	return accepted
}

// finalStates adds the workflow's ended executions to known, and checks that the executions that
// were already in known have not changed.
func finalStates(
	t *testing.T, c *apiclient.Client, workflowID string, known map[string]api.Execution,
) {
	t.Helper()
	for e, err := range apiclient.Items(func(p apiclient.Page) (api.List[api.Execution], error) {
		return c.Executions(t.Context(), apiclient.ExecutionFilter{WorkflowID: workflowID}, p)
	}) {
		if err != nil {
			t.Error(err)
			return
		}
		e.Duplicates = 0 // repeats are counted later, even those of an execution that has ended
		before, ended := known[e.ExecutionID]
		switch {
		case ended && before != e:
			t.Errorf("a final state changed: %+v, then %+v", before, e)
		case execution.Status(e.Status).Final():
			known[e.ExecutionID] = e
		}
	}
}

// checkRepeats checks that an execution ran again only if its runner was killed and the execution
// was in flight at that time: its handler had not returned, or its acknowledgement may not have
// reached the server. A runner has up to places acknowledgements that are not yet sent, one for
// each execution that it runs concurrently. On a busy machine, up to 2*places more may be in
// transit. An acknowledgement can therefore be missing only if at most 3*places other handlers of
// the runner returned later.
//
// repeats is the number of runs that were followed by another run of the same execution, and
// unacknowledged the number of those whose handler had returned.
func checkRepeats(t *testing.T, all []*testRunner) (repeats, unacknowledged int) {
	t.Helper()
	runs := map[string][]*testRun{}
	for _, r := range all {
		for id, run := range r.runs(t) {
			runs[id] = append(runs[id], run)
		}
	}
	for id, repeated := range runs {
		slices.SortFunc(repeated, func(a, b *testRun) int { return cmp.Compare(a.began, b.began) })
		for _, before := range repeated[:len(repeated)-1] {
			repeats++
			if before.after >= 0 {
				unacknowledged++
			}
			if !before.by.killed || before.after > 3*places {
				t.Errorf("execution %s ran again; its runner was killed: %v; %d others returned "+
					"after it", id, before.by.killed, before.after)
			}
		}
	}
	return repeats, unacknowledged
}

// checkFirstEndCounts checks that every execution has a final report. If it has several, its record
// must hold the output and the time of the first one. checkFirstEndCounts returns the number of
// final reports.
func checkFirstEndCounts(t *testing.T, l *localProgram, ids []string) (reports int) {
	t.Helper()
	first, again := map[string]*execution.Progress{}, map[string]bool{}
	if err := stream.ForEachMessage(t.Context(), jetStream(t, l.nats), stream.ProgressName,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{"executions.progress.killed.>"}},
		func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
			event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
			if err != nil {
				return err
			}
			if p := event.Progress; p.Status.Final() {
				reports++
				if first[p.ID] != nil {
					again[p.ID] = true
					return nil
				}
				first[p.ID] = p
			}
			return nil
		}); err != nil {
		t.Fatal(err)
	}
	if len(first) != len(ids) {
		t.Errorf("%d of %d executions were reported to have ended", len(first), len(ids))
	}
	for id := range again {
		e, err := l.client().Execution(t.Context(), id)
		if err != nil || string(e.Output) != string(first[id].Output) ||
			!e.FinishedAt.Equal(first[id].At.Truncate(time.Microsecond)) {
			t.Errorf("execution %s: %s at %v, but %s at %v came first; %v", id, e.Output,
				e.FinishedAt, first[id].Output, first[id].At, err)
		}
	}
	return reports
}
