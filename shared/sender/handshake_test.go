package sender_test

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// signed returns a request as the preset's provider would send it.
func signed(t *testing.T, c sender.Config, contentType, body string) *sender.Request {
	t.Helper()
	r := sender.Request{
		Method: "POST",
		Header: map[string][]string{"Content-Type": {contentType}},
		Query:  "token=t",
		URL:    testURL,
		Body:   []byte(body),
	}
	if c.Preset == "discord" {
		_, made := signDiscord(t, c, &r, noon)
		made.Header["Content-Type"] = []string{contentType}
		return made
	}
	s, err := sender.Sign(c, r, noon)
	if err != nil {
		t.Fatal(err)
	}
	r.Header, r.Query, r.Body = s.Header, s.Query, s.Body
	return &r
}

func configOf(t *testing.T, preset string) sender.Config {
	t.Helper()
	for _, g := range signers() {
		if g.preset == preset {
			return g.config(g.secret("one"))
		}
	}
	t.Fatalf("no signer of %s", preset)
	return sender.Config{}
}

func TestHandshakes(t *testing.T) {
	zoom := hexOf(mac(sha256New, []byte(plainSecret("one")), "tok"))
	for _, c := range []struct {
		preset, contentType, body string
		status                    int
		responseType, response    string
	}{
		{
			"slack", "application/json", `{"type":"url_verification","challenge":"c<h>"}`, 200,
			"text/plain", "c<h>",
		},
		{"slack", "application/x-www-form-urlencoded", `ssl_check=1&token=x`, 200, "", ""},
		{
			"zoom", "application/json",
			`{"event":"endpoint.url_validation","payload":{"plainToken":"tok"}}`, 200,
			"application/json", `{"encryptedToken":"` + zoom + `","plainToken":"tok"}`,
		},
		{"discord", "application/json", `{"type":1}`, 200, "application/json", `{"type":1}`},
		{"discord", "application/json", `{"type":0}`, 204, "", ""},
		{"notion", "application/json", `{"verification_token":"secret_x"}`, 200, "", ""},
		{"intercom", "application/json", `{"topic":"ping"}`, 200, "", ""},
		// These requests are not handshakes: they start executions.
		{"slack", "application/json", `{"type":"event_callback","challenge":"x"}`, 0, "", ""},
		{"slack", "application/json", `{"type":"url_verification"}`, 0, "", ""},
		{
			"slack", "application/json",
			`{"type":"url_verification","challenge":"` + strings.Repeat("x", 5000) + `"}`, 0, "",
			"",
		},
		{
			"discord", "application/json", `{"type":1,"event":{"type":"ENTITLEMENT_CREATE"}}`, 0,
			"", "",
		},
		{"discord", "application/json", `{"type":2}`, 0, "", ""},
		{"github", "application/json", `{"type":"url_verification","challenge":"x"}`, 0, "", ""},
	} {
		config := configOf(t, c.preset)
		s := compile(t, config)
		r := signed(t, config, c.contentType, c.body)
		h := s.Handshake(r, noon)
		if h == nil {
			if c.status != 0 {
				t.Errorf("%s %s: no handshake", c.preset, c.body)
			}
			continue
		}
		if !h.Verdict.OK() || h.Response.Status != c.status ||
			h.Response.ContentType != c.responseType ||
			string(h.Response.Body) != c.response || h.CapturedSecret != "" {
			t.Errorf("%s %s: %+v", c.preset, c.body, h)
		}
		forged := *r
		forged.Header = map[string][]string{"Content-Type": {c.contentType}}
		if h := s.Handshake(&forged, noon); h == nil ||
			h.Verdict.Code != webhook.CodeSignatureMissing || h.Response.Body != nil {
			t.Errorf("%s %s, not signed: %+v", c.preset, c.body, h)
		}
	}
}

func TestHandshakesByQueryAndMethod(t *testing.T) {
	meta, graph, events := compile(t, configOf(t, "meta")), compile(t, configOf(t, "msgraph")),
		compile(t, sender.Config{Preset: "cloudevents"})
	for _, c := range []struct {
		s             *sender.Sender
		method, query string
		header        string
		code          webhook.Code
		response      string // "-" means that it is not a handshake
	}{
		{meta, "GET", "hub.mode=subscribe&hub.verify_token=v&hub.challenge=1%2B2", "", "", "1+2"},
		{
			meta, "GET", "hub.mode=subscribe&hub.verify_token=w&hub.challenge=12", "",
			webhook.CodeSignatureInvalid, "",
		},
		{meta, "GET", "hub.mode=subscribe&hub.challenge=12", "", webhook.CodeSignatureInvalid, ""},
		{meta, "GET", "hub.mode=unsubscribe&hub.verify_token=v&hub.challenge=12", "", "", "-"},
		{meta, "POST", "hub.mode=subscribe&hub.verify_token=v&hub.challenge=12", "", "", "-"},
		{graph, "POST", "token=t&validationToken=Validation%3a+a%26b", "", "", "Validation: a&b"},
		{graph, "POST", "token=t", "", "", "-"},
		{graph, "GET", "validationToken=a", "", "", "-"},
		{events, "OPTIONS", "", "example.com", "", ""},
		{events, "OPTIONS", "", "", "", "-"},
		{events, "POST", "", "example.com", "", "-"},
	} {
		r := &sender.Request{
			Method: c.method,
			Query:  c.query,
			Header: map[string][]string{
				"Webhook-Request-Origin": {c.header},
				"Webhook-Request-Rate":   {"120"},
			},
		}
		h := c.s.Handshake(r, noon)
		if is := c.method != "POST" && h != nil; sender.IsNonPOSTHandshake(r) != is {
			t.Errorf("%s %s: is a handshake of any preset: %t", c.method, c.query, !is)
		}
		if h == nil {
			if c.response != "-" {
				t.Errorf("%s %s: no handshake", c.method, c.query)
			}
			continue
		}
		if h.Verdict.Code != c.code || string(h.Response.Body) != c.response {
			t.Errorf("%s %s: %+v", c.method, c.query, h)
		}
		if c.s == events &&
			(h.Response.Header["Webhook-Allowed-Origin"] != "example.com" ||
				h.Response.Header["Webhook-Allowed-Rate"] != "120" ||
				h.Response.Header["Allow"] != "POST") {
			t.Errorf("%+v", h.Response.Header)
		}
	}
	if m := meta.NonPOSTHandshakeMethods(); len(m) != 1 || m[0] != "GET" {
		t.Errorf("Meta's methods: %v", m)
	}
	if m := events.NonPOSTHandshakeMethods(); len(m) != 1 || m[0] != "OPTIONS" {
		t.Errorf("CloudEvents' methods: %v", m)
	}
	if m := compile(t, configOf(t, "intercom")).NonPOSTHandshakeMethods(); len(m) != 1 ||
		m[0] != "HEAD" {
		t.Errorf("Intercom's methods: %v", m)
	}
	if m := graph.NonPOSTHandshakeMethods(); len(m) != 0 {
		t.Errorf("Graph's methods: %v", m)
	}
}

// Notion transmits its secret in a handshake. A sender that has no secret yet accepts this
// handshake and refuses all other requests. A sender whose secret has expired accepts no new secret
// in this way.
func TestCapture(t *testing.T) {
	s := compile(t, sender.Config{Preset: "notion"})
	if !s.WaitsForSecret() || !s.Verifies() {
		t.Error("Notion without a secret waits for one")
	}
	token := &sender.Request{
		Method: "POST",
		Header: map[string][]string{},
		Body:   []byte(`{"verification_token":"secret_x"}`),
	}
	if h := s.Handshake(token, noon); h == nil || !h.Verdict.OK() ||
		h.CapturedSecret != "secret_x" || h.Response.Status != 200 {
		t.Errorf("%+v", h)
	}
	event := &sender.Request{
		Method: "POST",
		Header: map[string][]string{},
		Body:   []byte(`{"id":"1"}`),
	}
	if h := s.Handshake(event, noon); h != nil {
		t.Errorf("%+v", h)
	}
	if v := s.Verify(event, noon); v.Code != webhook.CodeSignatureMissing {
		t.Errorf("%+v", v)
	}
	ended := compile(t, sender.Config{
		Preset:  "notion",
		Secrets: []sender.Secret{{Text: "secret_x", ExpiresAt: noon}},
	})
	if ended.WaitsForSecret() {
		t.Error("a sender whose secret has ended takes another one from anybody")
	}
}

func TestReplies(t *testing.T) {
	for _, c := range []struct {
		preset, body string
		status       int // 0 means the ordinary response
		response     string
	}{
		{"github", `{}`, 0, ""},
		{"slack", `{}`, 200, ""},
		{"twilio", `a=1`, 200, ""},
		{"discord", `{"type":2,"id":"1"}`, 200, `{"type":5}`},
		{"discord", `{"type":1,"event":{"type":"X"}}`, 204, ""},
	} {
		a := compile(t, configOf(t, c.preset)).Response(&sender.Request{Body: []byte(c.body)})
		if a == nil {
			if c.status != 0 {
				t.Errorf("%s %s: the default response", c.preset, c.body)
			}
		} else if a.Status != c.status || string(a.Body) != c.response {
			t.Errorf("%s %s: %+v", c.preset, c.body, a)
		}
	}
}

func TestWhatIsSpecial(t *testing.T) {
	if s := compile(t, configOf(t, "gitlab")); !s.GivesUpOn4xx() ||
		s.SecretHeaders()[0] != "X-Gitlab-Token" {
		t.Error("GitLab")
	}
	if s := compile(t, configOf(t, "header")); s.GivesUpOn4xx() ||
		s.SecretHeaders()[0] != "X-Api-Key" || s.HandshakeNeedsBody() || s.DeliveryIDMayBeInBody() {
		t.Error("header")
	}
	if s := compile(t, configOf(t, "slack")); !s.HandshakeNeedsBody() ||
		!s.DeliveryIDMayBeInBody() || s.NeedsPublicURL() || s.Preset() != "slack" {
		t.Error("slack")
	}
	if s := compile(t, configOf(t, "twilio")); !s.NeedsPublicURL() {
		t.Error("twilio")
	}
	for preset, want := range map[string]string{
		"basic":  `Basic realm="webhook", charset="UTF-8"`,
		"bearer": `Bearer realm="webhook"`,
		"svix":   `Webhook-Signature sender="standard-webhooks"`,
	} {
		if got := compile(t, configOf(t, preset)).WWWAuthenticate(); got != want {
			t.Errorf("%s: %s", preset, got)
		}
	}
}
