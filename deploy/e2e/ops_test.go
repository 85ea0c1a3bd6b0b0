package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// get returns the status and the body of the response to a GET request.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// Each program serves its operations endpoints, such as metrics and pprof, only on the ops
// listener.
func TestOpsAreOnTheOpsListenerOnly(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	for path, marker := range map[string]string{
		"/metrics":                       "hookstart_ingress_requests_total",
		"/healthz":                       "ok\n",
		"/readyz":                        "ready\n",
		"/log-level":                     "debug\n",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/heap?debug=1":      "heap profile",
		"/debug/pprof/goroutine?debug=2": "goroutine 1 [",
	} {
		if status, body := get(t, l.ops+path); status != 200 || !strings.Contains(body, marker) {
			t.Errorf("ops %s: %d %.200s", path, status, body)
		} else if strings.Contains(body, adminToken) {
			t.Errorf("ops %s shows the admin token", path)
		}
		for name, url := range map[string]string{
			"ingress":        l.ingress,
			"executor":       l.executor,
			"executor's API": l.executor + "/api/v1",
		} {
			if _, body := get(t, url+path); strings.Contains(body, marker) {
				t.Errorf("the %s shows %s: %.200s", name, path, body)
			}
		}
	}
	// The command line of this process contains the admin token, so pprof must not serve it.
	if status, body := get(t, l.ops+"/debug/pprof/cmdline"); status != 404 ||
		strings.Contains(body, adminToken) {
		t.Errorf("cmdline: %d %.200s", status, body)
	}
}

// The log level can be changed while a program runs. The log contains no token at any level.
func TestLogLevelWhileItRuns(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir(), "--log-level=error")
	send := func(token string) {
		t.Helper()
		base, _, _ := strings.Cut(l.webhook, "?token=")
		if _, err := post(t.Context(), base+"?token="+token, nil,
			strings.NewReader("{}")); err != nil {
			t.Fatal(err)
		}
	}
	_, right, _ := strings.Cut(l.webhook, "?token=")
	send(right)
	for _, level := range []string{"trace", "error"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, l.ops+"/log-level",
			strings.NewReader(level))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("%+v, %v", response, err)
		}
		_ = response.Body.Close()
		send("no-such-token")
		send(right)
	}
	l.Terminate()
	text := l.Output()
	_, logged, _ := strings.Cut(text, `"log level changed"`)
	if n := strings.Count(text, `"msg":"webhook"`); n != 2 {
		t.Errorf("%d requests are in the log, not the 2 at level trace:\n%s", n, text)
	}
	for _, token := range []string{right, "no-such-token", adminToken} {
		if strings.Contains(logged, token) {
			t.Errorf("the log says %s:\n%s", token, logged)
		}
	}
}
