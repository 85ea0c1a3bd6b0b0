package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/pgtest"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
)

// nextMigrations are the migrations to the simulated next version, keyed by kind of database. After
// the migration, inserts of the current version violate a constraint. The migration takes some
// seconds, as on a large table, so that the test can kill a process in the middle of it.
var nextMigrations = map[string]string{
	"sqlite": `ALTER TABLE executions ADD COLUMN made_by TEXT;
UPDATE executions SET made_by = 'before' WHERE (WITH RECURSIVE c (x) AS
	(SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000000) SELECT count(*) FROM c) > 0;
CREATE TRIGGER executions_need_made_by BEFORE INSERT ON executions WHEN NEW.made_by IS NULL
	BEGIN SELECT RAISE(ABORT, 'made_by is missing'); END;
`,
	"postgres": `ALTER TABLE executions ADD COLUMN made_by text NOT NULL DEFAULT 'before';
ALTER TABLE executions ALTER COLUMN made_by DROP DEFAULT;
SELECT pg_sleep(3);
`,
}

// nextInserts are the code changes of the simulated next version, which make its inserts set the
// new column made_by. In each file, buildNext replaces the first text with the second.
var nextInserts = map[string][2]string{ // keyed by file
	"sqlite/insert.go": {
		"INTO executions (` + i.columns + `) VALUES ` + values +",
		"INTO executions (` + i.columns + `, made_by) SELECT *, 'next' FROM (VALUES ` + values + " +
			"`) WHERE true` +",
	},
	"postgres/row.go": {
		"insertShort = `INSERT INTO executions (` + shortFormColumns + `) ` + selectShort +",
		"insertShort = `INSERT INTO executions (` + shortFormColumns + `, made_by) SELECT *, 'next' " +
			"FROM unnest(` + shortArrayParams + `)` +",
	},
}

// buildNext builds a program of the next version and returns its path.
func buildNext(t *testing.T, pkg string) (path string) {
	t.Helper()
	stores, err := filepath.Abs("../../executor/internal/store")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	put := func(path, text string) {
		to := filepath.Join(dir, fmt.Sprint(len(replace)))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	for driver, migration := range nextMigrations {
		put(filepath.Join(stores, driver, "migrations", "90000_next.sql"), migration)
	}
	for file, change := range nextInserts {
		text, err := os.ReadFile(filepath.Join(stores, file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), change[0]) != 1 {
			t.Fatalf("%s does not have %q once", file, change[0])
		}
		put(filepath.Join(stores, file), strings.Replace(string(text), change[0], change[1], 1))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "next-"+filepath.Base(pkg))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", list,
		"-ldflags=-w -X github.com/hookstart/hookstart/shared/ops.Version=next", "-o", path, pkg)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, output)
	}
	return path
}

// upgraded is an installation that is upgraded under load.
type upgraded struct {
	t        *testing.T
	server   *natstest.Node
	database string

	mu        sync.Mutex
	ingresses []string // URLs; a sender tries them in turn
	sent      map[string]string
	answers   map[int]int // number of responses by status; 0 means no response
	count     atomic.Int64
}

func (u *upgraded) executor(program string) (p *process, ready func() (apiURL, ops string)) {
	u.t.Helper()
	p = launch(u.t, program, "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+u.server.URL(), "--database-url="+u.database,
		"--admin-token="+adminToken, "--public-url=https://hooks.example.com")
	return p, func() (string, string) {
		u.t.Helper()
		const line = `"addr":"([^"]+)".*executor is ready.*"ops_addr":"([^"]+)"`
		p.Await(line)
		at := regexp.MustCompile(line).FindStringSubmatch(p.Output())
		return "http://" + at[1], "http://" + at[2]
	}
}

// ingress starts an ingress and adds its URL to those that the senders use.
func (u *upgraded) ingress(program string) (p *process, url string) {
	u.t.Helper()
	p = launch(u.t, program, "--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
		"--nats-url="+u.server.URL())
	url = "http://" + p.Await(`"addr":"([^"]+)".*ingress is ready`)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ingresses = append([]string{url}, u.ingresses...)
	return p, url
}

// forget removes an ingress's URL, so that senders no longer use it.
func (u *upgraded) forget(url string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, known := range u.ingresses {
		if known == url {
			u.ingresses = append(u.ingresses[:i:i], u.ingresses[i+1:]...)
			return
		}
	}
}

// send posts deliveries until ctx ends, and retries each until it gets a 200, as a sender does. The
// test fails if a response is neither a 200 nor a 503.
func (u *upgraded) send(ctx context.Context, path string, sender int) {
	for n := 0; ctx.Err() == nil; n++ {
		delivery := fmt.Sprintf("d-%d-%d", sender, n)
		for try := 0; ; try++ {
			u.mu.Lock()
			url := u.ingresses[try%len(u.ingresses)]
			u.mu.Unlock()
			//nolint:contextcheck // the last one is answered after ctx has ended
			a, err := post(u.t.Context(), url+path, map[string]string{
				"X-Webhook-Delivery-Id": delivery,
			}, strings.NewReader(`{}`))
			accepted := err == nil && a.Status == http.StatusOK
			u.mu.Lock()
			u.answers[a.Status]++
			if accepted {
				u.sent[delivery] = a.ExecutionID
			}
			u.mu.Unlock()
			if accepted {
				u.count.Add(1)
				break
			}
			refused := a.Status != 0 && a.Status != http.StatusServiceUnavailable
			if refused || u.t.Context().Err() != nil {
				u.t.Errorf("%s: %+v, %v", delivery, a, err)
				return
			}
		}
	}
}

// more waits until n more deliveries have been accepted.
func (u *upgraded) more(n int64) {
	u.t.Helper()
	for want := u.count.Load() + n; u.count.Load() < want; {
		u.eventually("deliveries are accepted", func() bool { return u.count.Load() >= want })
	}
}

func (u *upgraded) eventually(what string, done func() bool) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			u.t.Fatalf("it did not come to that: %s", what)
		case <-tick.C:
		}
	}
}

// notReady returns the text of /readyz of an executor that is not ready, or "" if the executor is
// ready or does not respond.
func notReady(ops string) string {
	status, text, err := child.HTTPGet(context.Background(), ops+"/readyz")
	if err != nil || status == http.StatusOK {
		return ""
	}
	return text
}

// TestUpgrade checks that a rolling upgrade to a version with an incompatible migration loses no
// execution, puts no message aside and runs no execution twice. With each database, it upgrades the
// executors, then the runner (the command "hookstart run"), then the ingresses, and another
// installation in the reverse order. It kills new ingresses and executors shortly after they start,
// some of the executors while they still migrate the database.
func TestUpgrade(t *testing.T) {
	nextExecutor, nextIngress := buildNext(t,
		"github.com/hookstart/hookstart/executor/cmd/executor"),
		buildNext(t, "github.com/hookstart/hookstart/ingress/cmd/ingress")
	command := filepath.Join(buildCommandLine(t), "hookstart")
	nextCommand := buildNext(t, "github.com/hookstart/hookstart/executor/cmd/hookstart")
	for _, database := range []string{"sqlite", "postgres"} {
		for _, first := range []string{"executors", "ingresses"} {
			t.Run(database+", "+first+" first", func(t *testing.T) {
				t.Parallel()
				u := &upgraded{
					t:        t,
					server:   natstest.Start(t),
					database: "sqlite:" + filepath.Join(t.TempDir(), "executions.db"),
					sent:     map[string]string{},
					answers:  map[int]int{},
				}
				if database == "postgres" {
					u.database = pgtest.StartServer(t).URL()
				}
				oldExecutor, ready := u.executor("executor")
				apiURL, oldOps := ready()
				client := apiclient.New(apiURL, adminToken)
				path := makeWorkflow(t, client, "orders")
				oldIngress, oldURL := u.ingress("ingress")
				_, _ = u.ingress("ingress")
				ran, stopRunner := u.runs()
				oldRunner, runByOld := u.run(command)
				loading, stop := context.WithCancel(t.Context())
				var load sync.WaitGroup
				for sender := range 4 {
					load.Go(func() { u.send(loading, path, sender) })
				}
				u.more(200)

				executors := func() {
					for _, after := range []int64{20, 60} {
						killed, _ := u.executor(nextExecutor)
						u.more(after)
						killed.Kill()
					}
					_, ready := u.executor(nextExecutor)
					apiURL, _ := ready()
					client = apiclient.New(apiURL, adminToken)
					u.eventually("the old executor says why it waits", func() bool {
						return strings.Contains(notReady(oldOps),
							"another version of the program has migrated the database")
					})
					if members, err := client.Members(t.Context()); err != nil ||
						!hasMember(members, "executor", "next") ||
						!hasMember(members, "executor", "dev") || members.Database != 90000 {
						t.Errorf("%+v, %v", members, err)
					}
					u.more(200)
					oldExecutor.Terminate()
				}
				ingresses := func() {
					killed, url := u.ingress(nextIngress)
					u.more(50)
					killed.Kill()
					u.forget(url)
					_, _ = u.ingress(nextIngress)
					u.forget(oldURL)
					oldIngress.Terminate()
					u.more(50)
				}
				var nextRunner *process
				var runByNext func() []string
				runners := func() {
					u.eventually("hookstart run has run some", func() bool {
						return len(runByOld()) > 0
					})
					oldRunner.Terminate()
					nextRunner, runByNext = u.run(nextCommand)
					u.eventually("the next hookstart run has run some", func() bool {
						return len(runByNext()) > 0
					})
				}
				if first == "executors" {
					executors()
					runners()
					ingresses()
				} else {
					ingresses()
					runners()
					executors()
				}
				u.more(100)
				stop()
				load.Wait()

				statuses := map[string]int{}
				u.eventually("all are recorded, and have run", func() bool {
					statuses = map[string]int{}
					all := apiclient.Items(func(p apiclient.Page) (api.List[api.Execution], error) {
						return client.Executions(t.Context(), apiclient.ExecutionFilter{}, p)
					})
					for e, err := range all {
						if err != nil {
							t.Fatal(err)
						}
						statuses[e.Status]++
					}
					return statuses["succeeded"] == len(u.sent) && len(statuses) == 1
				})
				stopRunner()
				nextRunner.Terminate()
				old, next := runByOld(), runByNext()
				for _, id := range slices.Concat(old, next) {
					countRun(ran, id)
				}
				letters, err := client.DeadLetters(t.Context(), apiclient.DeadLetterFilter{},
					apiclient.Page{})
				if err != nil || len(letters.Items) > 0 {
					t.Errorf("put aside: %+v, %v", letters.Items, err)
				}
				lost, doubled := 0, 0
				for _, id := range u.sent {
					switch n, _ := ran.Load(id); {
					case n == nil:
						lost++
					//nolint:errcheck,forcetypeassert // nothing else is stored
					case n.(*atomic.Int64).Load() > 1:
						doubled++
					}
				}
				t.Logf("%d deliveries accepted, %v; lost %d, put aside %d, doubled %d; %d and %d "+
					"run by hookstart run; answers by status: %v, where 0 is none", len(u.sent),
					statuses, lost, len(letters.Items), doubled, len(old), len(next), u.answers)
				if lost+doubled > 0 {
					t.Errorf("lost %d, doubled %d", lost, doubled)
				}
			})
		}
	}
}

func hasMember(members api.Members, role, version string) bool {
	for _, m := range members.Items {
		if m.Role == role && m.Version == version {
			return true
		}
	}
	return false
}

// runs starts a runner for the default queue. ran maps the IDs of executions to the number of times
// that the runner has run each. The caller may stop it with stop; otherwise it stops when the test
// ends.
func (u *upgraded) runs() (ran *sync.Map, stop func()) {
	nc := u.server.Connect(u.t)
	ctx, cancel := context.WithCancel(u.t.Context())
	ran, done := &sync.Map{}, make(chan struct{})
	go func() {
		defer close(done)
		if err := runner.Run(ctx, nc, runner.Options{
			Queue:       "default",
			Group:       "main",
			Concurrency: runnersAtOnce,
		}, func(_ context.Context, e runner.Execution) (any, error) {
			countRun(ran, e.ID)
			return "done", nil
		}); err != nil {
			u.t.Errorf("the runner: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	u.t.Cleanup(stop)
	return ran, stop
}

// countRun adds one to the number of runs that ran holds for an execution.
func countRun(ran *sync.Map, id string) {
	n, _ := ran.LoadOrStore(id, &atomic.Int64{})
	n.(*atomic.Int64).Add(1) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// run starts the given hookstart program as hookstart run, in the same group as the runner of
// u.runs. executions returns the IDs of the executions that it has run so far, once for each run.
func (u *upgraded) run(command string) (p *process, executions func() []string) {
	u.t.Helper()
	file := filepath.Join(u.t.TempDir(), "runs")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		u.t.Fatal(err)
	}
	p = launch(u.t, command, "run", "--queue=default", "--group=main", "--nats-url="+u.server.URL(),
		"--", "sh", "-c", `echo "$HOOKSTART_EXECUTION_ID" >>"$0"`, file)
	p.Await("(runner is ready)")
	return p, func() []string {
		text, err := os.ReadFile(file)
		if err != nil {
			u.t.Fatal(err)
		}
		return strings.Fields(string(text))
	}
}
