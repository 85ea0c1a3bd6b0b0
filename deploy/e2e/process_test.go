package e2e

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/child/childtest"
)

// process is a program that a test has started.
type process = childtest.Process

// launch starts a program. If it is still running at the end of the test, it is killed.
func launch(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return launchIn(t, nil, name, args...)
}

// launchIn is like launch, with additional environment variables.
func launchIn(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), env...)
	return childtest.Launch(t, command)
}

const adminToken = "the-admin-token-of-the-tests"

// localProgram is a running hookstart-local that is ready. ingress, executor, nats and ops are the
// URLs of its listeners, and webhook is the URL of the demo workflow's webhook.
type localProgram struct {
	*process
	ingress, executor, nats, ops, webhook string
}

func launchLocal(t *testing.T, dataDir string, args ...string) *localProgram {
	t.Helper()
	return launchLocalIn(t, nil, dataDir, args...)
}

func launchLocalIn(t *testing.T, env []string, dataDir string, args ...string) *localProgram {
	t.Helper()
	p := launchIn(t, env, "hookstart-local", append([]string{
		"--data-dir", dataDir, "--ingress-addr=127.0.0.1:0", "--executor-addr=127.0.0.1:0",
		"--nats-addr=127.0.0.1:0",
		"--ops-addr=127.0.0.1:0", "--admin-token=" + adminToken, "--log-level=debug",
	}, args...)...)
	l := &localProgram{process: p}
	l.nats = p.Await(`\nNATS +(\S+)`)
	l.ops = strings.TrimSuffix(p.Await(`\nMetrics +(\S+)`), "/metrics")
	l.executor = p.Await(`\nConsole +(https?://[^/\s]+)`)
	l.webhook = p.Await(`\n  (http\S+/webhooks/\S+)`)
	l.ingress, _, _ = strings.Cut(l.webhook, "/webhooks/")
	return l
}

// launchLocalWithLink starts hookstart-local with the admin token in a file of the data folder.
// hookstart-local treats this token as one that it has generated, and therefore prints a sign-in
// link.
func launchLocalWithLink(t *testing.T) *localProgram {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "admin-token"), []byte(adminToken+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return launchLocal(t, dir, "--admin-token=")
}

func (l *localProgram) client() *apiclient.Client { return apiclient.New(l.executor, adminToken) }

// makeWorkflow creates and activates a workflow with the trigger node "node", and returns the path
// and query of its webhook URL.
func makeWorkflow(t *testing.T, c *apiclient.Client, id string) (path string) {
	t.Helper()
	ctx := t.Context()
	_, err := c.PutAccount(ctx, "tests", api.PutAccount{Name: "Tests", Plan: "ultra"})
	if err == nil {
		_, err = c.PutWorkflow(ctx, id, api.PutWorkflow{
			AccountID: "tests",
			Name:      id,
			RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
			Triggers:  []api.PutTrigger{{NodeID: "node"}},
		})
	}
	if err == nil {
		_, err = c.Activate(ctx, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return webhookPath(t, c, id)
}

// webhookPath returns the path and query of a workflow's current webhook URL.
func webhookPath(t *testing.T, c *apiclient.Client, id string) string {
	t.Helper()
	trigger, err := c.Trigger(t.Context(), id, "node")
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut(trigger.URL, "/webhooks/")
	return "/webhooks/" + path
}

// post sends a delivery once, with the given headers; see deliver.Post.
func post(
	ctx context.Context, url string, header map[string]string, body io.Reader,
) (deliver.Answer, error) {
	return deliver.Post(ctx, http.DefaultClient, url, header, body)
}

// recorded waits until an execution is recorded and ok returns true for it, and returns the
// execution.
func recorded(
	t *testing.T, c *apiclient.Client, id string, ok func(api.ExecutionDetail) bool,
) api.ExecutionDetail {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := c.Execution(ctx, id)
		var problem *api.Problem
		switch {
		case err == nil && ok(e):
			return e
		case err != nil && (!errors.As(err, &problem) || problem.Code != api.CodeNotFound):
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("execution %s: %+v, %v", id, e, err)
		}
	}
}
