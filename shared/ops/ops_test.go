package ops_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/ops/logtest"
)

func TestServe(t *testing.T) {
	o := ops.New()
	addr, stop, err := o.StartServer(t.Context(), "127.0.0.1:0", logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	get := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if status, body := get("/readyz"); status != 200 || body != "ready\n" {
		t.Errorf("%d %s", status, body)
	}
	o.Readiness.MarkNotReady("database", "away")
	o.Readiness.MarkNotReady("a", "b")
	if status, body := get("/readyz"); status != 503 || body != "a: b\ndatabase: away\n" {
		t.Errorf("%d %s", status, body)
	}
	o.Readiness.MarkReady("a")
	o.Readiness.MarkReady("database")
	if status, _ := get("/readyz"); status != 200 {
		t.Errorf("%d", status)
	}
	if status, _ := get("/healthz"); status != 200 {
		t.Errorf("%d", status)
	}
	if status, body := get("/metrics"); status != 200 || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%d %.100s", status, body)
	}
	if _, _, err := o.StartServer(t.Context(), addr, logtest.Discard()); err == nil ||
		!strings.Contains(err.Error(), addr+" (") || !strings.Contains(err.Error(), "--ops-addr") {
		t.Errorf("a port in use: %v", err)
	}
	if _, _, err := o.StartServer(t.Context(), "", logtest.Discard()); err == nil ||
		!strings.HasPrefix(err.Error(), "--ops-addr is empty;") {
		t.Errorf("an empty address, which is every interface: %v", err)
	}
}

// A web page whose host name resolves to a loopback address (DNS rebinding) can neither read the
// operations endpoints nor change the log level.
func TestLoopbackIsAskedByAddress(t *testing.T) {
	addr, stop, err := ops.New().StartServer(t.Context(), "127.0.0.1:0", logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		addr:                     200,
		"127.0.0.1":              200,
		"[::1]:" + port:          200,
		"[::1]":                  200,
		"localhost:" + port:      200,
		"LOCALHOST":              200,
		"evil.example:" + port:   421,
		"evil.example":           421,
		"localhost.evil.example": 421,
		"127.0.0.1.evil.example": 421,
	} {
		request, err := http.NewRequest(http.MethodGet, "http://"+addr+"/debug/pprof/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("Host: %s: %d, want %d", host, response.StatusCode, want)
		}
	}
}

// The level can be changed while the process is running. An invalid level changes nothing.
func TestLogLevel(t *testing.T) {
	log := logrus.New()
	var out bytes.Buffer
	log.SetOutput(&out)
	addr, stop, err := ops.New().StartServer(t.Context(), "127.0.0.1:0", log)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, c := range []struct {
		method, body string
		status       int
		answer       string
		level        logrus.Level
	}{
		{"GET", "", 200, "info\n", logrus.InfoLevel},
		{"PUT", "debug\n", 200, "debug\n", logrus.DebugLevel},
		{"PUT", "loud", 400, "no such level: use error, warn, info or debug\n", logrus.DebugLevel},
		{
			"PUT", strings.Repeat("x", 100), 400,
			"send the level alone: error, warn, info or debug\n", logrus.DebugLevel,
		},
		{"PUT", "error", 200, "error\n", logrus.ErrorLevel},
		{"GET", "", 200, "error\n", logrus.ErrorLevel},
		// A page from another origin can send a POST without a preflight request, so POST is
		// refused.
		{"POST", "info", 405, "Method Not Allowed\n", logrus.ErrorLevel},
	} {
		request, err := http.NewRequest(c.method, "http://"+addr+"/log-level",
			strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != c.status || string(body) != c.answer ||
			log.GetLevel() != c.level {
			t.Errorf("%s %s: %d %q, %v; the level is %s", c.method, c.body, response.StatusCode,
				body, err, log.GetLevel())
		}
	}
	if n := strings.Count(out.String(), "log level changed"); n != 2 {
		t.Errorf("%d lines say that the level changed:\n%s", n, out.String())
	}
}

// The listener serves profiles, but not the command line, because it may contain the admin token.
func TestProfiles(t *testing.T) {
	addr, stop, err := ops.New().StartServer(t.Context(), "127.0.0.1:0", logtest.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for path, want := range map[string]int{
		"":                  200,
		"heap":              200,
		"goroutine":         200,
		"allocs":            200,
		"symbol":            200,
		"profile?seconds=1": 200,
		"cmdline":           404,
	} {
		response, err := http.Get("http://" + addr + "/debug/pprof/" + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Error(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
}

func TestNewLog(t *testing.T) {
	if _, err := ops.NewLogger("x", "loud"); err == nil {
		t.Error("a level that does not exist was accepted")
	}
	log, err := ops.NewLogger("ingress", "warn")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log.SetOutput(&out)
	log.Info("quiet")
	log.WithFields(logrus.Fields{
		"text":  "a\"\n\u2028é",
		"int":   -1,
		"float": 0.25,
		"yes":   true,
		"error": errors.New("bad"),
		"list":  []string{"a"},
		"level": "kept out",
		"wait":  time.Second,
	}).Warn("loud")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	delete(line, "time")
	want := map[string]any{
		"level":   "warning",
		"msg":     "loud",
		"program": "ingress",
		"text":    "a\"\n\u2028é",
		"int":     -1.0,
		"float":   0.25,
		"yes":     true,
		"error":   "bad",
		"list":    []any{"a"},
		"wait":    "1s",
	}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Error(diff)
	}
	if text := out.String(); strings.Contains(text, "quiet") ||
		!strings.Contains(text, `"program":"ingress"`) {
		t.Error(text)
	}
}
