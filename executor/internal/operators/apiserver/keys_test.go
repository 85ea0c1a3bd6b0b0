package apiserver_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// key creates a key with the given role for one account, or for all accounts if accountID is "".
func (r *rig) key(role, accountID string) api.NewKey {
	r.t.Helper()
	return decode[api.NewKey](r.post("/keys",
		fmt.Sprintf(`{"name":%q,"role":%q,"accountId":%q}`, "a "+role, role, accountID)).is(201))
}

// with returns an option that replaces the admin token of a request with a key. If key is "", the
// request has no credentials.
func with(key string) func(*http.Request) {
	return func(q *http.Request) {
		q.Header.Del("Authorization")
		if key != "" {
			q.Header.Set("Authorization", "Bearer "+key)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	if me := decode[api.WhoAmI](r.get("/whoami").is(200)); me != (api.WhoAmI{
		Kind: "admin-token",
		Name: "admin token",
		Role: "admin",
	}) {
		t.Errorf("the admin token is %+v", me)
	}
	ends := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	made := decode[api.NewKey](r.post("/keys",
		fmt.Sprintf(`{"name":"CI","role":"editor","accountId":"acme","expiresAt":%q}`,
			ends.Format(time.RFC3339Nano))).is(201))
	if !strings.HasPrefix(made.Secret, operate.APIKeyPrefix) || len(made.Secret) != 47 ||
		made.Name != "CI" || made.Role != "editor" || made.AccountID != "acme" ||
		!made.ExpiresAt.Equal(ends) || time.Since(made.CreatedAt) > time.Minute ||
		!made.LastUsedAt.IsZero() {
		t.Errorf("made %+v", made.Key)
	}
	// Neither the stored data nor a list contains the key's secret.
	bucket, err := r.JetStream.KeyValue(t.Context(), registry.Bucket)
	r.check(err)
	entry, err := bucket.Get(t.Context(), registry.APIKeyPrefix+made.ID)
	r.check(err)
	listed := r.get("/keys").is(200)
	for what, text := range map[string][]byte{
		"the record": entry.Value(),
		"the list":   listed.body,
	} {
		if bytes.Contains(text, []byte(made.Secret)) ||
			bytes.Contains(text, []byte(made.Secret[len(operate.APIKeyPrefix):])) {
			t.Errorf("%s has the key", what)
		}
	}
	if items := decode[api.List[api.Key]](listed).Items; len(items) != 1 || items[0] != made.Key {
		t.Errorf("listed %+v, want %+v", items, made.Key)
	}

	want := api.WhoAmI{Kind: "key", ID: made.ID, Name: "CI", Role: "editor", AccountID: "acme"}
	if me := decode[api.WhoAmI](r.call("GET", "/whoami", "",
		with(made.Secret)).is(200)); me != want {
		t.Errorf("the key is %+v", me)
	}
	used := decode[api.List[api.Key]](r.get("/keys?accountId=acme").is(200)).Items
	if len(used) != 1 || time.Since(used[0].LastUsedAt) > time.Minute {
		t.Errorf("used %+v", used)
	}
	if none := decode[api.List[api.Key]](r.get("/keys?accountId=other").is(200)).Items; len(none) !=
		0 {
		t.Errorf("of another account: %+v", none)
	}
	r.delete("/keys/" + made.ID).is(204)
	r.call("GET", "/whoami", "", with(made.Secret)).refused(401, api.CodeUnauthorized)
	r.delete("/keys/"+made.ID).refused(404, api.CodeNotFound)
}

func TestKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	for body, field := range map[string]string{
		`{"role":"viewer"}`:                                                      "name",
		`{"name":"","role":"viewer"}`:                                            "name",
		`{"name":"n"}`:                                                           "role",
		`{"name":"n","role":"owner"}`:                                            "role",
		`{"name":"n","role":"admin","accountId":"acme"}`:                         "accountId",
		`{"name":"n","role":"viewer","accountId":"nobody"}`:                      "accountId",
		`{"name":"n","role":"viewer","accountId":"a/b"}`:                         "accountId",
		`{"name":"n","role":"viewer","expiresAt":"2020-01-01T00:00:00Z"}`:        "expiresAt",
		`{"name":"n","role":"viewer","key":"hsk_own"}`:                           "key",
		`{"name":"n","role":"viewer","id":"mine"}`:                               "id",
		`{"name":"` + strings.Repeat("n", 201) + `","role":"viewer"}`:            "name",
		`{"name":"n","role":"viewer","expiresAt":"tomorrow","accountId":"acme"}`: "expiresAt",
	} {
		p := r.post("/keys", body).refused(422, api.CodeInvalid)
		if len(p.Errors) == 0 || p.Errors[0].Field != field {
			t.Errorf("%s: %+v, want a problem with %s", body, p.Errors, field)
		}
	}
	if made := decode[api.List[api.Key]](r.get("/keys").is(200)).Items; len(made) != 0 {
		t.Errorf("made %+v", made)
	}
}

// If a key expires while it is being used, later calls are refused and its event streams end.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	r := start(t)
	// Make a first call before the key exists. It loads the OpenAPI document, against which
	// responses are checked, and that takes seconds on a busy machine.
	r.get("/plans").is(200)
	ends := time.Now().Add(10 * time.Second)
	made := decode[api.NewKey](r.post("/keys",
		fmt.Sprintf(`{"name":"short","role":"viewer","expiresAt":%q}`,
			ends.UTC().Format(time.RFC3339Nano))).is(201))
	s := r.open("", with(made.Secret))
	r.call("GET", "/plans", "", with(made.Secret)).is(200)
	if got := s.block(); got != "" || time.Now().Before(ends) {
		t.Errorf("the stream: %q, %s before the end", got, time.Until(ends))
	}
	r.call("GET", "/plans", "", with(made.Secret)).refused(401, api.CodeUnauthorized)
}

func TestRevocationEndsStreams(t *testing.T) {
	t.Parallel()
	r := start(t)
	revoked, other := r.key("viewer", ""), r.key("viewer", "")
	ends, stays := r.open("", with(revoked.Secret)), r.open("", with(other.Secret))
	r.delete("/keys/" + revoked.ID).is(204)
	r.records(store.Batch{NewRecords: []store.Record{record(id(1))}})
	if got := ends.block(); got != "" {
		t.Errorf("after the revocation: %q", got)
	}
	if got := stays.next(); got.ExecutionID != id(1) {
		t.Errorf("another key: %+v", got)
	}
}

func TestUnknownParametersAndFieldsAreRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	for _, path := range []string{
		"/executions?account=acme", "/executions?workflowid=x", "/plans?x=1", "/whoami?x=1",
		"/workflows/wf?x=1", "/openapi.json?x=1", "/executions/stream?x=1",
	} {
		r.get(path).refused(422, api.CodeInvalid)
	}
	r.put("/accounts/acme", `{"name":"n","plan":"free","x":1}`).refused(422, api.CodeInvalid)
	r.put("/accounts/acme", `{"name":"n","plan":"free","Plan":"pro"}`).refused(422, api.CodeInvalid)
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"n","triggers":[{"nodeId":"a","token":"x"}]}`).refused(422,
		api.CodeInvalid)
	for _, list := range []string{
		"/plans", "/accounts", "/workflows", "/executions", "/dead-letters", "/refusals", "/keys",
	} {
		r.get(list + "?accountId=acme").is(200)
	}
}

func TestEventsResume(t *testing.T) {
	t.Parallel()
	r := start(t)
	early := r.open("") // the connection breaks before the first event
	early.close()
	r.records(store.Batch{NewRecords: []store.Record{record(id(1))}})
	s := r.open("", func(q *http.Request) { q.Header.Set("Last-Event-ID", early.last) })
	if s.last != "" {
		t.Errorf("resumed, it begins with the id %s: broken now, what comes first would be missed",
			s.last)
	}
	s.next()
	s.close()
	r.records(store.Batch{NewRecords: []store.Record{record(id(2))}})
	r.records(store.Batch{
		NewRecords: []store.Record{
			record(id(3), func(rec *store.Record) { rec.WorkflowID = "other" }),
		},
	})
	again := r.open("?workflowId=wf", func(q *http.Request) {
		q.Header.Set("Last-Event-ID", s.last)
	})
	for again.next().ExecutionID != id(2) { // events of the last few seconds may be repeated
	}
	r.records(store.Batch{NewRecords: []store.Record{record(id(4))}})
	if got := again.next(); got.ExecutionID != id(4) {
		t.Errorf("then came %+v", got)
	}
	// The client's last event is so old that the executor no longer knows all changes since then.
	// The stream begins with a gap event, which tells the client that changes are missing.
	gap := r.open("", func(q *http.Request) { q.Header.Set("Last-Event-ID", "1000000") })
	if got := gap.block(); got != "event: gap\ndata: {}" {
		t.Errorf("it begins with %q", got)
	}
	// A client that resumes after the gap event does not receive another one.
	r.open("", func(q *http.Request) { q.Header.Set("Last-Event-ID", gap.last) }).next()
	for _, bad := range []string{"x", "-1", "0", "99999999999999999999"} {
		r.call("GET", "/executions/stream", "", func(q *http.Request) {
			q.Header.Set("Last-Event-ID", bad)
		}).refused(422, api.CodeInvalid)
	}
}

// In a browser, only pages of the configured origins may read responses. These pages need a token
// as well.
func TestOrigins(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) {
		c.AllowedOrigins = []string{"https://app.example.com"}
	})
	from := func(origin string, change ...func(*http.Request)) func(*http.Request) {
		return func(q *http.Request) {
			q.Header.Set("Origin", origin)
			for _, c := range change {
				c(q)
			}
		}
	}
	preflight := func(q *http.Request) { q.Header.Set("Access-Control-Request-Method", "GET") }
	a := r.call("OPTIONS", "/executions", "", with(""),
		from("https://app.example.com", preflight)).is(204)
	if a.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
		!strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Last-Event-ID") ||
		!strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "PATCH") ||
		a.header.Get("Access-Control-Allow-Credentials") != "" || len(a.body) != 0 {
		t.Errorf("preflight: %v", a.header)
	}
	if a := r.call("GET", "/plans", "",
		from("https://app.example.com")).is(200); a.header.Get("Access-Control-Allow-Origin") !=
		"https://app.example.com" || a.header.Get("Vary") == "" {
		t.Errorf("an answer: %v", a.header)
	}
	r.call("GET", "/plans", "", with(""), from("https://app.example.com")).refused(401,
		api.CodeUnauthorized)
	for _, origin := range []string{
		"https://evil.example", "https://app.example.com.evil.example", "http://app.example.com",
		"null", "", "HTTPS://APP.EXAMPLE.COM",
	} {
		if a := r.call("OPTIONS", "/executions", "", with(""),
			from(origin, preflight)); a.status != 401 ||
			a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: preflight %d, %v", origin, a.status, a.header)
		}
		if a := r.call("GET", "/plans", "",
			from(origin)).is(200); a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: %v", origin, a.header)
		}
	}
}

// When one executor confirms that it has created a key, another executor already accepts the key.
// When the first executor confirms that it has revoked the key, the other already refuses it.
func TestKeysHoldAtEveryExecutor(t *testing.T) {
	t.Parallel()
	here := start(t)
	there := registrytest.Start(t, here.nats.Connect(t))
	keyring := operate.NewKeyring(there.Editor, there.RegistryIndex, here.store, logtest.Discard())
	for i := range 30 {
		made := here.key("viewer", "")
		if by, known, err := keyring.CallerByKey(t.Context(), made.Secret); !known || err != nil ||
			by.ID != made.ID {
			t.Fatalf("%d: the other executor does not know a key that was made: %v", i, err)
		}
		here.delete("/keys/" + made.ID).is(204)
		if _, known, err := keyring.CallerByKey(t.Context(), made.Secret); known || err != nil {
			t.Fatalf("%d: the other executor takes a key that was revoked: %v", i, err)
		}
		if _, known, err := keyring.CallerByKeyID(t.Context(), made.ID); known || err != nil {
			t.Fatalf("%d: a session with it goes on: %v", i, err)
		}
	}
}

// The API refuses an empty value, which may come from an unset variable in a script. If it treated
// the value as absent, a bulk call with an empty account or workflow would apply to all accounts or
// workflows, and a key with an empty expiry would never expire.
func TestWhatIsEmptyIsNotAbsent(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	for path, bodies := range map[string][]string{
		"/keys": {
			`{"name":"n","role":"viewer","expiresAt":"0001-01-01T00:00:00Z"}`,
			`{"name":"n","role":"viewer","expiresAt":""}`,
		},
		"/dead-letters/dismiss": {
			`{"accountId":""}`, `{"workflowId":""}`, `{"reason":""}`,
			`{"until":"0001-01-01T00:00:00Z"}`,
		},
		"/dead-letters/requeue": {
			`{"accountId":""}`, `{"workflowId":""}`, `{"reason":""}`,
			`{"until":"0001-01-01T00:00:00Z"}`,
		},
		"/executions/replay": {
			`{"status":"rejected","accountId":""}`, `{"status":"rejected","workflowId":""}`,
			`{"status":"rejected","until":"0001-01-01T00:00:00Z"}`,
		},
	} {
		for _, body := range bodies {
			if a := r.post(path, body); a.status != 422 {
				t.Errorf("%s %s: %d %s", path, body, a.status, a.body)
			}
		}
	}
}
