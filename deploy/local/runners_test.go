package local_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
)

// makeQueue makes an active workflow whose executions go to the queue of its name, and
// returns its webhook URL.
func makeQueue(t *testing.T, l *localProgram, id string) (url string) {
	t.Helper()
	path := makeWorkflow(t, l.client(), id)
	if _, err := l.client().PutWorkflow(t.Context(), id, api.PutWorkflow{
		AccountID: "tests", Name: id, Queue: id, Triggers: []api.PutTrigger{{NodeID: "node"}},
	}); err != nil {
		t.Fatal(err)
	}
	return l.ingress + path
}

// ended posts as a sender does, waits for the end of the execution, and checks how it was.
func ended(t *testing.T, l *localProgram, url, body string, header map[string]string, status, output, reason string) api.ExecutionDetail {
	t.Helper()
	a, err := post(t.Context(), url, header, strings.NewReader(body))
	if err != nil || a.status != 200 {
		t.Fatalf("POST: %+v, %v", a, err)
	}
	e := recorded(t, l.client(), a.ExecutionID, func(e api.ExecutionDetail) bool { return !e.FinishedAt.IsZero() })
	why := ""
	if e.Error != nil {
		why = *e.Error
	}
	if e.Status != status || (output != "" && string(e.Output) != output) || !strings.Contains(why, reason) || e.StartedAt.IsZero() {
		t.Errorf("%+v, output %s, error %s", e.Execution, e.Output, why)
	}
	return e
}

// The example's real program, and GitHub's real events: signed as GitHub does it, and as it does not.
func TestGitHubExample(t *testing.T) {
	l := launchLocal(t, t.TempDir())
	t.Setenv("GITHUB_WEBHOOK_SECRET", "a secret of the tests")
	url := makeQueue(t, l, "github")
	example := launch(t, buildProgram(t, "github.com/hookstart/hookstart/shared/runner/examples/github"), "-nats-url", l.nats)
	example.await("(runner is ready)")

	push, err := os.ReadFile("testdata/payloads/github-push.json")
	if err != nil {
		t.Fatal(err)
	}
	sign := func(secret string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = mac.Write(push)
		return "sha256=" + hex.EncodeToString(mac.Sum(nil))
	}
	headers := func(signature string) map[string]string {
		return map[string]string{"Content-Type": "application/json", "X-GitHub-Event": "push", "X-Hub-Signature-256": signature}
	}
	signed := ended(t, l, url, string(push), headers(sign("a secret of the tests")), "succeeded", "", "")
	if !strings.Contains(string(signed.Output), `"event":"push"`) || !strings.Contains(string(signed.Output), `"repository":"`) {
		t.Errorf("output %s", signed.Output)
	}
	forged := ended(t, l, url, string(push), headers(sign("another")), "failed", "", "is not that of this body")
	unsigned := ended(t, l, url, string(push), headers(""), "failed", "", "there is no X-Hub-Signature-256")
	changed := ended(t, l, url, string(push)+" ", headers(sign("a secret of the tests")), "failed", "", "is not that of this body")
	list := deadLetters(t, l)
	for _, e := range []api.ExecutionDetail{forged, unsigned, changed} {
		if list[e.ExecutionID] != api.DeadLetterFailed {
			t.Errorf("%s is no dead letter: %v", e.ExecutionID, list)
		}
	}
	example.terminate()
	if strings.Contains(example.output.String(), "a secret of the tests") {
		t.Error("the secret is in the log")
	}
}

// deadLetters are the kinds of the dead letters, by ID.
func deadLetters(t *testing.T, l *localProgram) map[string]string {
	t.Helper()
	list, err := l.client().DeadLetters(t.Context(), "", apiclient.Page{Limit: api.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, d := range list.Items {
		kinds[d.ID] = d.Kind
	}
	return kinds
}
