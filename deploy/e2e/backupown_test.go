package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/stream"
)

// moveQueue moves a queue to its own stream if method is PUT, or back to the shared stream if
// method is DELETE. base is the URL of the API.
func moveQueue(t *testing.T, base, method, queue string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method,
		base+"/api/v1/queues/"+queue+"/stream", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, _ := io.ReadAll(response.Body); response.StatusCode >= 300 {
		t.Fatalf("%s: %d %s", method, response.StatusCode, text)
	}
}

// A backup includes a queue's own stream, and a restore recreates this stream. In the new
// installation, repeated deliveries are recognized and waiting executions run, but executions that
// runners had acknowledged do not run again.
func TestBackupOfOwnStreams(t *testing.T) {
	t.Parallel()
	bin := buildCommandLine(t)
	from := install(t, 1)
	paths := []string{makeWorkflow(t, from.client, "wf")}
	_, stopRunner := from.runs(t)
	done := from.send(t, paths, "shared", 20)
	moveQueue(t, from.api, http.MethodPut, "default")
	done = append(done, from.send(t, paths, "own", 20)...)
	for _, s := range done {
		recorded(t, from.client, s.id, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
	}
	stopRunner()
	waiting := from.send(t, paths, "waiting", 10)
	for _, s := range waiting {
		recorded(t, from.client, s.id, func(api.ExecutionDetail) bool { return true })
	}
	file := filepath.Join(t.TempDir(), "hookstart.backup")
	if output, err := from.admin(t, bin, "backup", file); err != nil ||
		!strings.Contains(output, stream.OwnStreamName("default")+": ") {
		t.Fatalf("%v\n%s", err, output)
	}
	if output, err := from.admin(t, bin, "restore", "--check", file); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	to := install(t, 1)
	if output, err := to.admin(t, bin, "restore", file); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, s := range slices.Concat(done, waiting) {
		a, err := post(t.Context(), to.urls[0]+s.path, map[string]string{
			"X-Webhook-Delivery-Id": s.delivery,
		}, strings.NewReader(`{}`))
		if err != nil || a.Status != 200 || !a.Deduplicated || a.ExecutionID != s.id {
			t.Errorf("%+v: %+v, %v", s, a, err)
		}
	}
	ran, _ := to.runs(t)
	for _, s := range waiting {
		is := recorded(t, to.client, s.id, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded"
		})
		was, err := from.client.Execution(t.Context(), s.id)
		if err != nil || is.StreamSequence != was.StreamSequence ||
			string(is.Input) != string(was.Input) || is.InputExpired {
			t.Errorf("\nis  %+v\nwas %+v, %v", is, was, err)
		}
	}
	for _, s := range done {
		if _, again := ran.Load(s.id); again {
			t.Errorf("%s was run again", s.id)
		}
	}
	after := to.send(t, paths, "after", 1)[0]
	recorded(t, to.client, after.id, func(e api.ExecutionDetail) bool {
		return e.Status == "succeeded"
	})
	own, err := jetStream(t, to.nats.URL()).Stream(t.Context(), stream.OwnStreamName("default"))
	if err != nil {
		t.Fatal(err)
	}
	msg, err := own.GetLastMsgForSubject(t.Context(),
		stream.Layout{Own: true}.StartSubject("default", "wf", "node"))
	if err != nil || msg.Header.Get(stream.HeaderExecutionID) != after.id {
		t.Errorf("the last start in the own stream is %s, %v; want %s", fmt.Sprint(msg), err,
			after.id)
	}
}
