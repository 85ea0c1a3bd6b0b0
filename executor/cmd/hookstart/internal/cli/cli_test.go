package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/backup"
)

// run runs a command against an API with the given handler, and returns the exit code and the
// output. It fails the test if the output contains the admin token.
func run(
	ctx context.Context, t *testing.T, server http.Handler, args ...string,
) (code int, stdout, stderr string) {
	t.Helper()
	s := httptest.NewServer(server)
	defer s.Close()
	var out, err strings.Builder
	code = Run(ctx, append(args, "--api-url", s.URL, "--admin-token", "the-admin-token"),
		StdStreams{In: strings.NewReader(""), Out: &out, Err: &err})
	if strings.Contains(out.String()+err.String(), "the-admin-token") {
		t.Error("the admin token is shown")
	}
	return code, out.String(), err.String()
}

// When the event stream ends, tail opens a new one and looks up the changes that it missed. It
// prints each change only once.
func TestTailConnectsAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	event := func(id, status string) string {
		return fmt.Sprintf(`{"executionId":%q,"workflowId":"w","status":%q,"acceptedAt":%q}`, id,
			status, time.Now().UTC().Format(time.RFC3339Nano))
	}
	var streams atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/executions/stream", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("workflowId") != "w" {
			t.Errorf("asked for %s", r.URL)
		}
		n := streams.Add(1)
		if n == 2 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "retry: 1000\n\n")
		if n == 1 {
			_, _ = fmt.Fprintf(w, ": keep-alive\n\nevent: execution\ndata: %s\n\n",
				event("one", "queued"))
			return
		}
		_ = http.NewResponseController(w).Flush()
		_, _ = fmt.Fprintf(w, "event: execution\ndata: %s\n\n", event("three", "queued"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /api/v1/executions", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "" {
			_, _ = fmt.Fprintf(w, `{"items":[%s,%s],"nextCursor":"more"}`, event("three", "queued"),
				event("two", "running"))
			return
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":""}`, event("one", "queued"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	read, write := io.Pipe()
	ended := make(chan int, 1)
	var notes strings.Builder
	go func() {
		ended <- Run(ctx, []string{
			"execution", "tail", "--workflow", "w", "-o", "json", "--api-url", server.URL,
			"--admin-token", "x",
		}, StdStreams{Out: write, Err: &notes})
		_ = write.Close()
	}()
	var got []string
	buffer := make([]byte, 1<<10)
	for !strings.Contains(strings.Join(got, ""), "three") {
		n, err := read.Read(buffer)
		if err != nil {
			t.Fatal(got, err)
		}
		got = append(got, string(buffer[:n]))
	}
	cancel()
	rest, err := io.ReadAll(read)
	if code := <-ended; code != 0 || err != nil {
		t.Errorf("ended with %d, %v", code, err)
	}
	all := strings.Join(append(got, string(rest)), "")
	if strings.Count(all, "\n") != 3 || strings.Index(all, `"one"`) > strings.Index(all, `"two"`) ||
		strings.Index(all, `"two"`) > strings.Index(all, `"three"`) {
		t.Errorf("shown:\n%s", all)
	}
	if strings.Count(notes.String(), "the connection is lost") != 1 {
		t.Errorf("notes: %s", notes.String())
	}
}

// Two executions, "one" and "two", were accepted long ago and end while tail is disconnected. After
// reconnecting, tail gets the end of "one" from the event stream. A later stream reports a gap, so
// tail looks up "two", which it last printed as running. Both final states are printed.
func TestTailShowsTheEndOfWhatEndedMeanwhile(t *testing.T) {
	long := time.Now().Add(-10 * time.Minute).UTC().Format(time.RFC3339Nano)
	event := func(id, status string) string {
		return fmt.Sprintf(`{"executionId":%q,"status":%q,"acceptedAt":%q}`, id, status, long)
	}
	var streams, lookups atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/executions/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		last, n := r.Header.Get("Last-Event-ID"), streams.Add(1)
		if want := map[int32]string{1: "", 2: "11", 3: "12", 4: "12"}[n]; last != want {
			t.Errorf("stream %d resumes after %q, not %q", n, last, want)
		}
		text := map[int32]string{
			1: "retry: 1000\nid: 10\n\n: keep-alive\n\nid: 11\nevent: execution\ndata: " +
				event("one", "running") + "\n\nid: 11\nevent: execution\ndata: " +
				event("two", "running") + "\n\n",
			2: "retry: 1000\n\nid: 12\nevent: execution\ndata: " + event("one", "failed") +
				"\n\n",
			// Stream 3 begins with ID 13 and reports a gap after event 12. Tail's first lookup of
			// "two" fails, so tail must not continue after 13: it resumes after event 12 again, and
			// stream 4 reports the same gap.
			3: "retry: 1000\nid: 13\n\nevent: gap\ndata: {}\n\n",
			4: "retry: 1000\nid: 14\n\nevent: gap\ndata: {}\n\n",
		}[n]
		_, _ = io.WriteString(w, text)
		if n >= 4 {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	mux.HandleFunc("GET /api/v1/executions", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[]}`)
	})
	mux.HandleFunc("GET /api/v1/executions/two", func(w http.ResponseWriter, _ *http.Request) {
		if lookups.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, event("two", "succeeded"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	read, write := io.Pipe()
	go func() {
		_ = write.CloseWithError(fmt.Errorf("exit code %d", Run(ctx, []string{
			"execution", "tail", "-o", "json", "--api-url", server.URL, "--admin-token", "x",
		}, StdStreams{Out: write, Err: io.Discard})))
	}()
	lines := json.NewDecoder(read)
	for _, want := range [][2]string{
		{"one", "running"}, {"two", "running"}, {"one", "failed"}, {"two", "succeeded"},
	} {
		var line api.Execution
		if err := lines.Decode(&line); err != nil || line.ExecutionID != want[0] ||
			line.Status != want[1] {
			t.Fatalf("%+v, %v; want %q", line, err, want)
		}
	}
	cancel()
	_, _ = io.Copy(io.Discard, read)
}

// "apply --prune" refuses files that contain no document, because it would delete everything.
// Usually, such a file is empty because the program that generates it has failed.
func TestPruneNeedsADocument(t *testing.T) {
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		items := ""
		if r.URL.Path == "/api/v1/accounts" {
			items = `{"id":"acme","name":"Acme","plan":"pro"}`
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, items)
	})
	code, _, stderr := run(t.Context(), t, server, "apply", "-f", "-", "--prune")
	if code != 2 || !strings.Contains(stderr, "the files hold no document") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// A bulk call that did nothing, although more objects may match, is not repeated, because it would
// do nothing again. The command then fails and prints that more may match.
func TestBulkCallThatDoesNothingFails(t *testing.T) {
	var calls atomic.Int32
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			_, _ = io.WriteString(w, `{"requeued":3,"more":true}`)
			return
		}
		_, _ = io.WriteString(w,
			`{"requeued":0,"left":[{"code":"input_expired","count":9}],"more":true}`)
	})
	retry := []string{"dead-letter", "retry", "--all"}
	code, stdout, stderr := run(t.Context(), t, api, retry...)
	if code != 1 || stdout != "3 retried; 9 skipped: input expired\n" || calls.Load() != 2 ||
		!strings.Contains(stderr, "hookstart: more may match") {
		t.Errorf("%d after %d calls\n%s%s", code, calls.Load(), stdout, stderr)
	}
	code, stdout, stderr = run(t.Context(), t, api, append(retry, "-o", "json")...)
	if code != 1 || !strings.Contains(stdout, `"more":true`) ||
		!strings.Contains(stderr, "hookstart: more may match") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}

func TestPlanListReadsAllPages(t *testing.T) {
	pages := map[string]string{
		"":  `{"items":[{"id":"first"}],"nextCursor":"n"}`,
		"n": `{"items":[{"id":"last"}],"nextCursor":""}`,
	}
	plans := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, pages[r.URL.Query().Get("cursor")])
	})
	code, stdout, stderr := run(t.Context(), t, plans, "plan", "list")
	if code != 0 || !strings.Contains(stdout, "\nfirst ") || !strings.Contains(stdout, "\nlast ") ||
		stderr != "" {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	const all = `{"items":[{"id":"first"},{"id":"last"}],"nextCursor":""}` + "\n"
	code, stdout, stderr = run(t.Context(), t, plans, "plan", "list", "-o", "json")
	if code != 0 || stdout != all || stderr != "" {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}

// "queue list" does not claim that a queue has no runners if the API does not know its runners. It
// prints "?" for the number of runners, and "not known" if not even the groups are known.
func TestQueueListSaysWhatIsNotKnown(t *testing.T) {
	queues := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[
			{"queue":"young","groups":[{"group":"main","membersUnknown":true}]},
			{"queue":"offline","incomplete":true,"groups":[]},
			{"queue":"known","groups":[{"group":"main"},{"group":"other","members":2}]}
		],"nextCursor":""}`)
	})
	code, stdout, stderr := run(t.Context(), t, queues, "queue", "list")
	for _, row := range []string{
		`\nyoung +0 +– +\? +main \(\?, 0 waiting\)\n`,
		`\noffline \(own stream does not answer\) +0 +– +\? +not known\n`,
		`\nknown +0 +– +2 +main \(0, 0 waiting\), other \(2, 0 waiting\)\n`,
	} {
		if !regexp.MustCompile(row).MatchString(stdout) {
			t.Errorf("%d: no row is like %s:\n%s%s", code, row, stdout, stderr)
		}
	}
}

func TestManualHasTheExitCodeOfApply(t *testing.T) {
	code, stdout, stderr := run(t.Context(), t, http.NotFoundHandler(), "--man")
	if code != 0 || stderr != "" ||
		!strings.Contains(stdout, "\n"+`3 for differences found by apply \-\-dry\-run.`+"\n") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
}

func TestVerifySaysWhatTheStreamHasLost(t *testing.T) {
	const id = "01a1fc78-c9bb-791d-9624-356f4529a917"
	record := func(accepted time.Time) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			at := accepted.UTC().Format(time.RFC3339Nano)
			_, _ = fmt.Fprintf(
				w,
				`{"executionId":%q,"status":"failed","error":"no \u001b luck","acceptedAt":%q,"recordedAt":%q,"finishedAt":%q,"streamSequence":7,"inputExpired":true}`,
				id,
				at,
				at,
				at,
			)
		})
	}
	code, stdout, stderr := run(t.Context(), t, record(time.Now()), "execution", "verify", id)
	if code != 1 || !strings.Contains(stdout, "✗ stored") ||
		!strings.Contains(stderr, "hookstart: the stream has no message 7 of execution "+id) {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	// This execution is eight days old, so its message may have expired. That is no error.
	code, stdout, stderr = run(t.Context(), t, record(time.Now().AddDate(0, 0, -8)), "execution",
		"verify", id)
	if code != 0 || !strings.Contains(stdout, "✓ stored") ||
		!strings.Contains(stdout, "sequence 7; no longer kept") || stderr != "" {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	if !strings.Contains(stdout, "failed: no \uFFFD luck") {
		t.Errorf("%q", stdout)
	}
}

func TestVerifyWaits(t *testing.T) {
	var asked atomic.Int32
	late := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"status":404,"code":"not_found","detail":"not yet"}`)
			return
		}
		_, _ = io.WriteString(w, `{"executionId":"x","status":"queued"}`)
	})
	if code, stdout, stderr := run(t.Context(), t, late, "execution", "verify", "x", "--wait",
		"20s"); code != 0 {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, stderr := run(cancelled, t, late, "execution", "verify", "x"); code != 1 ||
		stderr != "hookstart: interrupted\n" {
		t.Errorf("%d\n%s", code, stderr)
	}
}

// A webhook URL is a secret, so "trigger send" never prints it, not even in errors.
func TestSendNeverShowsTheToken(t *testing.T) {
	for name, target := range map[string]string{
		"nobody there":  "http://127.0.0.1:1/webhooks/w?token=hst_secret",
		"not a URL":     "http://%zz/webhooks/w?token=hst_secret",
		"not a webhook": "",
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /api/v1/workflows/w/triggers/n", func(
			w http.ResponseWriter, r *http.Request,
		) {
			_, _ = fmt.Fprintf(w, `{"nodeId":"n","token":"hst_secret","url":%q}`,
				cmp.Or(target, "http://"+r.Host+"/page?token=hst_secret"))
		})
		mux.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/page", http.StatusFound)
		})
		code, stdout, stderr := run(t.Context(), t, mux, "trigger", "send", "w", "n", "--data", "1")
		if code != 1 || !strings.Contains(stderr, "\nhint: ") && name != "not a URL" ||
			strings.Contains(stdout+stderr, "hst_secret") {
			t.Errorf("%s: %d\n%s%s", name, code, stdout, stderr)
		}
	}
}

// If a request without a delivery ID may have been stored, "trigger send" prints the execution's ID
// and does not claim that nothing was accepted. This also applies to a node with a sender, for
// which the executor sends the request.
func TestSendSaysThatAnExecutionMayHaveBeenStarted(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/workflows/w/triggers/{node}", func(
		w http.ResponseWriter, r *http.Request,
	) {
		trigger := api.Trigger{NodeID: r.PathValue("node"), URL: "http://" + r.Host + "/webhooks/w"}
		if trigger.NodeID == "signed" {
			trigger.Sender = &api.Sender{}
		}
		_ = json.NewEncoder(w).Encode(trigger)
	})
	mux.HandleFunc("POST /webhooks/w", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"success":false,"status":503,"code":"unavailable","detail":"D.",`+
			`"outcome":"unknown","executionId":"the-id"}`)
	})
	mux.HandleFunc("POST /api/v1/workflows/w/triggers/signed/send-test", func(
		w http.ResponseWriter, _ *http.Request,
	) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(api.SentTest{
			Status: 503, Code: "unavailable", Outcome: "unknown", ExecutionID: "the-id",
		})
	})
	for _, node := range []string{"plain", "signed"} {
		code, stdout, stderr := run(t.Context(), t, mux, "trigger", "send", "w", node, "--data=1")
		if code != 1 || !strings.Contains(stdout, "the-id, which may have been started") ||
			!strings.Contains(stderr, "hookstart execution show the-id says whether") {
			t.Errorf("%s: %d\n%s%s", node, code, stdout, stderr)
		}
	}
}

func TestProblemsNameTheFields(t *testing.T) {
	p := &api.Problem{
		Status: 422,
		Code:   "invalid",
		Detail: "Two things are wrong.",
		Errors: []api.FieldError{
			{Field: "name", Problem: "is too long"}, {Field: "plan", Problem: "does not exist"},
		},
	}
	const text = "422 invalid: Two things are wrong. name: is too long. plan: does not exist."
	for want, err := range map[string]error{
		text: p,
		"interrupted: " + text + "; the installation is half restored: begin again with an empty " +
			"one": fmt.Errorf("interrupted: %w", &backup.HalfRestoredError{Err: p}),
		"everything is restored, but it is not confirmed that every executor and ingress uses " +
			"it: " + text: &hintError{error: &backup.RestoreUnconfirmedError{Err: p}},
	} {
		if have := errorMessage(err); have != want {
			t.Error(have)
		}
	}
}

// The environment variable for a verb's flag contains the verb's name. A variable without that
// name, such as HOOKSTART_NAME, has no effect, because it may be set for another purpose. The help
// of each verb shows the names of its variables.
func TestVariablesOfVerbsNameTheVerb(t *testing.T) {
	var put string
	server := http.NewServeMux()
	server.HandleFunc("GET /api/v1/accounts/acme", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
	})
	server.HandleFunc("PATCH /api/v1/accounts/acme", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		put = string(body)
		_, _ = io.WriteString(w, `{"id":"acme"}`)
	})
	t.Setenv("HOOKSTART_NAME", "by surprise")
	if run(t.Context(), t, server, "account", "put", "acme", "--plan", "pro"); strings.Contains(put,
		"surprise") {
		t.Errorf("HOOKSTART_NAME: %s", put)
	}
	t.Setenv("HOOKSTART_ACCOUNT_PUT_NAME", "Acme Inc.")
	if run(t.Context(), t, server, "account", "put", "acme", "--plan",
		"pro"); !strings.Contains(put, `"name":"Acme Inc."`) {
		t.Errorf("HOOKSTART_ACCOUNT_PUT_NAME: %s", put)
	}
	for verb, want := range map[string]string{
		"account put":    "$HOOKSTART_ACCOUNT_PUT_NAME",
		"run":            "$HOOKSTART_QUEUE",
		"admin replicas": "$HOOKSTART_NATS_URL",
		"workflow list":  "$HOOKSTART_API_URL",
	} {
		if _, help, _ := run(t.Context(), t, server,
			append(strings.Fields(verb), "--help")...); !strings.Contains(help, want) {
			t.Errorf("the help of %s lacks %s:\n%s", verb, want, help)
		}
	}
	if _, _, failure := run(t.Context(), t, server, "workflow", "create",
		"orders"); !strings.Contains(failure, "\nhint: hookstart workflow put creates one") {
		t.Error(failure)
	}
}
