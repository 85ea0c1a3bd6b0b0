package local_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/program"
)

const (
	role       = "hookstart-local"
	adminToken = "the-admin-token-of-the-tests"
)

// TestMain makes the test binary act as hookstart-local when it is started under that name. The
// tests therefore run a real process, which has the race detector if the tests have it.
func TestMain(m *testing.M) {
	if os.Args[0] != role {
		os.Exit(m.Run())
	}
	program.Main(role, "", local.Run)
}

// launch starts hookstart-local with the given flags. Unless these flags say otherwise, it listens
// on free ports.
func launch(t *testing.T, args ...string) *childtest.Process {
	t.Helper()
	cmd, err := child.SelfCommand(role, append([]string{
		"--ingress-addr=127.0.0.1:0", "--executor-addr=127.0.0.1:0", "--nats-addr=127.0.0.1:0",
		"--ops-addr=127.0.0.1:0",
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return childtest.Launch(t, cmd)
}

// running is a hookstart-local process that is ready.
type running struct {
	*childtest.Process
	executor, ops, webhook string
}

func launchReady(t *testing.T, dataDir string) *running {
	t.Helper()
	r := &running{
		Process: launch(t, "--data-dir", dataDir, "--admin-token="+adminToken, "--log-level=debug"),
	}
	r.ops = strings.TrimSuffix(r.Await(`\nMetrics +(\S+)`), "/metrics")
	r.executor = r.Await(`\nConsole +(http://[^/\s]+)`)
	r.webhook = r.Await(`\n  (http\S+/webhooks/\S+)`)
	return r
}

func (r *running) client() *apiclient.Client { return apiclient.New(r.executor, adminToken) }

// If --nats-addr has no host, the NATS server listens on all interfaces, like the other listeners.
// In a container, a server on only the loopback interface could not be reached from outside.
func TestAnAddressWithoutAHostIsReachable(t *testing.T) {
	t.Parallel()
	p := launch(t, "--data-dir", t.TempDir(), "--nats-addr=:0")
	if host := p.Await(`\nNATS +nats://([^:]+):`); host != "0.0.0.0" {
		t.Errorf("NATS listens on %s", host)
	}
}

// answer is the response that a sender gets.
type answer struct {
	status       int
	Code         string `json:"code"`
	ExecutionID  string `json:"executionId"`
	Deduplicated bool   `json:"deduplicated"`
}

// post sends JSON as a sender does. delivery is the delivery ID; "" means none.
func (r *running) post(ctx context.Context, delivery string, body io.Reader) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.webhook, body)
	if err != nil {
		return a, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Delivery", delivery)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	a.status = response.StatusCode
	return a, json.NewDecoder(response.Body).Decode(&a)
}

// awaitReadyz waits until the response of /readyz contains a line that begins with line.
func (r *running) awaitReadyz(t *testing.T, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, text, err := child.HTTPGet(ctx, r.ops+"/readyz")
		if strings.Contains("\n"+text, "\n"+line) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("/readyz never said %q, but %q, %v", line, text, err)
		}
	}
}
