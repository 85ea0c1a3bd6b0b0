package apiserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

func TestEveryPathNeedsTheToken(t *testing.T) {
	t.Parallel()
	r := start(t)
	var document struct {
		Paths map[string]map[string]any
	}
	r.check(json.Unmarshal(r.get("/openapi.json").is(200).body, &document))
	type target struct{ method, path string }
	targets := []target{
		{"GET", "/api/v1/openapi.json"},
		{"GET", "/api/v1/nothing"},
		{"GET", "/api/"},
		{"OPTIONS", "/api/v1/plans"},
		{"PATCH", "/api/v1/accounts/a"},
		{"GET", "/api/v1/executions/stream/x"},
	}
	for path, methods := range document.Paths {
		for method := range methods {
			path := strings.NewReplacer("{id}", "a", "{nodeId}", "b").Replace(path)
			targets = append(targets, target{strings.ToUpper(method), path})
		}
	}
	if len(targets) < 24 {
		t.Fatalf("only %d targets", len(targets))
	}
	for _, to := range targets {
		for _, header := range []string{
			"", "Bearer", "Bearer ", "Bearer wrong", "Bearer " + adminToken + "x",
			"Bearer " + adminToken[1:],
			"Basic " + adminToken, adminToken, "Bearer" + adminToken,
		} {
			a := r.call(to.method, to.path, "", func(q *http.Request) {
				q.Header.Set("Authorization", header)
			})
			a.refused(401, api.CodeUnauthorized)
			if got := a.header.Get("WWW-Authenticate"); got != "Bearer" {
				t.Errorf("%s: WWW-Authenticate %q", a.call, got)
			}
		}
	}
}

func TestTokenIsFound(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, header := range []string{
		"Bearer " + adminToken, "bearer " + adminToken, "BEARER  " + adminToken,
	} {
		r.call("GET", "/plans", "", func(q *http.Request) {
			q.Header.Set("Authorization", header)
		}).is(200)
	}
}

func TestNoAdminTokenOpensNothing(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.AdminToken = "" })
	for _, header := range []string{"", "Bearer", "Bearer "} {
		r.call("GET", "/plans", "", func(q *http.Request) {
			q.Header.Set("Authorization", header)
		}).refused(401, api.CodeUnauthorized)
	}
}

// A client that guesses tokens is delayed. A client with the right token is not, even if both have
// the same address.
func TestGuessesLockNobodyOut(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	r := start(t,
		func(c *config, _ *http.Server) { c.FailureThrottle = signin.NewFailureThrottle(metrics) })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const guesses = 40
	answered := make(chan int, guesses)
	for range guesses {
		go func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet,
				r.server.URL+"/api/v1/plans", nil)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Authorization", "Bearer guess")
			if response, err := r.server.Client().Do(request); err == nil {
				answered <- response.StatusCode
				_ = response.Body.Close()
			}
		}()
	}
	for range 20 {
		if status := <-answered; status != 401 {
			t.Errorf("a guess: %d", status)
		}
	}
	eventually(t, func() bool { return failedSignIns(t, metrics) == guesses })
	r.get("/plans").is(200)
	r.call("GET", "/plans", "", with(r.key("viewer", "").Secret)).is(200)
	if waiting := guesses - 20 - len(answered); waiting == 0 {
		t.Error("all guesses were answered before the right token was")
	}
	// A request without credentials does not count as a guess.
	r.call("GET", "/plans", "", func(q *http.Request) {
		q.Header.Del("Authorization")
	}).refused(401, api.CodeUnauthorized)
	if n := failedSignIns(t, metrics); n != guesses {
		t.Errorf("%v failures are counted, want %d", n, guesses)
	}
}

func failedSignIns(t *testing.T, metrics *prometheus.Registry) (n float64) {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}

func TestSessionsLetBrowsersIn(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := func(adminToken string) string {
		w := httptest.NewRecorder()
		r.check(signin.New(signin.Config{AdminToken: adminToken}).SignInByToken(w,
			httptest.NewRequest(http.MethodPost, "/sign-in", nil), adminToken))
		return w.Result().Cookies()[0].String()
	}
	cookie := func(value string) func(*http.Request) {
		return func(q *http.Request) {
			q.Header.Del("Authorization")
			q.Header.Set("Cookie", value)
		}
	}
	r.call("GET", "/plans", "", cookie(session(adminToken))).is(200)
	r.call("GET", "/plans", "", cookie(session("another token"))).refused(401, api.CodeUnauthorized)
	r.get("/plans").is(200)
}

// A token in the wrong place, such as a path or a query, is not logged. The rig checks the log.
func TestMisplacedTokensAreNotLogged(t *testing.T) {
	t.Parallel()
	r := start(t)
	const token = "hst_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, secret := range []string{token, adminToken} {
		r.get("/workflows/"+secret).refused(404, api.CodeNotFound)
		r.get("/plans?token="+secret).refused(422, api.CodeInvalid)
		r.get("/"+secret).refused(404, api.CodeNotFound)
		r.call(strings.ReplaceAll(secret, "_", "-"), "/plans", "").refused(405,
			api.CodeMethodNotAllowed)
		r.put("/accounts/x", `{"name":"x","plan":"`+secret+`"}`).refused(422, api.CodeInvalid)
		r.put("/accounts/"+secret, `{"name":"x","plan":"free"}`).is(201)
	}
	if !strings.Contains(r.log.String(), "put-account") {
		t.Error("calls are not logged")
	}
}
