package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

// One account fills the stream through two ingresses until its requests are refused, because the
// stream is nine tenths full. Requests of two other accounts are still accepted, even after
// restarts of an ingress, the executor and NATS. Repeats of deliveries that were accepted before
// the refusals are recognized.
func TestStorageIsSharedFairly(t *testing.T) {
	t.Parallel()
	const maxBytes = 10_000_000
	server := natstest.Start(t)
	common := []string{"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + server.URL()}
	database := "--database-url=sqlite:" + filepath.Join(t.TempDir(), "executions.db")
	startExecutor := func() (*process, *apiclient.Client) {
		t.Helper()
		p := launch(t, "executor", append(common, database, "--admin-token="+adminToken,
			"--public-url=https://hooks.example.com",
			fmt.Sprint("--stream-max-bytes=", maxBytes))...)
		return p, apiclient.New("http://"+p.Await(`"addr":"([^"]+)".*executor is ready`), adminToken)
	}
	startIngress := func() (*process, string) {
		t.Helper()
		p := launch(t, "ingress", common...)
		return p, "http://" + p.Await(`"addr":"([^"]+)".*ingress is ready`)
	}
	executor, client := startExecutor()
	var urls [2]string
	_, urls[0] = startIngress()
	second, url := startIngress()
	urls[1] = url

	paths := map[string]string{}
	for _, id := range []string{"heavy", "middle", "light"} {
		_, err := client.PutAccount(t.Context(), id, api.PutAccount{Name: id, Plan: "ultra"})
		if err == nil {
			_, err = client.PutWorkflow(t.Context(), id, api.PutWorkflow{
				AccountID: id, Name: id, Triggers: []api.PutTrigger{{NodeID: "node"}},
				RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
			})
		}
		if err == nil {
			_, err = client.Activate(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		paths[id] = webhookPath(t, client, id)
	}
	body := strings.Repeat("x", 100_000)
	send := func(ingress int, id, deliveryID, body string) deliver.Answer {
		t.Helper()
		header := map[string]string{"X-GitHub-Delivery": deliveryID}
		a, err := post(t.Context(), urls[ingress]+paths[id], header, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	full := func(a deliver.Answer) bool { return a.Status == 503 && a.Code == "storage_full" }
	sent := 0
	// refused sends large requests for an account to one ingress until it refuses one because the
	// storage is full, and returns how many it accepted.
	refused := func(ingress int, id string) (accepted int) {
		t.Helper()
		for ; ; accepted++ {
			sent++
			switch a := send(ingress, id, fmt.Sprint(sent), body); {
			case full(a):
				return accepted
			case a.Status != 200 || accepted > maxBytes/len(body):
				t.Fatalf("request %d of %s: %+v", accepted, id, a)
			}
		}
	}
	// findRoom checks that requests of the other two accounts are accepted at both ingresses. Error
	// messages begin with when, a description of the situation.
	findRoom := func(when string) {
		t.Helper()
		for ingress := range urls {
			for _, id := range []string{"middle", "light"} {
				if a := send(ingress, id, "", "{}"); a.Status != 200 {
					t.Errorf("%s: %s at ingress %d: %+v", when, id, ingress, a)
				}
			}
		}
	}

	original := send(0, "heavy", "repeated", "{}")
	accepted := 0
	for range 60 { // alternate, so that each ingress sees only half of the requests
		for ingress := range urls {
			sent++
			if a := send(ingress, "heavy", fmt.Sprint(sent), body); a.Status == 200 {
				accepted++
			} else if !full(a) {
				t.Fatalf("%+v", a)
			}
		}
	}
	if accepted < maxBytes*85/100/len(body) || accepted > maxBytes*95/100/len(body) {
		t.Errorf("%d requests of %d bytes were accepted", accepted, len(body))
	}
	findRoom("beside a flood")
	for ingress := range urls {
		again := send(ingress, "heavy", "repeated", "{}")
		if again.Status != 200 || !again.Deduplicated || again.ExecutionID != original.ExecutionID {
			t.Errorf("a repeat: %+v, want %s", again, original.ExecutionID)
		}
		if n := refused(ingress, "heavy"); n > 1 {
			t.Errorf("%d more were accepted at ingress %d", n, ingress)
		}
	}

	second.Kill()
	second, urls[1] = startIngress()
	findRoom("after a restart of an ingress")
	if n := refused(1, "heavy"); n > 3 {
		t.Errorf("%d more were accepted after a restart", n)
	}
	findRoom("after a flood at the restarted ingress")

	executor.Kill()
	refused(0, "heavy")
	findRoom("without an executor")
	startExecutor()
	server.Stop()
	server.Restart()
	second.Kill()
	_, urls[1] = startIngress()
	// The first ingress was not restarted. Wait until its connection to NATS has recovered by
	// itself.
	for deadline := time.Now().Add(30 * time.Second); ; {
		if a := send(0, "light", "", "{}"); a.Status == 200 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("after a restart of NATS: %+v", a)
		}
	}
	refused(0, "heavy")
	refused(1, "heavy")
	findRoom("after a restart of all")
}
