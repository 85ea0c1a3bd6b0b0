package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/stream"
)

func TestMethodsAndBodies(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, c := range []struct{ method, path, allow string }{
		{"POST", "/plans", "GET"},
		{"HEAD", "/plans", "GET"},
		{"OPTIONS", "/plans", "GET"},
		{"BREW", "/plans", "GET"},
		{"POST", "/accounts", "GET"},
		{"POST", "/accounts/a", "DELETE, GET, PATCH, PUT"},
		{"POST", "/workflows/a", "DELETE, GET, PATCH, PUT"},
		{"GET", "/workflows/a/activate", "POST"},
		{"PUT", "/workflows/a/triggers/b", "GET, PATCH"},
		{"GET", "/workflows/a/triggers/b/sample-payload", "PUT"},
		{"GET", "/executions/a/rerun", "POST"},
		{"DELETE", "/openapi.json", "GET"},
	} {
		a := r.call(c.method, c.path, "")
		if c.method == "HEAD" {
			a.is(405)
		} else {
			a.refused(405, api.CodeMethodNotAllowed)
		}
		if got := a.header.Get("Allow"); got != c.allow {
			t.Errorf("%s: Allow %q, want %q", a.call, got, c.allow)
		}
	}
	for _, path := range []string{
		"/accounts/a", "/workflows/a", "/workflows/a/triggers/b/sample-payload",
	} {
		for _, size := range []int{1<<20 + 1, 3 << 20} {
			body := long(size)
			r.put(path, body).refused(413, api.CodeBodyTooLarge)
			// The limit also applies to a body whose length is not declared.
			r.call("PUT", path, "", func(q *http.Request) {
				q.Body, q.ContentLength = readCloser(body), -1
			}).refused(413, api.CodeBodyTooLarge)
		}
	}
	r.post("/workflows/a/triggers/b/rotate-token", long(1<<20+1)).refused(413, api.CodeBodyTooLarge)
	// A body of exactly 1 MiB is accepted.
	r.put("/accounts/a", `{"name":"n","plan":"free"}`+strings.Repeat(" ", 1<<20-26)).is(201)
}

func readCloser(text string) *body { return &body{strings.NewReader(text)} }

type body struct{ *strings.Reader }

func (*body) Close() error { return nil }

func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"n","triggers":[{"nodeId":"n","samplePayload":1}]}`).is(201)
	before := r.trigger("wf", "n").Token
	s := r.open("")
	r.check(r.store.Close())
	for _, a := range []answer{
		r.get("/executions"), r.get("/executions/" + id(1)),
		r.post("/executions/"+id(1)+"/rerun", ""),
		r.get("/workflows/wf/triggers/n"), r.post("/workflows/wf/triggers/n/rotate-token", ""),
		r.put("/workflows/wf/triggers/n/sample-payload", "2"),
	} {
		p := a.refused(503, api.CodeUnavailable)
		if strings.Contains(string(a.body), "sql") {
			t.Errorf("%s: the detail leaks: %q", a.call, p.Detail)
		}
	}
	// Calls that do not need the database succeed. The rotation that failed above has not changed
	// the token.
	r.get("/workflows/wf").is(200)
	r.post("/workflows/wf/activate", "").is(200)
	r.post("/workflows/wf/triggers/n/rerun", "").is(200)
	info, err := r.Trigger(t.Context(), "wf", "n")
	r.check(err)
	if info.Tokens[0].Token != before {
		t.Error("the token was rotated")
	}
	r.check(r.changes.Publish([]string{id(1)}))
	if got := s.block(); got != "" {
		t.Errorf("the event stream goes on: %q", got)
	}
	if !strings.Contains(r.log.String(), "closed") {
		t.Error("the log does not say why")
	}
}

func TestNATSIsAway(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.ChangeTimeout = 2 * time.Second })
	r.account("acme", "free")
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"n","triggers":[{"nodeId":"n","samplePayload":1}]}`).is(201)
	r.records(store.Batch{
		NewRecords: []store.Record{record(id(1), func(rec *store.Record) { rec.NodeID = "n" })},
	})
	r.get("/executions/" + id(1)).is(200) // the handle of the stream is now cached
	r.nats.Stop()
	eventually(t, func() bool { return !r.nc.IsConnected() })
	for _, a := range []answer{
		r.put("/accounts/new", `{"name":"n","plan":"free"}`),
		r.put("/accounts/acme", `{"name":"m","plan":"free"}`),
		r.put("/workflows/wf",
			`{"accountId":"acme","name":"m","triggers":[{"nodeId":"n"},{"nodeId":"m"}]}`),
		r.post("/workflows/wf/activate", ""), r.delete("/workflows/wf"),
		r.get("/workflows/wf/triggers/n"), r.post("/workflows/wf/triggers/n/rotate-token", ""),
		r.put("/workflows/wf/triggers/n/sample-payload", "2"),
		r.post("/workflows/wf/triggers/n/rerun", ""),
		r.get("/executions/" + id(1)), r.post("/executions/"+id(1)+"/rerun", ""),
	} {
		a.refused(503, api.CodeUnavailable)
	}
	// Calls that need only this process's memory still succeed.
	for _, path := range []string{
		"/plans", "/accounts", "/accounts/acme", "/workflows", "/workflows/wf", "/executions",
	} {
		r.get(path).is(200)
	}
	r.nats.Restart()
	eventually(t, func() bool { return r.nc.IsConnected() })
	eventually(t, func() bool { return r.get("/workflows/wf/triggers/n").status == 200 })
	eventually(t, func() bool {
		return r.put("/accounts/acme", `{"name":"m","plan":"free"}`).status == 200
	})
	r.post("/workflows/wf/triggers/n/rerun", "").is(200)
}

func TestStreamIsGone(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"n","triggers":[{"nodeId":"n","samplePayload":1}]}`).is(201)
	r.records(store.Batch{NewRecords: []store.Record{record(id(1))}})
	r.check(r.JetStream.DeleteStream(t.Context(), stream.ExecutionsName))
	r.get("/executions/"+id(1)).refused(503, api.CodeUnavailable)
	r.post("/workflows/wf/triggers/n/rerun", "").refused(503, api.CodeUnavailable)
	r.check(stream.EnsureSharedStreams(t.Context(), r.JetStream, stream.DefaultSettings))
	r.get("/executions/" + id(1)).is(200)
	r.post("/workflows/wf/triggers/n/rerun", "").is(200)
}

// faulty is a store whose methods fail with an unexpected error, although the database can be
// reached.
type faulty struct{ store.Store }

func (faulty) Get(context.Context, string) (store.Record, error) {
	return store.Record{}, errors.New("a secret of the database")
}

func (faulty) List(context.Context, store.RecordFilter, store.RecordPosition, int) ([]store.Record,
	error,
) {
	panic("a secret in a panic")
}

func TestInternalErrorsTellNothing(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.Store = faulty{c.Store} })
	for path, secret := range map[string]string{
		"/executions/" + id(1): "a secret of the database",
		"/executions":          "a secret in a panic",
	} {
		a := r.get(path)
		a.refused(500, api.CodeInternal)
		if strings.Contains(string(a.body), "secret") {
			t.Errorf("%s: %s", path, a.body)
		}
		if !strings.Contains(r.log.String(), secret) {
			t.Errorf("%s: the log does not say why", path)
		}
	}
}

// unavailable is a store whose lookups fail with a temporary error, such as a lock timeout,
// although the database responds.
type unavailable struct{ store.Store }

func (unavailable) Get(context.Context, string) (store.Record, error) {
	return store.Record{}, &store.UnavailableError{Err: errors.New("a lock timeout")}
}

func TestAFaultOfTheDatabaseThatMayPass(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.Store = unavailable{c.Store} })
	r.get("/executions/"+id(1)).refused(503, api.CodeUnavailable)
}

func TestEveryCallIsOneLineInTheLog(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.put("/accounts/acme", `{"name":1}`).refused(422, api.CodeInvalid)
	r.get("/nothing").refused(404, api.CodeNotFound)
	eventually(t, func() bool { return strings.Count(r.log.String(), "\n") >= 3 })
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	want := [][]string{
		{"operation=put-account", "account_id=acme", "status=201", "method=PUT", "duration_ms="},
		{"operation=put-account", "code=invalid", "status=422"},
		{"code=not_found", "status=404", "method=GET"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), r.log)
	}
	for i, fields := range want {
		for _, field := range fields {
			if !strings.Contains(lines[i], field) {
				t.Errorf("no %s in %s", field, lines[i])
			}
		}
	}
}
