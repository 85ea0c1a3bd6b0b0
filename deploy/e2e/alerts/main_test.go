package alerts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/common/model"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/executor/withpostgres"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/program"
	"github.com/hookstart/hookstart/shared/runner"
)

const adminToken = "the-admin-token-of-the-tests"

// TestMain makes the test binary act as one of the programs when it is started under that program's
// name.
func TestMain(m *testing.M) {
	testscript.Main(childtest.CleanEnvRunner{M: m}, map[string]func(){
		"hookstart-local": func() { program.Main("hookstart-local", "", local.Run) },
		"executor":        func() { program.Main("executor", "", withpostgres.Run) },
		"stuck-runner": func() {
			if err := runStuck(os.Args[1]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
	})
}

// runStuck runs a runner of the queue "stuck".
func runStuck(natsURL string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	return runner.Run(ctx, nc, runner.Options{Queue: "stuck", Group: "group", OnReady: func() {
		fmt.Fprintln(os.Stdout, "ready")
	}},
		func(context.Context, runner.Execution) (any, error) { return nil, nil })
}

// installation is a running hookstart-local or executor.
type installation struct {
	client         *apiclient.Client
	metrics        string // URL of the metrics
	link, executor string // console's sign-in link and URL; hookstart-local only
	nats           string // URL of the NATS server; hookstart-local only
}

func launch(t *testing.T, name string, args ...string) *childtest.Process {
	t.Helper()
	return childtest.Launch(t, exec.Command(name, args...))
}

// launchLocal starts hookstart-local. The admin token is already in the data folder rather than on
// the command line, so hookstart-local treats it as one that it generated, and prints a sign-in
// link.
func launchLocal(t *testing.T) *installation {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "admin-token"), []byte(adminToken),
		0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "hookstart-local", "--data-dir="+dir, "--ingress-addr=127.0.0.1:0",
		"--executor-addr=127.0.0.1:0", "--nats-addr=127.0.0.1:0",
		"--ops-addr=127.0.0.1:0", "--log-level=warn", "--no-demo")
	l := &installation{
		nats:    p.Await(`\nNATS +(\S+)`),
		metrics: p.Await(`\nMetrics +(\S+)`),
		link:    p.Await(`\nConsole +(\S+)`),
	}
	at, err := url.Parse(l.link)
	if err != nil {
		t.Fatal(err)
	}
	l.executor = "http://" + at.Host
	l.client = apiclient.New(l.executor, adminToken)
	return l
}

func launchExecutor(t *testing.T, natsURLs string, flags ...string) *installation {
	t.Helper()
	p := launch(t, "executor", append([]string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + natsURLs,
		"--admin-token=" + adminToken,
		"--database-url=sqlite:" + filepath.Join(t.TempDir(), "executions.db"),
	}, flags...)...)
	return &installation{
		client: apiclient.New("http://"+p.Await(`"addr":"([^"]+)".*executor is ready`),
			adminToken),
		metrics: "http://" + p.Await(`executor is ready.*"ops_addr":"([^"]+)"`) + "/metrics",
	}
}

// makeWorkflow creates a workflow with the given ID. Its queue has the same name, and its trigger
// node "node" has a sample payload.
func makeWorkflow(t *testing.T, c *apiclient.Client, id string) {
	t.Helper()
	if _, err := c.PutAccount(t.Context(), "tests",
		api.PutAccount{Name: "Tests", Plan: "ultra"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutWorkflow(t.Context(), id, api.PutWorkflow{
		AccountID: "tests",
		Name:      id,
		Queue:     id,
		Triggers:  []api.PutTrigger{{NodeID: "node", SamplePayload: []byte("1")}},
	}); err != nil {
		t.Fatal(err)
	}
}

// gauge returns the value of a metric. If the metric has the label state, gauge returns the value
// of the series with the given state.
func (i *installation) gauge(t *testing.T, name, state string) float64 {
	t.Helper()
	samples, err := samplesOf(t.Context(), i.metrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range samples {
		if string(sample.Metric[model.MetricNameLabel]) == name &&
			string(sample.Metric["state"]) == state {
			return float64(sample.Value)
		}
	}
	t.Fatalf("there is no %s %s", name, state)
	return 0
}

// queue returns the state of a queue as the API reports it, and the total number of members of its
// runner groups.
func (i *installation) queue(t *testing.T, name string) (q api.Queue, members int) {
	t.Helper()
	list, err := i.client.Queues(t.Context(), apiclient.Page{})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(list.Items, func(q api.Queue) bool { return q.Queue == name })
	if at < 0 {
		t.Fatalf("there is no queue %s in %+v", name, list.Items)
	}
	for _, group := range list.Items[at].Groups {
		members += group.Members
	}
	return list.Items[at], members
}

// signIn signs in to the console. The returned function read fetches a page and returns its HTML.
func signIn(t *testing.T, i *installation) (read func(path string) string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(url string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := browser.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		page, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK ||
			bytes.Contains(page, []byte("Sign in")) {
			t.Fatalf("%s: %s, %v\n%s", url, response.Status, err, page)
		}
		return string(page)
	}
	get(i.link)
	return func(path string) string { t.Helper(); return get(i.executor + path) }
}

// within waits until the function holds returns true. If that takes longer than limit, the test
// fails with "no WHAT within LIMIT", where WHAT is the text in the parameter what.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(limit); !holds(); <-tick.C {
		if time.Now().After(until) {
			t.Fatalf("no %s within %v", what, limit)
		}
	}
}
