package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/child/childtest"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
)

var eventFailures = flag.Int("events", 60, "TestEventsUnderKills: so many failures")

// killable is an installation whose processes a test can kill and restart.
type killable struct {
	t        *testing.T
	flags    []string
	bin      string
	told     string // folder with a file for each input that the alert workflow's runner got
	executor *process
	ingress  *process
	runners  map[string]*process
	client   *apiclient.Client
	url      string
	nats     *natstest.Node
}

func (k *killable) startExecutor() {
	k.executor = launch(k.t, "executor",
		append([]string{
			"--admin-token=" + adminToken,
			"--database-url=sqlite:" + filepath.Join(k.told, "..", "executions.db"),
		}, k.flags...)...)
	k.client = apiclient.New("http://"+k.executor.Await(`"addr":"([^"]+)".*executor is ready`),
		adminToken)
}

func (k *killable) startIngress() {
	k.ingress = launch(k.t, "ingress", k.flags...)
	k.url = "http://" + k.ingress.Await(`"addr":"([^"]+)".*ingress is ready`)
}

// startRunner starts a runner of a queue. The runner of the queue "fails" fails every execution.
// The runner of the queue "alerts" saves every input to a file.
func (k *killable) startRunner(queue string) {
	script := map[string]string{
		"fails":  "exit 1",
		"alerts": `cat >"$HOOKSTART_EXECUTION_ID"`,
	}[queue]
	cmd := exec.Command(k.bin, "run", "--queue", queue, "--nats-url", k.nats.URL(), "--raw",
		"--concurrency", "4", "--", "sh", "-c", script)
	cmd.Dir = k.told
	k.runners[queue] = childtest.Launch(k.t, cmd)
	k.runners[queue].Await("(runner is ready)")
}

// oneByOne is the number of failures that the test produces before it kills processes. They are so
// few that each of them gets a separate event.
const oneByOne = 5

// killables is the number of processes that kill chooses from.
const killables = 5

// kill kills one of the processes and restarts it. n selects the process.
func (k *killable) kill(n int) {
	switch n % killables {
	case 0:
		k.executor.Kill()
		k.startExecutor()
	case 1:
		k.runners["fails"].Kill()
		k.startRunner("fails")
	case 2:
		k.ingress.Kill()
		k.startIngress()
	case 3:
		k.runners["alerts"].Kill()
		k.startRunner("alerts")
	case 4:
		k.nats.Kill()
		k.nats.Restart()
	}
}

// NATS, the executor, the ingress and the runners are killed while executions fail. The operator
// events that the alert workflow receives count each failure exactly once. Failures in quick
// succession share an event, so there are few events. An event about a single failure names the
// execution that failed.
func TestEventsUnderKills(t *testing.T) {
	t.Parallel()
	failures := *eventFailures
	k := &killable{
		t:       t,
		told:    filepath.Join(t.TempDir(), "told"),
		runners: map[string]*process{},
		nats:    natstest.StartProcess(t),
		bin:     filepath.Join(buildCommandLine(t), "hookstart"),
	}
	if err := os.Mkdir(k.told, 0o700); err != nil {
		t.Fatal(err)
	}
	k.flags = []string{
		"--addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0", "--nats-url=" + k.nats.URL(),
		"--log-level=info",
	}
	k.startExecutor()
	k.startIngress()
	path := makeWorkflow(t, k.client, "fails")
	for _, queue := range []string{"fails", "alerts"} {
		if _, err := k.client.PutWorkflow(t.Context(), queue, api.PutWorkflow{
			AccountID: "tests",
			Name:      queue,
			Queue:     queue,
			RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
			Triggers:  []api.PutTrigger{{NodeID: "node"}},
		}); err != nil {
			t.Fatal(err)
		}
		k.startRunner(queue)
	}
	if _, err := k.client.PutEvents(t.Context(), "tests", api.PutEvents{
		WorkflowID: "alerts",
		Kinds:      []string{"execution.failed"},
	}); err != nil {
		t.Fatal(err)
	}

	kills, failed := 0, map[string]bool{}
	for n := range failures {
		failed[k.deliver(t, path, fmt.Sprint("delivery-", n))] = true
		if n == oneByOne-1 {
			within(t, time.Minute, "event of each of the first failures", func() bool {
				return len(k.events(t)) == oneByOne
			})
		}
		if n%7 == 6 {
			k.kill(kills)
			kills++
		}
	}
	for range killables {
		k.kill(kills)
		kills++
	}

	var told map[string]toldEvent
	total := 0
	within(t, 4*time.Minute, "event of each failure", func() bool {
		told, total = k.events(t), 0
		for _, event := range told {
			total += event.Count
		}
		return total >= failures
	})
	stored := storedStarts(t, k.nats.URL(), "alerts")
	for id, n := range stored {
		if n != 1 || told[id].Count == 0 {
			t.Errorf("execution %s of the alert workflow is %d times in the stream, and tells of "+
				"%d", id, n, told[id].Count)
		}
	}
	if total != failures || len(failed) != failures || len(told) != len(stored) {
		t.Errorf("%d executions (%d stored) tell of %d failures, of %d with %d IDs", len(told),
			len(stored), total, failures, len(failed))
	}
	single, named := 0, map[string]string{}
	for id, event := range told {
		if event.Count == 1 {
			single++
		}
		switch other, twice := named[event.ExecutionID]; {
		case !failed[event.ExecutionID]:
			t.Errorf("execution %s tells of %q, which did not fail", id, event.ExecutionID)
		case twice:
			t.Errorf("executions %s and %s tell of %s", other, id, event.ExecutionID)
		}
		named[event.ExecutionID] = id
	}
	if single < oneByOne {
		t.Errorf("%d executions tell of one failure, fewer than %d", single, oneByOne)
	}
	if most := 10 + 2*(failures/60+2); len(told) > most {
		t.Errorf("%d executions of the alert workflow, more than %d", len(told), most)
	}
	t.Logf("%d failures, %d kills: %d executions of the alert workflow, %d of them for one failure",
		failures, kills, len(told), single)
}

// deliver posts a delivery until it is accepted, and returns the ID of its execution.
func (k *killable) deliver(t *testing.T, path, delivery string) (id string) {
	t.Helper()
	within(t, time.Minute, "answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		a, err := post(ctx, k.url+path, map[string]string{"X-GitHub-Delivery": delivery},
			strings.NewReader("{}"))
		id = a.ExecutionID
		return err == nil && a.Status == http.StatusOK
	})
	return id
}

// toldEvent is the part of an operator event that TestEventsUnderKills checks.
type toldEvent struct {
	Kind, ExecutionID string
	Count             int
}

// events returns the events that the alert workflow's runner has received, keyed by the ID of the
// alert workflow's execution. Each of these executions reports one event.
func (k *killable) events(t *testing.T) map[string]toldEvent {
	t.Helper()
	files, err := os.ReadDir(k.told)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]toldEvent{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(k.told, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var input toldEvent
		if err := json.Unmarshal(text, &input); err != nil || input.Kind != "execution.failed" {
			continue // it is still being written
		}
		told[file.Name()] = input
	}
	return told
}

// event is an example of an operator event, as the input of the execution that it starts.
const event = `{"kind":"execution.failed","at":"2026-03-01T12:00:00Z","accountId":"acme","workflowId":"orders","executionId":"0195","count":3,` +
	`"text":"3 times. The last one: \"text\":\"x\"}, a \\ and\na line of <é>"}`

// The scripts in deploy/events forward an event to a chat or by mail. Their exit code tells the
// runner whether a retry makes sense.
func TestEventScripts(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "curl", "sed"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is missing")
		}
	}
	run := func(t *testing.T, script, input string, environment ...string) (code int,
		stderr string,
	) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "events", script))
		cmd.Env = append(os.Environ(), environment...)
		cmd.Stdin = strings.NewReader(input)
		var said strings.Builder
		cmd.Stderr = &said
		err := cmd.Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode(), said.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0, said.String()
	}
	t.Run("chat", func(t *testing.T) {
		t.Parallel()
		status, got, contentType := http.StatusOK, "", ""
		chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got, contentType = string(body), r.Header.Get("Content-Type")
			w.WriteHeader(status)
		}))
		defer chat.Close()
		var want struct{ Text string }
		if err := json.Unmarshal([]byte(event), &want); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"text", "content"} {
			if code, said := run(t, "chat.sh", event, "CHAT_WEBHOOK="+chat.URL+"/secret",
				"CHAT_FIELD="+field); code != 0 {
				t.Fatalf("%d: %s", code, said)
			}
			var posted map[string]string
			if err := json.Unmarshal([]byte(got), &posted); err != nil || len(posted) != 1 ||
				posted[field] != want.Text || contentType != "application/json" {
				t.Errorf("%s: posted %s as %s, %v", field, got, contentType, err)
			}
		}
		for answer, want := range map[int]int{503: 75, 429: 75, 404: 1, 302: 1} {
			status = answer
			if code, said := run(t, "chat.sh", event, "CHAT_WEBHOOK="+chat.URL); code != want ||
				!strings.Contains(said, fmt.Sprint(answer)) {
				t.Errorf("the chat answers %d: exit code %d, want %d: %s", answer, code, want, said)
			}
		}
		chat.Close()
		if code, _ := run(t, "chat.sh", event, "CHAT_WEBHOOK="+chat.URL); code != 75 {
			t.Errorf("a chat that is away: exit code %d", code)
		}
		for _, input := range []string{`{"order":1}`, ""} {
			if code, said := run(t, "chat.sh", input, "CHAT_WEBHOOK="+chat.URL); code != 1 ||
				!strings.Contains(said, "no operator event") {
				t.Errorf("input %q: %d, %s", input, code, said)
			}
		}
		if code, said := run(t, "chat.sh", event, "CHAT_WEBHOOK="); code == 0 || code == 75 ||
			!strings.Contains(said, "CHAT_WEBHOOK") {
			t.Errorf("without a URL: %d, %s", code, said)
		}
	})
	t.Run("mail", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		sendmail := filepath.Join(dir, "sendmail")
		if err := os.WriteFile(sendmail,
			[]byte("#!/bin/sh\necho \"$@\" >"+dir+"/args\ncat >"+dir+"/mail\nexit ${FAILS:-0}\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
		environment := []string{
			"MAIL_TO=ops@example.com", "MAIL_FROM=hooks@example.com", "SENDMAIL=" + sendmail,
			"HOOKSTART_EXECUTION_ID=0199",
		}
		if code, said := run(t, "mail.sh", event, environment...); code != 0 {
			t.Fatalf("%d: %s", code, said)
		}
		mail, err := os.ReadFile(filepath.Join(dir, "mail"))
		if err != nil {
			t.Fatal(err)
		}
		args, err := os.ReadFile(filepath.Join(dir, "args"))
		if err != nil || strings.TrimSpace(string(args)) != "-t -i" {
			t.Errorf("arguments %q, %v", args, err)
		}
		const want = "To: ops@example.com\nFrom: hooks@example.com\nSubject: hookstart: " +
			"execution.failed orders (3 times)\nMessage-ID: <0199@hookstart.invalid>\n" +
			"MIME-Version: 1.0\nContent-Type: text/plain; " +
			"charset=utf-8\nContent-Transfer-Encoding: 8bit\nAuto-Submitted: auto-generated\n\n" +
			"3 times. The last one: \"text\":\"x\"}, a \\ and a line of <é>\n\n" +
			"kind: execution.failed\nat: 2026-03-01T12:00:00Z\naccountId: acme\nworkflowId: " +
			"orders\nexecutionId: 0195\ncount: 3\n"
		if string(mail) != want {
			t.Errorf("got\n%s\nwant\n%s", mail, want)
		}
		if code, said := run(t, "mail.sh", event, append(environment, "FAILS=1")...); code != 75 ||
			!strings.Contains(said, "tried again") {
			t.Errorf("a sendmail that fails: %d, %s", code, said)
		}
		if code, said := run(t, "mail.sh", `{"order":1}`, environment...); code != 1 ||
			!strings.Contains(said, "no operator event") {
			t.Errorf("another input: %d, %s", code, said)
		}
		if code, said := run(t, "mail.sh", event, "MAIL_TO="); code == 0 ||
			!strings.Contains(said, "MAIL_TO") {
			t.Errorf("without an address: %d, %s", code, said)
		}
	})
}
