package reachability_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hookstart/hookstart/executor/internal/operators/reachability"
	"github.com/hookstart/hookstart/shared/embednats/freeport"
	"github.com/hookstart/hookstart/shared/probe"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

type ingresses []*consistency.IngressSettings

func (i ingresses) IngressSettings() []*consistency.IngressSettings { return i }

// The check recognizes each kind of server that may respond at a public URL. A test in deploy/e2e
// uses a real ingress.
func TestWhoAnswers(t *testing.T) {
	key := probe.NewKey()
	asked := atomic.Int32{}
	serve := func(answer http.HandlerFunc) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.Method != http.MethodPost || r.URL.RawQuery != "" || r.ContentLength != 0 ||
				r.Header.Get("Authorization") != "" {
				t.Errorf("the probe is %s %s", r.Method, r.URL)
			}
			answer(w, r)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	refuse := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"code":"token_missing"}`)
	}
	ours := probe.NewResponder(key)
	ingress := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/webhooks/-" && r.URL.Path != "/below/webhooks/-" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set(probe.Header, ours.Respond(r.Header.Get(probe.Header)))
		refuse(w)
	})
	closed, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Release()
	alive := ingresses{
		{PublicURL: "http://127.0.0.1:1"}, {ProbeKey: key}, {ProbeKey: probe.NewKey()},
	}

	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()

	for _, c := range []struct {
		what, url string
		alive     ingresses
		state     reachability.State
		detail    string
		asks      int32
	}{
		{
			"an ingress of ours", ingress, alive, reachability.StateReached, "of this installation",
			1,
		},
		{
			"below a path, with a slash", ingress + "/below/", alive, reachability.StateReached, "",
			1,
		},
		{
			"what an ingress was told", "",
			ingresses{{PublicURL: ingress + "/", ProbeKey: key}},
			reachability.StateReached, "", 1,
		},
		{"another installation", serve(func(w http.ResponseWriter, _ *http.Request) {
			refuse(w)
		}), alive, reachability.StateOtherInstallation, "Another hookstart", 1},
		{"somebody who guesses", serve(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(probe.Header, r.Header.Get(probe.Header))
			refuse(w)
		}), alive, reachability.StateOtherInstallation, "", 1},
		{"a page", serve(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<h1>It works</h1>")
		}), alive, reachability.StateOtherProgram, "status 200", 1},
		{"an endless answer", serve(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<10)); err != nil {
					return
				}
			}
		}), alive, reachability.StateOtherProgram, "status 200", 1},
		{"a redirect, even to the ingress", serve(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, ingress+"/webhooks/-?secret=1", http.StatusPermanentRedirect)
		}), alive, reachability.StateRedirected, "308 and sends callers to " + ingress + ". ", 1},
		{"nobody", "http://" + closed.Addr(), alive, reachability.StateUnreachable, "refused", 0},
		{
			"a certificate of one's own", secure.URL, alive, reachability.StateUnreachable,
			"Somebody answers there, with a certificate that senders do not accept: x509: ", 0,
		},
		{
			"no TLS", strings.Replace(ingress, "http://", "https://", 1), alive,
			reachability.StateUnreachable, "Somebody answers there, but not with the TLS", 0,
		},
		{"no such scheme", "gopher://x", alive, reachability.StateUnreachable, "", 0},
		{"no ingress", ingress, nil, reachability.StateUnknown, "No ingress is alive", 0},
		{"old ingresses", ingress, ingresses{{}}, reachability.StateUnknown, "older version", 0},
		{"no URL", "", ingresses{{ProbeKey: key}}, reachability.StateUnknown, "--public-url", 0},
	} {
		asked.Store(0)
		checker := reachability.New(c.url, c.alive)
		got := checker.Check(t.Context())
		if got.State != c.state || !strings.Contains(got.Detail, c.detail) ||
			strings.Contains(got.Detail, "secret") || asked.Load() != c.asks {
			t.Errorf("%s: %+v, asked %d times", c.what, got, asked.Load())
		}
		if again := checker.Check(t.Context()); again != got || asked.Load() > c.asks {
			t.Errorf("%s, a moment later: %+v, asked %d times", c.what, again, asked.Load())
		}
	}
}

func TestLoopback(t *testing.T) {
	for base, want := range map[string]bool{
		"http://127.0.0.1:8080":        true,
		"https://localhost":            true,
		"http://a.localhost:1":         true,
		"http://[::1]:8080":            true,
		"http://0.0.0.0:8080":          true,
		"":                             false,
		"https://hooks.example.com":    false,
		"http://10.0.0.1":              false,
		"http://localhost.example.com": false,
		"%":                            false,
	} {
		if reachability.IsLoopback(base) != want {
			t.Errorf("%q: %t", base, !want)
		}
	}
}
