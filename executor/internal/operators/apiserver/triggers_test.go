package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

func TestTrigger(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	r.workflow("wf", "acme", "a")
	a := r.get("/workflows/wf/triggers/a").is(200)
	trigger := decode[api.Trigger](a)
	if trigger.NodeID != "a" || trigger.Name != "Node a" ||
		trigger.URL != "https://hooks.example.com/webhooks/wf?token="+trigger.Token ||
		trigger.RateLimit != (api.RateLimit{Requests: 600, WindowSeconds: 60}) ||
		trigger.MaxBodyBytes != 102400 ||
		!slices.Equal(trigger.DeliveryIDHeaders, []string{
			"X-Webhook-Delivery-Id", "X-Partner-Delivery", "X-GitHub-Delivery", "X-Gitea-Delivery",
			"X-Forgejo-Delivery", "X-Gogs-Delivery", "Webhook-Id",
			"Svix-Id", "Idempotency-Key", "X-Shopify-Webhook-Id", "Linear-Delivery",
			"X-Atlassian-Webhook-Identifier", "X-Request-UUID", "I-Twilio-Idempotency-Token",
		}) {
		t.Errorf("trigger %s", a.body)
	}
	var members map[string]json.RawMessage
	r.check(json.Unmarshal(a.body, &members))
	var tokens []map[string]any
	r.check(json.Unmarshal(members["tokens"], &tokens))
	if string(members["samplePayload"]) != "null" || len(tokens) != 1 ||
		tokens[0]["token"] != trigger.Token {
		t.Errorf("trigger %s", a.body)
	}
	if last, ok := tokens[0]["lastUsedAt"]; !ok || last != nil {
		t.Errorf("a token that was never used: %v", tokens[0])
	}
	if _, ok := tokens[0]["expiresAt"]; ok {
		t.Errorf("a token that works for ever: %v", tokens[0])
	}

	// The workflow's rate limit takes precedence over the plan's limit. The response shows when the
	// token was last used.
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"n","rateLimit":{"requests":3,"windowSeconds":7},"triggers":[{"nodeId":"a"}]}`).is(200)
	used := record(id(1), func(rec *store.Record) {
		rec.TokenID = registry.HashToken(trigger.Token).ID()
	})
	r.records(store.Batch{NewRecords: []store.Record{used}})
	after := r.trigger("wf", "a")
	if after.RateLimit != (api.RateLimit{Requests: 3, WindowSeconds: 7}) {
		t.Errorf("rate limit %+v", after.RateLimit)
	}
	if last := after.Tokens[0].LastUsedAt; last == nil || !last.Equal(used.AcceptedAt) {
		t.Errorf("last used %v", last)
	}
}

func TestTriggerTellsWhatIngressesWereTold(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.PublicURL = "" })
	r.account("acme", "free")
	r.workflow("wf", "acme", "a")
	if got := r.trigger("wf", "a").URL; !strings.HasPrefix(got,
		"http://127.0.0.1:8080/webhooks/wf?token=hst_") {
		t.Errorf("without an ingress the URL is %s", got)
	}
	announce := func(settings *consistency.IngressSettings) {
		t.Helper()
		before := len(r.Membership.IngressSettings())
		a, err := consistency.StartHeartbeat(t.Context(), r.nc, r.Follower, consistency.RoleIngress,
			settings, consistency.ProcessInfo{}, logtest.Discard())
		r.check(err)
		t.Cleanup(a.Stop)
		eventually(t, func() bool { return len(r.Membership.IngressSettings()) > before })
	}
	announce(&consistency.IngressSettings{
		MaxBodyBytes:      200_000,
		DeliveryIDHeaders: []string{"X-Webhook-Delivery-Id", "X-Mine"},
	})
	trigger := r.trigger("wf", "a")
	if !strings.HasPrefix(trigger.URL, "http://127.0.0.1:8080/") ||
		trigger.MaxBodyBytes != 200_000 ||
		!slices.Equal(trigger.DeliveryIDHeaders, []string{"X-Webhook-Delivery-Id", "X-Mine"}) {
		t.Errorf("of one ingress: %+v", trigger)
	}
	announce(&consistency.IngressSettings{
		MaxBodyBytes:      50_000,
		PublicURL:         "https://in.example.com/",
		DeliveryIDHeaders: []string{"X-Webhook-Delivery-Id", "X-Mine"},
	})
	trigger = r.trigger("wf", "a")
	if trigger.URL != "https://in.example.com/webhooks/wf?token="+trigger.Token ||
		trigger.MaxBodyBytes != 50_000 {
		t.Errorf("of two ingresses: %+v", trigger)
	}
}

func TestSamplePayload(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "a")
	const at = "/workflows/wf/triggers/a/sample-payload"
	for _, sample := range []string{
		`{"a":[1,2,{"b":null}]}`, `null`, `7`, `-0.0e+99`, `"text"`, `{"same":1,"same":2}`,
		`12345678901234567890123456789`,
		"{ \"kept\" :\t[ 1 ,\n2 ] }", `"<&>` + "\u2028" + ` \ud800 \u0000"`, "\"\U0001F600\"",
		long(512 << 10),
		strings.Repeat("[", 51_000) + strings.Repeat("]", 51_000),
		strings.Repeat(`{"a":`, 51_000) + "1" + strings.Repeat("}", 51_000),
	} {
		for _, contentType := range []string{
			"application/json", "application/x-www-form-urlencoded", "",
		} {
			a := r.call("PUT", at, sample, func(q *http.Request) {
				q.Header.Set("Content-Type", contentType)
			}).is(200)
			for _, a := range []answer{a, r.get("/workflows/wf/triggers/a").is(200)} {
				if !bytes.Contains(a.body, []byte(`,"samplePayload":`+sample+`}`)) {
					t.Errorf("%s: %.300s is not there as it was", a.call, sample)
				}
			}
		}
	}
	r.put(at, " \n7\t").is(200)
	if got := r.trigger("wf", "a").SamplePayload; string(got) != "7" {
		t.Errorf("with white space around: %q", got)
	}

	for _, c := range []struct{ body, problem string }{
		{"", "required"},
		{" ", "JSON"},
		{"{", "JSON"},
		{"{}{}", "JSON"},
		{"nul", "JSON"},
		{"\"\xff\"", "JSON"},
		{"\ufeff{}", "JSON"},
		{long(512<<10 + 1), "at most"},
	} {
		r.wantInvalid(r.put(at, c.body), "body", c.problem)
	}
	r.put(at, long(1<<20)).refused(422, api.CodeInvalid)
	r.put(at, long(1<<20+1)).refused(413, api.CodeBodyTooLarge)
	if got := r.trigger("wf", "a").SamplePayload; string(got) != "7" {
		t.Errorf("a refused one is there: %q", got)
	}
	r.put("/workflows/wf/triggers/b/sample-payload", "{}").refused(404, api.CodeNotFound)
	r.put("/workflows/x/triggers/a/sample-payload", "{}").refused(404, api.CodeNotFound)
}

func TestRotation(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "a")
	const at = "/workflows/wf/triggers/a/rotate-token"
	opens := func(token string) bool {
		view, _ := r.RegistryIndex.Lookup("wf")
		for _, known := range view.Workflow.Nodes[0].Tokens {
			if known.Hash == registry.HashToken(token) &&
				(known.ExpiresAt == 0 || known.ExpiresAt > time.Now().UnixNano()) {
				return true
			}
		}
		return false
	}
	first := r.trigger("wf", "a").Token
	r.records(store.Batch{
		NewRecords: []store.Record{record(id(1), func(rec *store.Record) {
			rec.TokenID = registry.HashToken(first).ID()
		})},
	})

	second := decode[api.Trigger](r.post(at, `{"keepOldForSeconds":3600}`).is(200))
	if second.Token == first || len(second.Tokens) != 2 || second.Tokens[0].Token != second.Token ||
		second.Tokens[1].Token != first ||
		!strings.HasSuffix(second.URL, second.Token) || !opens(first) || !opens(second.Token) {
		t.Errorf("rotated with grace: %+v", second)
	}
	if left := time.Until(second.Tokens[1].ExpiresAt); left < 3500*time.Second ||
		left > 3600*time.Second || !second.Tokens[0].ExpiresAt.IsZero() {
		t.Errorf("the old one works for %s", left)
	}
	if second.Tokens[0].LastUsedAt != nil || second.Tokens[1].LastUsedAt == nil {
		t.Errorf("last uses: %+v", second.Tokens)
	}
	for i, body := range []string{"", "{}", `{"keepOldForSeconds":0}`} {
		next := decode[api.Trigger](r.post(at, body).is(200))
		if len(next.Tokens) != 1 || opens(second.Token) || opens(first) || !opens(next.Token) {
			t.Errorf("rotated without grace (%d): %+v", i, next)
		}
		second = next
	}
	for i := 1; i < edit.MaxTokensPerNode; i++ {
		r.post(at, `{"keepOldForSeconds":60}`).is(200)
	}
	before := r.trigger("wf", "a")
	r.post(at, `{"keepOldForSeconds":60}`).refused(409, api.CodeTooManyTokens)
	r.post(at, ``).is(200)
	if opens(before.Token) {
		t.Error("the old ones did not end")
	}
	for _, c := range []struct{ body, field, problem string }{
		{`{"keepOldForSeconds":-1}`, "keepOldForSeconds", "0"},
		{`{"keepOldForSeconds":2592001}`, "keepOldForSeconds", "2592000"},
		{`{"keepOldForSeconds":1e300}`, "keepOldForSeconds", "2592000"},
		{`{"keepOldForSeconds":"1"}`, "keepOldForSeconds", "integer"},
		{`{"keepOldForSeconds":1.5}`, "keepOldForSeconds", "integer"},
		{`{"seconds":1}`, "seconds", "unexpected"},
		{`{`, "body", "unexpected end"},
		{`[]`, "body", "object"},
	} {
		r.wantInvalid(r.post(at, c.body), c.field, c.problem)
	}
	r.post("/workflows/wf/triggers/b/rotate-token", "").refused(404, api.CodeNotFound)
}

// lag simulates a running process that never confirms a change of the registry. The process exits
// when leave is called or the test ends.
func (r *rig) lag(t *testing.T) (leave func()) {
	t.Helper()
	data, err := proto.Marshal(&hookstartv1.Presence{
		InstanceId: "stuck",
		Role:       consistency.RoleIngress,
		Serving:    true,
		Ingress:    &hookstartv1.IngressSettings{},
	})
	r.check(err)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			_ = r.nc.Publish("hookstart.presence", data)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	leave = sync.OnceFunc(func() {
		close(done)
		<-ended
		if data, err := proto.Marshal(&hookstartv1.Presence{
			InstanceId: "stuck",
			Leaving:    true,
		}); err == nil {
			_ = r.nc.Publish("hookstart.presence", data)
		}
	})
	t.Cleanup(leave)
	eventually(t, func() bool { return len(r.Membership.IngressSettings()) > 0 })
	return leave
}

// A change is completed even if the client disconnects during the call.
func TestAChangeGoesOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	begun := make(chan context.Context, 1)
	r := start(t, func(c *config, _ *http.Server) {
		c.ChangeTimeout = time.Minute
		c.wrap = func(api http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				begun <- request.Context()
				api.ServeHTTP(w, request)
			})
		}
	})
	r.CreateWorkflow(t, "wf", "free", false)
	confirm := r.lag(t)
	ctx, goAway := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		r.server.URL+"/api/v1/workflows/wf/activate", nil)
	r.check(err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	gone := make(chan error, 1)
	go func() {
		response, err := r.server.Client().Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		gone <- err
	}()
	client := <-begun
	eventually(t, func() bool { // stored, but not confirmed
		w, _ := r.RegistryIndex.Workflow("wf")
		return w.Record.Active
	})
	goAway()
	if err := <-gone; err == nil {
		t.Error("it was confirmed at once")
	}
	<-client.Done()
	confirm()
	eventually(t, func() bool {
		return strings.Contains(r.log.String(), "operation=activate-workflow")
	})
	if !strings.Contains(r.log.String(), "operation=activate-workflow status=200") {
		t.Error("it was broken off")
	}
}

func TestChangesThatAreNotConfirmed(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *config, _ *http.Server) { c.ChangeTimeout = 3 * time.Second })
	before := r.CreateWorkflow(t, "wf", "free", false)
	r.lag(t)
	for _, a := range []answer{
		r.put("/accounts/on-free", `{"name":"new","plan":"free"}`),
		r.put("/accounts/on-free", `{"name":"new","plan":"free"}`),
		r.post("/workflows/wf/activate", ""),
	} {
		p := a.refused(503, api.CodeNotConfirmed)
		if !strings.Contains(p.Detail, "stored") || !strings.Contains(p.Detail, "ingress stuck") ||
			!strings.Contains(p.Detail, "Repeat") {
			t.Errorf("%s: detail %q", a.call, p.Detail)
		}
	}
	if got := decode[api.Account](r.get("/accounts/on-free").is(200)); got.Name != "new" {
		t.Errorf("it is not stored: %+v", got)
	}
	// The rotation succeeds, but one process does not confirm it (see lag). The response tells the
	// client not to repeat the call, because a second rotation would replace the new token.
	a := r.post("/workflows/wf/triggers/node/rotate-token", "").is(503)
	if p := decode[api.Problem](a); p.Code != api.CodeNotConfirmed || p.Retryable ||
		p.RetryAfter != 0 || !strings.Contains(p.Detail, "Do not repeat") {
		t.Errorf("rotation: %s", a.body)
	}
	if r.trigger("wf", "node").Token == before {
		t.Error("the new token is not shown")
	}
	r.delete("/workflows/wf").refused(503, api.CodeNotConfirmed)
	r.get("/workflows/wf").refused(404, api.CodeNotFound)
	// The process has not confirmed the deletion of the workflow either. The workflow's secrets
	// must be deleted nevertheless, because a client that no longer finds the workflow will not
	// repeat the call.
	secrets, err := r.JetStream.KeyValue(t.Context(), registry.SecretsBucket)
	r.check(err)
	if _, err := secrets.Get(t.Context(), "wf.node"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("its secrets are there: %v", err)
	}
}
