package target_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/target"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

// posting starts a runner that sends each execution to a test server. The parameter ingress is the
// handler of that test server. configure may change the runner's HTTPHandler. The returned Ingress
// publishes start messages for the runner.
func posting(t *testing.T, ingress http.Handler,
	configure func(*target.HTTPHandler),
) *runnertest.Ingress {
	t.Helper()
	nc := natstest.Start(t).Connect(t)
	starts := runnertest.NewIngress(t, nc)
	server := httptest.NewServer(ingress)
	t.Cleanup(server.Close)
	to, err := url.Parse(server.URL + "/hooks?key=hidden")
	if err != nil {
		t.Fatal(err)
	}
	post := &target.HTTPHandler{URL: to, MaxOutputBytes: 1000, Client: target.NewClient(1)}
	configure(post)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- runner.Run(ctx, nc,
			runner.Options{
				Group: "run", Attempts: 3, Timeout: 2 * time.Second,
				Backoff: func(int) time.Duration {
					return time.Millisecond
				},
			}, post.Handle)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return starts
}

// For each kind of response from the target, the execution ends as the documentation of HTTPHandler
// says.
func TestEndsOfAPost(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	answers := http.NewServeMux()
	answers.HandleFunc("/hooks", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch end := strings.Trim(string(body), `"`); end {
		case "json":
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"ok":true}`)
		case "text":
			_, _ = io.WriteString(w, "ok")
		case "empty":
			w.WriteHeader(http.StatusNoContent)
		case "long":
			_, _ = io.WriteString(w, strings.Repeat("x", 1001))
		case "redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "refused":
			http.Error(w, "no such order", http.StatusUnprocessableEntity)
		case "broken":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "x")
		case "408", "425", "429", "500", "503":
			if r.Header.Get("Hookstart-Attempt") == "1" {
				w.WriteHeader(map[string]int{
					"408": 408,
					"425": 425,
					"429": 429,
					"500": 500,
					"503": 503,
				}[end])
			}
		case "down":
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
		case "later":
			if tries.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}
	})
	starts := posting(t, answers, func(*target.HTTPHandler) {})
	for end, want := range map[string]struct {
		status        execution.Status
		output, error string
	}{
		"json":     {execution.Succeeded, `{"ok":true}`, ""},
		"text":     {execution.Succeeded, `{"text":"ok"}`, ""},
		"empty":    {execution.Succeeded, "", ""},
		"long":     {execution.Failed, "", "the output is longer than 1000 bytes"},
		"redirect": {execution.Failed, "", "answered 307 Temporary Redirect"},
		"refused":  {execution.Failed, "", "answered 422 Unprocessable Entity: no such order"},
		"broken":   {execution.Failed, "", "broke off"},
		"408":      {execution.Succeeded, "", ""},
		"425":      {execution.Succeeded, "", ""},
		"429":      {execution.Succeeded, "", ""},
		"500":      {execution.Succeeded, "", ""},
		"503":      {execution.Succeeded, "", ""},
		"down":     {execution.Failed, "", "answered 503 Service Unavailable: maintenance"},
	} {
		got := starts.Await(t, starts.Start(t, runnertest.Post{
			ContentType: "application/json",
			Body:        `"` + end + `"`,
		}))
		if got.Status != want.status || string(got.Output) != want.output ||
			!strings.Contains(got.Error, want.error) {
			t.Errorf("%s: %s %s %q; want %+v", end, got.Status, got.Output, got.Error, want)
		}
		if strings.Contains(got.Error, "hidden") {
			t.Errorf("%s shows the URL's query: %s", end, got.Error)
		}
	}
	began := time.Now()
	if got := starts.Await(t, starts.Start(t, runnertest.Post{
		ContentType: "application/json",
		Body:        `"later"`,
	})); got.Status != execution.Succeeded {
		t.Errorf("after Retry-After: %+v", got)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("tried again after %s, although Retry-After asked for 1 s", took)
	}
}

// ParseSecrets accepts secrets in the forms that the Standard Webhooks libraries accept, and Sign
// makes the same signature as they do. The expected signature is from TestWebhookSign of the Go
// library.
func TestASecretIsReadAsTheLibrariesDo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n":           1,
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":                   1,
		"\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n\nAAAA\n": 2,
	} {
		secrets, err := target.ParseSecrets(text)
		if err != nil || len(secrets) != want ||
			base64.StdEncoding.EncodeToString(secrets[0]) != "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" {
			t.Errorf("%q: %v, %v", text, secrets, err)
		}
	}
	for _, text := range []string{"", "\n", "whsec_", "whsec_not base64", "AAAA\nsecret!"} {
		if secrets, err := target.ParseSecrets(text); err == nil ||
			strings.Contains(err.Error(), "secret!") {
			t.Errorf("%q: %v, %v", text, secrets, err)
		}
	}
	header := http.Header{}
	secrets, err := target.ParseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	target.Sign(header, secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
		[]byte(`{"test": 2432232314}`))
	if got := header.Get("Webhook-Signature"); got != "v1,g0hM9SsE+OTPJTGt/"+
		"tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Error(got)
	}
}

// A target receives the documented headers and body, with and without --raw. A sender cannot forge
// headers that the target trusts because they come from hookstart or from the target's own proxy.
func TestWhatIsPosted(t *testing.T) {
	t.Parallel()
	for _, raw := range []bool{false, true} {
		got := make(chan *http.Request, 1)
		bodies := make(chan string, 1)
		starts := posting(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got <- r
			bodies <- string(body)
		}), func(p *target.HTTPHandler) {
			p.RawBody = raw
			p.Secrets = []target.Secret{[]byte("one"), []byte("two")}
		})
		id := starts.Start(t, runnertest.Post{
			WorkflowID:  "orders",
			ContentType: "text/plain; charset=utf-8",
			Body:        "hällo",
			DeliveryID:  "d1",
			Query:       execution.Values{"a": {"1", "2"}},
			Headers: execution.Values{
				"X-Github-Event":         {"push"},
				"Webhook-Signature":      {"forged"},
				"Hookstart-Execution-Id": {"forged"},
				"X-Forwarded-For":        {"10.0.0.1"},
				"Connection":             {"close"},
				"Content-Length":         {"3"},
				"Content-Type":           {"text/plain; charset=utf-8"},
			},
		})
		starts.Await(t, id)
		request, body := <-got, <-bodies
		header := request.Header
		for name, want := range map[string]string{
			"Webhook-Id":             id,
			"Hookstart-Execution-Id": id,
			"Hookstart-Workflow-Id":  "orders",
			"Hookstart-Delivery-Id":  "d1",
			"Hookstart-Attempt":      "1",
			"Hookstart-Query":        "a=1&a=2",
			"X-Forwarded-For":        "",
		} {
			if header.Get(name) != want || len(header[name]) > 1 {
				t.Errorf("raw %t: %s: %q, want %q", raw, name, header[name], want)
			}
		}
		if signatures := strings.Fields(header.Get("Webhook-Signature")); len(signatures) != 2 ||
			!strings.HasPrefix(signatures[1], "v1,") {
			t.Errorf("raw %t: signatures %q", raw, signatures)
		}
		if raw &&
			(body != "hällo" || header.Get("Content-Type") != "text/plain; charset=utf-8" ||
				header.Get("X-Github-Event") != "push") {
			t.Errorf("raw: %q %v", body, header)
		}
		if !raw &&
			(body != `{"body":"hällo"}` || header.Get("Content-Type") != "application/json" ||
				header.Get("Hookstart-Header-X-Github-Event") != "push" ||
				header.Get("X-Github-Event") != "") {
			t.Errorf("%q %v", body, header)
		}
	}
}
