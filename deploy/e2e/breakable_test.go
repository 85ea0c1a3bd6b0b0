package e2e

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// breakable is an installation of an executor, two ingresses and some runners, each of which a test
// can kill and replace.
type breakable struct {
	t         *testing.T
	nats      *natstest.Node
	flags     []string // flags of both the ingresses and the executor
	database  string   // path of the executor's database file
	runner    []string // the program of a runner and its arguments
	executor  *process
	client    atomic.Pointer[apiclient.Client]
	ingresses [2]*process
	urls      [2]atomic.Pointer[string] // URLs of the ingresses; a replaced ingress has a new one
	members   []*testRunner             // the runners that are running
	runners   []*testRunner             // all runners, including the killed ones
}

// startBreakable starts an installation with the given number of runners. Each runner is a process
// of the given program, such as test-runner, with the NATS URL and args as its arguments.
func startBreakable(t *testing.T, runners int, program string, args ...string) *breakable {
	t.Helper()
	b := &breakable{
		t:        t,
		nats:     natstest.Start(t),
		database: filepath.Join(t.TempDir(), "executions.db"),
		members:  make([]*testRunner, runners),
	}
	b.runner = append([]string{program, b.nats.URL()}, args...)
	b.flags = []string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + b.nats.URL(),
		"--log-level=info", // at this level, a service logs when it is ready
	}
	b.startExecutor()
	for i := range b.ingresses {
		b.startIngress(i)
	}
	for i := range b.members {
		b.startRunner(i)
	}
	return b
}

func (b *breakable) startExecutor() {
	b.t.Helper()
	b.executor = launch(b.t, "executor", append([]string{
		"--admin-token=" + adminToken, "--database-url=sqlite:" + b.database,
		"--public-url=https://hooks.example.com",
	}, b.flags...)...)
	api := "http://" + b.executor.Await(`"addr":"([^"]+)".*executor is ready`)
	b.client.Store(apiclient.New(api, adminToken))
}

func (b *breakable) startIngress(i int) {
	b.t.Helper()
	b.ingresses[i] = launch(b.t, "ingress", b.flags...)
	url := "http://" + b.ingresses[i].Await(`"addr":"([^"]+)".*ingress is ready`)
	b.urls[i].Store(&url)
}

func (b *breakable) startRunner(i int) {
	b.t.Helper()
	r := &testRunner{process: launch(b.t, b.runner[0], b.runner[1:]...)}
	r.Await("(ready)")
	b.members[i] = r
	b.runners = append(b.runners, r)
}

func (b *breakable) replaceExecutor() {
	b.t.Helper()
	b.executor.Kill()
	b.startExecutor()
}

// copyDatabase kills the executor, copies its database to a folder, and restarts the executor.
func (b *breakable) copyDatabase(to string) {
	b.t.Helper()
	b.executor.Kill()
	b.copyFiles(filepath.Dir(b.database), to)
	b.startExecutor()
}

// restoreDatabase kills the executor, replaces its database with a copy, and restarts the executor.
func (b *breakable) restoreDatabase(from string) {
	b.t.Helper()
	b.executor.Kill()
	if err := os.RemoveAll(filepath.Dir(b.database)); err != nil {
		b.t.Fatal(err)
	}
	b.copyFiles(from, filepath.Dir(b.database))
	b.startExecutor()
}

func (b *breakable) copyFiles(from, to string) {
	b.t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *breakable) replaceIngress(n int) {
	b.t.Helper()
	i := n % len(b.ingresses)
	b.ingresses[i].Kill()
	b.startIngress(i)
}

func (b *breakable) replaceRunner(n int) {
	b.t.Helper()
	i := n % len(b.members)
	b.members[i].Kill()
	b.members[i].killed = true
	b.startRunner(i)
}
