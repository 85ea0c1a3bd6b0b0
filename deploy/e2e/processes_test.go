package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// installation is a NATS server with an executor and ingresses, which run as separate processes as
// in production.
type installation struct {
	nats      *natstest.Node
	executor  *process
	api       string // address of the operators' API
	client    *apiclient.Client
	ingresses []*process
	urls      []string // URLs of the ingresses
}

// install starts an installation with a NATS server, an executor and the given number of ingresses.
// flags are additional flags for all of these programs.
func install(t *testing.T, ingresses int, flags ...string) *installation {
	t.Helper()
	return installOn(t, "sqlite:"+filepath.Join(t.TempDir(), "executions.db"), ingresses, flags...)
}

// installOn is like install, with the executor's database at the given URL.
func installOn(t *testing.T, database string, ingresses int, flags ...string) *installation {
	t.Helper()
	return installAt(t, natstest.Start(t), database, ingresses, flags...)
}

// installAt is like installOn, with the given NATS server.
func installAt(
	t *testing.T, server *natstest.Node, database string, ingresses int, flags ...string,
) *installation {
	t.Helper()
	i := &installation{nats: server}
	i.executor = launch(t, "executor", append([]string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + i.nats.URL(),
		"--database-url=" + database, "--admin-token=" + adminToken,
		"--public-url=https://hooks.example.com",
	}, flags...)...)
	i.api = "http://" + i.executor.Await(`"addr":"([^"]+)".*executor is ready`)
	i.client = apiclient.New(i.api, adminToken)
	for range ingresses {
		p := launch(t, "ingress",
			append([]string{
				"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + i.nats.URL(),
			}, flags...)...)
		i.ingresses = append(i.ingresses, p)
	}
	for _, p := range i.ingresses {
		i.urls = append(i.urls, "http://"+p.Await(`"addr":"([^"]+)".*ingress is ready`))
	}
	return i
}

// In each of 500 rounds, 16 concurrent requests with the same delivery ID go to two ingress
// processes. They result in one message, one record and one execution ID, and exactly one response
// is not marked as deduplicated.
func TestConcurrentRepeatsOverTwoProcesses(t *testing.T) {
	t.Parallel()
	const rounds, repeats = 500, 16
	i := install(t, 2)
	path := makeWorkflow(t, i.client, "busy")
	acknowledged := map[string]string{}
	for round := range rounds {
		delivery := fmt.Sprintf("delivery-%d", round)
		var (
			wg      sync.WaitGroup
			answers [repeats]deliver.Answer
			errs    [repeats]error
		)
		for n := range repeats {
			wg.Go(func() {
				answers[n], errs[n] = post(t.Context(), i.urls[n%2]+path, map[string]string{
					"X-GitHub-Delivery": delivery,
				}, strings.NewReader("{}"))
			})
		}
		wg.Wait()
		originals := 0
		for n, a := range answers {
			if errs[n] != nil || a.Status != 200 || a.ExecutionID != answers[0].ExecutionID {
				t.Fatalf("round %d: %+v, %v", round, a, errs[n])
			}
			if !a.Deduplicated {
				originals++
			}
		}
		if originals != 1 {
			t.Fatalf("round %d: %d answers without deduplicated", round, originals)
		}
		acknowledged[answers[0].ExecutionID] = delivery
	}
	if len(acknowledged) != rounds {
		t.Errorf("%d IDs for %d deliveries", len(acknowledged), rounds)
	}
	checkLedger(t, acknowledged, i.nats.URL(), i.client, "busy")
}

// After an activation, a deactivation or a rotation, the very next request gets a response
// according to the new state, even with two ingress processes. The test makes 1,000 such changes.
func TestChangesHoldFromTheNextRequest(t *testing.T) {
	t.Parallel()
	const turns = 1000
	i := install(t, 2)
	path := makeWorkflow(t, i.client, "switched")
	old := path
	expect := func(turn int, path string, status int, code string) {
		t.Helper()
		for _, url := range i.urls {
			a, err := post(t.Context(), url+path, nil, strings.NewReader("{}"))
			if err != nil || a.Status != status || a.Code != code {
				t.Fatalf("turn %d: %+v, %v, want %d %s", turn, a, err, status, code)
			}
		}
	}
	for turn := range turns {
		var err error
		switch turn % 3 {
		case 0:
			_, err = i.client.Deactivate(t.Context(), "switched")
		case 1:
			_, err = i.client.Activate(t.Context(), "switched")
		case 2:
			_, err = i.client.RotateToken(t.Context(), "switched", "node", 0)
			old, path = path, webhookPath(t, i.client, "switched")
		}
		if err != nil {
			t.Fatal(err)
		}
		switch turn % 3 {
		case 0:
			expect(turn, path, 403, "workflow_inactive")
		case 1:
			expect(turn, path, 200, "")
		case 2:
			expect(turn, path, 200, "")
			expect(turn, old, 403, "token_invalid")
		}
	}
	if err := i.client.DeleteWorkflow(t.Context(), "switched"); err != nil {
		t.Fatal(err)
	}
	expect(turns, path, 404, "workflow_not_found")
	for _, p := range append(i.ingresses, i.executor) {
		p.Terminate()
	}
}
