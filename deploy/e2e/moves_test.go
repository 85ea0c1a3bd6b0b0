package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// shortMoves is the number of moves in the short form of TestQueuesMoveUnderLoad.
const shortMoves = 4

var (
	moves = flag.Int("moves", shortMoves,
		"number of moves in TestQueuesMoveUnderLoad, in and out in turn")
	movesSeed = flag.Uint64("moves-seed", 1, "seed of what TestQueuesMoveUnderLoad kills")
)

// A queue moves to its own stream and back repeatedly while deliveries and repeats arrive. At each
// move one process is killed: the executor, an ingress or a runner. Nothing acknowledged is lost or
// stored twice, repeats are recognized, only executions in flight at a kill run again, and senders
// wait no longer than 5 s.
func TestQueuesMoveUnderLoad(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	stop := m.load()
	random := rand.New(rand.NewPCG(*movesSeed, 0))
	for n := range *moves {
		method := http.MethodPut
		if n%2 == 1 {
			method = http.MethodDelete
		}
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
			m.killOne(n)
		}()
		m.move(method)
		<-killed
		m.awaitMore(100)
	}
	stop()
	m.check()
}

// moving is an installation with three workflows and two queues. The workflows "killed" and
// "ordered" start executions in the queue "killed", which moves between the streams. Programs with
// the Go kit run its executions. Each sender to "ordered" has its own order key. The workflow
// "other" starts executions in the queue "other", which hookstart run serves.
type moving struct {
	t       *testing.T
	server  *natstest.Node
	client  *apiclient.Client
	api     string
	urls    []string // URLs of the ingresses
	paths   map[string]string
	folder  string // the program of hookstart run writes a file per execution into this folder
	command string // path of the program hookstart

	mu        sync.Mutex
	executor  func() *process // starts the executor
	running   map[string]*process
	ingress   []func() *process
	runners   []*testRunner
	member    []*testRunner
	accepted  map[string]map[string]string // execution IDs, keyed by workflow and delivery ID
	repeats   int
	longest   time.Duration // longest time until a delivery that was refused at first was accepted
	longestOf string
	done      atomic.Int64
}

// workflowQueues maps workflow IDs to their queues.
var workflowQueues = map[string]string{"killed": "killed", "ordered": "killed", "other": "other"}

// trigger returns the settings of a workflow's trigger node. Only the node of "ordered" has an
// order key.
func trigger(workflow string) api.PutTrigger {
	if workflow == "ordered" {
		return api.PutTrigger{NodeID: "node", OrderKey: "query:key"}
	}
	return api.PutTrigger{NodeID: "node"}
}

func newMoving(t *testing.T) *moving {
	m := &moving{
		t:        t,
		server:   natstest.Start(t),
		folder:   t.TempDir(),
		command:  filepath.Join(buildCommandLine(t), "hookstart"),
		running:  map[string]*process{},
		accepted: map[string]map[string]string{"killed": {}, "ordered": {}, "other": {}},
		paths:    map[string]string{},
	}
	address := func() string {
		port, err := freeport.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(port.Release)
		return port.Addr()
	}
	addr, database := address(), "sqlite:"+filepath.Join(t.TempDir(), "executions.db")
	m.executor = func() *process {
		p := launch(t, "executor", "--addr="+addr, "--ops-addr=127.0.0.1:0",
			"--nats-url="+m.server.URL(),
			"--database-url="+database, "--admin-token="+adminToken,
			"--public-url=https://hooks.example.com", "--log-level=warn")
		return p
	}
	m.api = "http://" + addr
	m.client = apiclient.New(m.api, adminToken)
	m.running["executor"] = m.executor()
	within(t, time.Minute, "executor", func() bool {
		_, err := m.client.Plans(t.Context(), apiclient.Page{})
		return err == nil
	})
	for range 2 {
		addr := address()
		m.ingress = append(m.ingress, func() *process {
			return launch(t, "ingress", "--addr="+addr, "--ops-addr=127.0.0.1:0",
				"--nats-url="+m.server.URL(), "--log-level=warn")
		})
		m.urls = append(m.urls, "http://"+addr)
	}
	for n, start := range m.ingress {
		m.running[fmt.Sprint("ingress ", n)] = start()
	}
	for id, queue := range workflowQueues {
		path := makeWorkflow(t, m.client, id)
		if _, err := m.client.PutWorkflow(t.Context(), id, api.PutWorkflow{
			AccountID: "tests",
			Name:      id,
			Queue:     queue,
			RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
			Triggers:  []api.PutTrigger{trigger(id)},
		}); err != nil {
			t.Fatal(err)
		}
		m.paths[id] = path
	}
	for range 2 {
		m.member = append(m.member, m.startRunner())
	}
	m.startRun()
	return m
}

func (m *moving) startRunner() *testRunner {
	r := &testRunner{process: launch(m.t, "test-runner", m.server.URL(), "5ms")}
	r.Await("(ready)")
	m.runners = append(m.runners, r)
	return r
}

// startRun starts hookstart run for the queue "other". Its program appends a line to the file in
// m.folder that is named after the execution.
func (m *moving) startRun() {
	command := exec.Command(m.command, "run", "--queue", "other", "--nats-url", m.server.URL(),
		"--concurrency", "4", "--",
		"sh", "-c", `echo "$HOOKSTART_ATTEMPT" >> "$HOOKSTART_EXECUTION_ID"`)
	command.Dir = m.folder
	m.running["hookstart run"] = childtest.Launch(m.t, command)
}

// killOne kills one process and restarts it. n selects the process.
func (m *moving) killOne(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch n % 4 {
	case 0:
		m.running["executor"].Kill()
		m.running["executor"] = m.executor()
	case 1, 3:
		i := n / 2 % len(m.ingress)
		name := fmt.Sprint("ingress ", i)
		m.running[name].Kill()
		m.running[name] = m.ingress[i]()
	default:
		i := n / 4 % len(m.member)
		m.member[i].Kill()
		m.member[i].killed = true
		m.member[i] = m.startRunner()
	}
}

// move moves the queue "killed" to its own stream if method is PUT, or back to the shared stream if
// method is DELETE. It repeats the request until it succeeds.
func (m *moving) move(method string) {
	m.t.Helper()
	within(m.t, 2*time.Minute, method+" of the queue's stream", func() bool {
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, method,
			m.api+"/api/v1/queues/killed/stream", strings.NewReader("{}"))
		if err != nil {
			m.t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+adminToken)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode >= 400 && response.StatusCode < 500 {
			m.t.Logf("%s: %d %s", method, response.StatusCode, text)
		}
		return response.StatusCode < 300
	})
}

// load sends deliveries to all workflows until stop is called. After every fourth delivery, each
// sender repeats an earlier one.
func (m *moving) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for sender := range 6 {
		workflow := []string{"killed", "ordered", "other"}[sender%3]
		pause := 5 * time.Millisecond
		if workflow == "ordered" {
			// All executions of a sender have the same order key, so they run one after another,
			// and a faster sender would build up a backlog. A queue cannot move again while
			// executions from before its last move are waiting.
			pause = 30 * time.Millisecond
		}
		senders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				delivery := fmt.Sprintf("%d-%d", sender, n)
				//nolint:contextcheck // a delivery that was begun is ended
				id := m.deliver(workflow, delivery, n, "")
				m.mu.Lock()
				m.accepted[workflow][delivery] = id
				m.mu.Unlock()
				m.done.Add(1)
				if n%4 == 3 { // repeat an earlier delivery, which may be in the other stream
					again := fmt.Sprintf("%d-%d", sender, n/2)
					m.mu.Lock()
					want := m.accepted[workflow][again]
					m.repeats++
					m.mu.Unlock()
					//nolint:contextcheck // as above
					m.deliver(workflow, again, n, want)
				}
				wait := time.NewTimer(pause)
				<-wait.C
			}
		})
	}
	return func() { cancel(); senders.Wait() }
}

// deliver sends a delivery until it is accepted, as senders do, and returns the ID of its
// execution. It tries the ingresses in turn, beginning with number n%len(m.urls). If original is
// not "", the delivery is a repeat: the response must say so and contain the execution ID original.
func (m *moving) deliver(workflow, delivery string, n int, original string) (id string) {
	began := time.Now()
	refused := ""
	for attempt := 0; ; attempt++ {
		url := m.urls[(n+attempt)%len(m.urls)] + m.paths[workflow]
		if workflow == "ordered" {
			sender, _, _ := strings.Cut(delivery, "-")
			url += "&key=" + sender
		}
		a, err := post(context.Background(), url, map[string]string{"X-GitHub-Delivery": delivery},
			strings.NewReader("{}"))
		if err == nil && a.Status == http.StatusOK {
			if original != "" && (!a.Deduplicated || a.ExecutionID != original) {
				m.t.Errorf("%s: the repeat of delivery %s was answered with %+v, the original "+
					"execution is %s", workflow, delivery, a, original)
			}
			m.mu.Lock()
			if waited := time.Since(began); refused != "" && waited > m.longest {
				m.longest, m.longestOf = waited, refused
			}
			m.mu.Unlock()
			return a.ExecutionID
		}
		if err == nil {
			refused = fmt.Sprint(a.Status, " ", a.Code)
			if a.Status != http.StatusServiceUnavailable {
				m.t.Errorf("%s: delivery %s was answered with %+v", workflow, delivery, a)
				return ""
			}
		}
		if time.Since(began) > time.Minute {
			m.t.Errorf("%s: delivery %s was refused for a minute: %+v, %v", workflow, delivery, a,
				err)
			return ""
		}
		pause := time.NewTimer(20 * time.Millisecond)
		<-pause.C
	}
}

// awaitMore waits until n more deliveries have been accepted.
func (m *moving) awaitMore(n int64) {
	m.t.Helper()
	until := m.done.Load() + n
	within(m.t, 2*time.Minute, "deliveries", func() bool { return m.done.Load() >= until })
}

// check compares the executions that were acknowledged to senders with the records, the streams and
// the handler runs.
func (m *moving) check() {
	t := m.t
	for workflow, accepted := range m.accepted {
		want := map[string]bool{}
		for _, id := range accepted {
			want[id] = true
		}
		final := map[string]api.Execution{}
		within(t, 2*time.Minute, "end of all executions of "+workflow, func() bool {
			finalStates(t, m.client, workflow, final)
			return len(final) >= len(want)
		})
		for id := range want {
			if e := final[id]; execution.Status(e.Status) != execution.Succeeded {
				t.Errorf("%s: %s is lost: %+v", workflow, id, e)
			}
		}
		for id, n := range recordedIDs(t, m.client, workflow) {
			if n != 1 || !want[id] {
				t.Errorf("%s: %s is recorded %d times, and was accepted: %t", workflow, id, n,
					want[id])
			}
		}
		for id, n := range m.stored(workflow) {
			if n != 1 {
				t.Errorf("%s: %s is %d times in the streams", workflow, id, n)
			}
		}
	}
	for _, r := range m.member {
		r.Terminate()
	}
	again, _ := checkRepeats(t, m.runners)
	m.checkOrder()
	ran, err := os.ReadDir(m.folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(ran) != len(m.accepted["other"]) {
		t.Errorf("hookstart run ran %d executions of %d", len(ran), len(m.accepted["other"]))
	}
	for _, file := range ran {
		if text, err := os.ReadFile(filepath.Join(m.folder, file.Name())); err != nil ||
			string(text) != "1\n" {
			t.Errorf("hookstart run ran %s as %q, %v", file.Name(), text, err)
		}
	}
	limit := 5 * time.Second
	if *moves <= shortMoves { // the short test runs beside others, which slow down its programs
		limit = 30 * time.Second
	}
	if m.longest > limit {
		t.Errorf("a sender was refused for %s (%s)", m.longest, m.longestOf)
	}
	deliveries := 0
	for _, accepted := range m.accepted {
		deliveries += len(accepted)
	}
	t.Logf("%d moves: %d deliveries, %d repeats, longest refusal %s %s; %d handler runs were "+
		"repeats of what was in flight at a kill",
		*moves, deliveries, m.repeats, m.longest, m.longestOf, again)
}

// checkOrder checks that the executions of each sender to "ordered" began in the order of their
// acceptance, which is the order of sending: a sender waits for the acceptance of a delivery before
// it sends the next one.
func (m *moving) checkOrder() {
	began := map[string]int64{} // the first begin of each execution, in microseconds since 1970
	for _, r := range m.runners {
		for id, run := range r.runs(m.t) {
			if before, ok := began[id]; !ok || run.began < before {
				began[id] = run.began
			}
		}
	}
	accepted := m.accepted["ordered"]
	for _, sender := range []int{1, 4} {
		for n := 1; accepted[fmt.Sprintf("%d-%d", sender, n)] != ""; n++ {
			older := accepted[fmt.Sprintf("%d-%d", sender, n-1)]
			newer := accepted[fmt.Sprintf("%d-%d", sender, n)]
			if began[newer] < began[older] {
				m.t.Errorf("sender %d: %s began before %s, which was accepted before it", sender,
					newer, older)
			}
		}
	}
}

// stored returns the number of start messages that each execution of a workflow has in both streams
// together, keyed by execution ID.
func (m *moving) stored(workflow string) map[string]int {
	m.t.Helper()
	js := jetStream(m.t, m.server.URL())
	counts := map[string]int{}
	for _, own := range []bool{false, true} {
		place, queue := stream.Layout{Own: own}, workflowQueues[workflow]
		subjects := []string{place.StartSubject(queue, workflow, "node")}
		if workflow == "ordered" {
			subjects = []string{place.OrderedFilterSubject(queue)}
		}
		err := stream.ForEachMessage(m.t.Context(), js, place.StreamName(queue),
			jetstream.OrderedConsumerConfig{FilterSubjects: subjects},
			func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
				counts[msg.Headers().Get(stream.HeaderExecutionID)]++
				return nil
			})
		if err != nil && (!own || !errors.Is(err, jetstream.ErrStreamNotFound)) {
			m.t.Fatal(err)
		}
	}
	return counts
}
