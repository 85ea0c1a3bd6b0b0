package apiserver_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/webhook"
)

const senderAt = "/workflows/wf/triggers/node/sender"

// sealed returns a rig with an encryption key and a workflow "wf".
func sealed(t *testing.T, change ...func(*config, *http.Server)) *rig {
	t.Helper()
	r := startWithKeys(t, registrytest.NewKeys(t), change...)
	r.CreateWorkflow(t, "wf", "free", true)
	return r
}

// The public key of a preset that also takes secrets is shown, as any public key, and needs no key
// to seal it.
func TestAPublicKeyIsShown(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "wf", "free", true)
	const key = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
	r.put(senderAt, `{"preset":"standard-webhooks","secrets":["`+key+`"]}`).is(201)
	secrets := decode[api.Sender](r.get(senderAt).is(200)).Secrets
	if len(secrets) != 1 || secrets[0].PublicKey != key {
		t.Errorf("%+v", secrets)
	}
}

func TestSender(t *testing.T) {
	t.Parallel()
	r := sealed(t)
	const secret, next = "it's-a-secret-1234", "the-next-one-5678"
	presets := decode[api.List[api.SenderPreset]](r.get("/senders").is(200)).Items
	if len(presets) < 30 || presets[0].ID == "" || presets[0].Settings == nil {
		t.Errorf("%d presets", len(presets))
	}
	ids := make([]string, len(presets))
	for i, p := range presets {
		ids[i] = p.ID
	}
	r.wantPages("/senders?limit=7&accountId=on-free", ids, 7,
		pageOf(func(p api.SenderPreset) string { return p.ID }))
	if others := decode[api.List[api.SenderPreset]](
		r.get("/senders?accountId=none").is(200)).Items; others == nil || len(others) != 0 {
		t.Errorf("an account that does not exist: %+v", others)
	}
	r.get(senderAt).refused(404, api.CodeNotFound)
	r.get("/workflows/wf/triggers/none/sender").refused(404, api.CodeNotFound)

	put := r.put(senderAt, fmt.Sprintf(`{"preset":"github","secrets":[%q]}`, secret)).is(201)
	made := decode[api.Sender](put)
	if made.Preset != "github" || len(made.Secrets) != 1 || made.Secrets[0].Last4 != "1234" ||
		made.Secrets[0].ID == "" || time.Since(made.Secrets[0].SetAt) > time.Minute {
		t.Errorf("%+v", made)
	}
	r.put(senderAt, fmt.Sprintf(`{"preset":"github","secrets":[%q]}`, secret)).is(200)
	added := decode[api.Sender](r.post(senderAt+"/secrets",
		fmt.Sprintf(`{"secret":%q,"endOthersAfterSeconds":3600}`, next)).is(201))
	if len(added.Secrets) != 2 || added.Secrets[0].Last4 != "5678" ||
		!added.Secrets[0].ExpiresAt.IsZero() || added.Secrets[1].ExpiresAt.IsZero() {
		t.Errorf("%+v", added)
	}

	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.check(r.store.AddSenderActivity(t.Context(), "report", at, []store.SenderActivity{{
		WorkflowID:    "wf",
		NodeID:        "node",
		VerifiedAt:    at,
		HandshakeAt:   at.Add(time.Second),
		Deliveries:    5,
		WithoutID:     2,
		RefusedAt:     at.Add(2 * time.Second),
		RefusedCode:   "signature_invalid",
		RefusedReason: "no signature fits",
		Refused:       3,
	}}))
	shown := r.get(senderAt).is(200)
	got := decode[api.Sender](shown)
	if !got.LastVerifiedAt.Equal(at) || !got.LastHandshakeAt.Equal(at.Add(time.Second)) ||
		got.Deliveries != 5 || got.DeliveriesWithoutID != 2 ||
		got.LastRefusal == nil || got.LastRefusal.Reason != "no signature fits" ||
		got.LastRefusal.Count != 3 {
		t.Errorf("%+v", got)
	}
	trigger := r.get("/workflows/wf/triggers/node").is(200)
	if of := decode[api.Trigger](trigger).Sender; of == nil || of.Preset != "github" ||
		len(of.Secrets) != 2 || !of.LastVerifiedAt.Equal(at) {
		t.Errorf("of the trigger node: %+v", of)
	}
	if same := decode[api.Sender](r.put(senderAt,
		`{"preset":"github","settings":{"sha1":"accept"}}`).is(200)); same.Deliveries != 5 ||
		same.LastRefusal == nil {
		t.Errorf("with another setting: %+v", same)
	}
	viewer := r.key("viewer", "").Secret
	if of := decode[api.Sender](r.call(http.MethodGet, senderAt, "",
		with(viewer)).is(200)); of.Secrets[0].Last4 != "" {
		t.Errorf("a viewer sees %+v", of)
	}
	r.call(http.MethodDelete, senderAt, "", with(viewer)).refused(403, api.CodeForbidden)
	for _, answer := range [][]byte{put.body, shown.body, trigger.body} {
		if bytes.Contains(answer, []byte(secret)) || bytes.Contains(answer, []byte(next)) {
			t.Errorf("a secret is shown: %s", answer)
		}
	}

	r.delete(senderAt + "/secrets/" + added.Secrets[1].ID).is(204)
	r.delete(senderAt+"/secrets/"+added.Secrets[1].ID).refused(404, api.CodeNotFound)
	r.delete(senderAt+"/secrets/"+added.Secrets[0].ID).refused(409, api.CodeLastSecret)
	for n := range 3 {
		r.post(senderAt+"/secrets", fmt.Sprintf(`{"secret":"another-secret-%d"}`, n)).is(201)
	}
	r.post(senderAt+"/secrets", `{"secret":"a-fifth-secret"}`).refused(409, api.CodeTooManySecrets)
	r.delete(senderAt).is(204)
	r.delete(senderAt).refused(404, api.CodeNotFound)
	r.post(senderAt+"/secrets", `{"secret":"for-nobody"}`).refused(404, api.CodeNotFound)
	r.put(senderAt, fmt.Sprintf(`{"preset":"github","secrets":[%q]}`, secret)).is(201)
	if again := decode[api.Sender](r.get(senderAt).is(200)); !again.LastVerifiedAt.IsZero() ||
		again.Deliveries != 0 {
		t.Errorf("of a sender that is new: %+v", again)
	}
	r.check(r.store.AddSenderActivity(t.Context(), "another report", at, []store.SenderActivity{{
		WorkflowID:    "wf",
		NodeID:        "node",
		VerifiedAt:    at,
		RefusedAt:     at,
		RefusedCode:   "signature_invalid",
		RefusedReason: "no signature fits",
		Refused:       1,
		Deliveries:    1,
	}}))
	if other := decode[api.Sender](r.put(senderAt,
		`{"preset":"stripe","secrets":["whsec_of-stripe-1234"]}`).is(
		200,
	)); !other.LastVerifiedAt.IsZero() || other.LastRefusal != nil || other.Deliveries != 0 {
		t.Errorf("what was seen of GitHub is said of Stripe: %+v", other)
	}
	if log := r.log.String(); strings.Contains(log, secret) || strings.Contains(log, next) {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

func TestSendersThatAreRefused(t *testing.T) {
	t.Parallel()
	r := sealed(t)
	for name, test := range map[string]struct{ body, field string }{
		"no such preset":  {`{"preset":"nobody"}`, "preset"},
		"no secret":       {`{"preset":"stripe"}`, "secrets"},
		"no such setting": {`{"preset":"plain","settings":{"a":"b"}}`, "settings.a"},
		"undecodable":     {`{"preset":"standard-webhooks","secrets":["whsec_%%%%"]}`, "secrets"},
		"unknown member":  {`{"preset":"plain","secret":"x"}`, "secret"},
	} {
		p := r.put(senderAt, test.body).refused(422, api.CodeInvalid)
		if len(p.Errors) == 0 || p.Errors[0].Field != test.field ||
			strings.Contains(p.Detail, "%%%%") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p := r.post(senderAt+"/secrets", `{"secret":""}`).body; len(p) == 0 {
		t.Error("an empty secret")
	}
	r.put(senderAt, `{"preset":"plain"}`).is(201)
	r.post(senderAt+"/secrets", `{"secret":"x","endOthersAfterSeconds":-1}`).refused(422,
		api.CodeInvalid)
}

func TestSendersWithoutAKey(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "wf", "free", true)
	p := r.put(senderAt, `{"preset":"github","secrets":["it's-a-secret"]}`).refused(409,
		api.CodeSecretsKeyMissing)
	if !strings.Contains(p.Detail, "--secrets-key-file") {
		t.Errorf("%+v", p)
	}
	r.put(senderAt, `{"preset":"plain","settings":{"deliveryId":"ptr:/id"}}`).is(201)
}

// captureSecret simulates a provider that has sent a secret to the node of workflow wf: it stores
// text as that secret, encrypted with keys.
func (r *rig) captureSecret(keys *seal.Keys, text string) {
	r.t.Helper()
	box, err := keys.Seal([]byte(text), registry.CapturedSecretSealPurpose("wf", "node"))
	r.check(err)
	r.check(r.CaptureSenderSecret(r.t.Context(), "wf", "node", box))
}

// The API shows a captured secret only once: it first stores in the registry that the secret was
// shown, and later responses no longer contain the secret. The first response therefore contains
// the secret even if another process does not confirm this change of the registry.
func TestACapturedSecretIsShownThoughAProcessLags(t *testing.T) {
	t.Parallel()
	keys := registrytest.NewKeys(t)
	r := startWithKeys(t, keys,
		func(c *config, _ *http.Server) { c.ChangeTimeout = 3 * time.Second })
	r.CreateWorkflow(t, "wf", "free", true)
	r.put(senderAt, `{"preset":"notion"}`).is(201)
	r.captureSecret(keys, "secret_from-notion")
	r.lag(t)
	for _, want := range []string{"secret_from-notion", ""} {
		got := decode[api.Sender](r.get(senderAt).is(200))
		if len(got.Secrets) != 1 || got.Secrets[0].Captured != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// Notion sends its secret in its first request, and the operator has to see this secret. The API
// shows it once.
func TestACapturedSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	keys := registrytest.NewKeys(t)
	r := startWithKeys(t, keys)
	r.CreateWorkflow(t, "wf", "free", true)
	one, _ := registrytest.StartIngressWithKeys(t, r.nats.Connect(t), keys)
	r.put(senderAt, `{"preset":"notion"}`).is(201)
	capture := func(text string) { t.Helper(); r.captureSecret(keys, text) }
	capture("secret_from-notion")
	capture("secret_from-somebody-else")
	view, _ := one.Lookup("wf")
	if s := view.Workflow.Nodes[0].Sender; s == nil || s.WaitsForSecret() {
		t.Error("the ingress has no secret")
	}
	viewer := r.key("viewer", "").Secret
	for _, want := range []struct{ key, text string }{
		{viewer, ""}, {"", "secret_from-notion"}, {"", ""},
	} {
		var as []func(*http.Request)
		if want.key != "" {
			as = append(as, with(want.key))
		}
		got := decode[api.Sender](r.call(http.MethodGet, senderAt, "", as...).is(200))
		if len(got.Secrets) != 1 || got.Secrets[0].Captured != want.text {
			t.Errorf("%+v, want %q", got, want.text)
		}
	}
	// The audit log names the operator who has seen the secret.
	bucket, err := r.JetStream.Stream(t.Context(), registry.Stream)
	r.check(err)
	last, err := bucket.GetLastMsgForSubject(t.Context(),
		"$KV."+registry.Bucket+"."+registry.WorkflowPrefix+"wf")
	r.check(err)
	entry, audited, err := edit.DecodeAuditEntry(last.Header)
	if want := (edit.Actor{Kind: "admin-token", Name: "admin token"}); err != nil || !audited ||
		entry.Actor != want {
		t.Errorf("the audit has %+v, %v, %v", entry, audited, err)
	}
}

// A delivery ID is taken from the first of these places that has one: the fields that the sender
// signs, the headers in webhook.PriorityDeliveryIDHeaders, the sender's other fields, and all other
// headers that may contain a delivery ID.
func TestDeliveryIDsInForce(t *testing.T) {
	t.Parallel()
	r := sealed(t)
	inForce := func(put string) (headers, sources string) {
		t.Helper()
		if put != "" {
			r.put(senderAt, put)
		}
		of := decode[api.Trigger](r.get("/workflows/wf/triggers/node").is(200))
		if len(of.DeliveryIDSources) < 14 {
			t.Fatalf("%v", of.DeliveryIDSources)
		}
		return strings.Join(of.DeliveryIDHeaders[:4], " "),
			strings.Join(of.DeliveryIDSources[:4], " ")
	}
	const first, firstSources = "X-Webhook-Delivery-Id X-Partner-Delivery",
		"header:X-Webhook-Delivery-Id header:X-Partner-Delivery"
	for _, c := range []struct{ put, headers, sources string }{
		{
			"", first + " X-GitHub-Delivery X-Gitea-Delivery",
			firstSources + " header:X-GitHub-Delivery header:X-Gitea-Delivery",
		},
		{
			`{"preset":"stripe","secrets":["it's-a-secret"]}`,
			first + " X-GitHub-Delivery X-Gitea-Delivery",
			"ptr:/id " + firstSources + " header:X-GitHub-Delivery",
		},
		{
			`{"preset":"gitlab","secrets":["it's-a-secret"]}`,
			"Webhook-Id " + first + " Idempotency-Key",
			"header:Webhook-Id " + firstSources + " header:Idempotency-Key",
		},
		{
			`{"preset":"plain","settings":{"deliveryId":"header:X-Mine, form:id"}}`,
			first + " X-Mine X-GitHub-Delivery", firstSources + " header:X-Mine form:id",
		},
		{
			`{"preset":"cloudevents"}`, first + " X-GitHub-Delivery X-Gitea-Delivery",
			firstSources + " header:Ce-Source + header:Ce-Id ptr:/source + ptr:/id",
		},
	} {
		if headers, sources := inForce(c.put); headers != c.headers || sources != c.sources {
			t.Errorf("%s: %q, %q", c.put, headers, sources)
		}
	}
}

// The signature of a test request covers the Host header that is sent.
func TestSendTestSignsHost(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mac := hmac.New(sha256.New, []byte("s3cret-of-hmac"))
		_, _ = io.WriteString(mac, r.Host+".{}")
		if r.Header.Get("X-Signature") != hex.EncodeToString(mac.Sum(nil)) {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.Header().Set(webhook.HeaderExecutionID, "1")
	}))
	t.Cleanup(endpoint.Close)
	r := sealed(t, func(c *config, _ *http.Server) { c.PublicURL = endpoint.URL })
	r.put(senderAt, `{"preset":"hmac","secrets":["s3cret-of-hmac"],"settings":`+
		`{"header":"X-Signature","message":"{header:Host}.{body}"}}`)
	sent := decode[api.SentTest](
		r.post("/workflows/wf/triggers/node/send-test", `{"body":"{}"}`).is(200))
	if !sent.Success {
		t.Errorf("%+v", sent)
	}
}

// If a test request cannot be created, nothing is sent, and the response explains what to do.
func TestSendTestRefused(t *testing.T) {
	t.Parallel()
	r := sealed(t)
	const at = "/workflows/wf/triggers/node/send-test"
	r.post("/workflows/wf/triggers/none/send-test", "").refused(404, api.CodeNotFound)
	r.post(at, "").refused(409, api.CodeSamplePayloadMissing)
	r.post(at, `{"body":"!","bodyEncoding":"base64"}`).refused(422, api.CodeInvalid)
	r.post(at, `{"body":"1","headers":{"A b":["c"]}}`).refused(422, api.CodeInvalid)
	r.post(at, `{"body":"1","headers":{"A":["c\r\nd"]}}`).refused(422, api.CodeInvalid)
	r.post(at, `{"body":"1","contentType":"a\nb"}`).refused(422, api.CodeInvalid)
	for _, c := range []struct{ put, says string }{
		{
			`{"preset":"discord","secrets":["d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"]}`, "Only Discord can sign",
		},
		{
			`{"preset":"standard-webhooks","secrets":["whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="]}`, "hookstart trigger rerun",
		},
		{`{"preset":"notion","secrets":[]}`, "no secret yet"},
	} {
		r.put(senderAt, c.put)
		if detail := r.post(at, `{"body":"{}"}`).refused(409,
			api.CodeSenderCannotSign).Detail; !strings.Contains(detail, c.says) {
			t.Errorf("%s: %s", c.put, detail)
		}
	}
}
