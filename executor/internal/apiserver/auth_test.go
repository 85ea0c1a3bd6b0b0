package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/api"
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
			"", "Bearer", "Bearer ", "Bearer wrong", "Bearer " + adminToken + "x", "Bearer " + adminToken[1:],
			"Basic " + adminToken, adminToken, "Bearer" + adminToken,
		} {
			a := r.call(to.method, to.path, "", func(q *http.Request) { q.Header.Set("Authorization", header) })
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
	for _, header := range []string{"Bearer " + adminToken, "bearer " + adminToken, "BEARER  " + adminToken} {
		r.call("GET", "/plans", "", func(q *http.Request) { q.Header.Set("Authorization", header) }).is(200)
	}
}

func TestNoAdminTokenOpensNothing(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.AdminToken = "" })
	for _, header := range []string{"", "Bearer", "Bearer "} {
		r.call("GET", "/plans", "", func(q *http.Request) { q.Header.Set("Authorization", header) }).refused(401, api.CodeUnauthorized)
	}
}

func TestAuthorizedLetsOthersIn(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) {
		c.Authorized = func(q *http.Request) bool { return q.Header.Get("Cookie") == "session=1" }
	})
	cookie := func(value string) func(*http.Request) {
		return func(q *http.Request) {
			q.Header.Del("Authorization")
			q.Header.Set("Cookie", value)
		}
	}
	r.call("GET", "/plans", "", cookie("session=1")).is(200)
	r.call("GET", "/plans", "", cookie("session=2")).refused(401, api.CodeUnauthorized)
	r.get("/plans").is(200)
}

// A token that is in the wrong place stays out of the log, too: start looks for it.
func TestMisplacedTokensAreNotLogged(t *testing.T) {
	t.Parallel()
	r := start(t)
	const token = "hst_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, secret := range []string{token, adminToken} {
		r.get("/workflows/"+secret).refused(404, api.CodeNotFound)
		r.get("/plans?token=" + secret).is(200)
		r.get("/"+secret).refused(404, api.CodeNotFound)
		r.call(strings.ReplaceAll(secret, "_", "-"), "/plans", "").refused(405, api.CodeMethodNotAllowed)
		r.put("/accounts/x", `{"name":"x","plan":"`+secret+`"}`).refused(422, api.CodeInvalid)
		r.put("/accounts/"+secret, `{"name":"x","plan":"free"}`).is(201)
	}
	if !strings.Contains(r.log.String(), "put-account") {
		t.Error("calls are not logged")
	}
}
