package sender_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/textproto"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/sender"
)

// outsideVector is a third-party test vector, from the file that HOOKSTART_SENDER_VECTORS names.
// The file is not part of the repository.
type outsideVector struct {
	Provider   string            `json:"provider"`
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	Secret     string            `json:"secret"`
	Method     string            `json:"method"`
	URL        string            `json:"url"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
	BodyBase64 string            `json:"bodyBase64"`
	Valid      bool              `json:"valid"`
	At         *int64            `json:"at"`
	DeliveryID *string           `json:"deliveryId"`
	Reason     string            `json:"reason"`
	Legacy     bool              `json:"legacy"`
	Config     map[string]string `json:"config"`
	Expect     *struct {
		Status      int               `json:"status"`
		ContentType string            `json:"contentType"`
		Body        string            `json:"body"`
		JSON        json.RawMessage   `json:"json"`
		Headers     map[string]string `json:"headers"`
	} `json:"expect"`
}

// presetOf returns the ID of the preset for the vector's provider, or "" if there is none.
func (v *outsideVector) presetOf() string {
	switch v.Provider {
	case "gogs":
		return "gitea"
	case "bitbucket-datacenter":
		return "bitbucket"
	case "generic-hmac", "scalr", "x-twitter":
		return "hmac"
	}
	if _, ok := sender.LookupPreset(v.Provider); ok {
		return v.Provider
	}
	return ""
}

func (v *outsideVector) config() sender.Config {
	c := sender.Config{Preset: v.presetOf(), Settings: map[string]string{}}
	if v.Secret != "" {
		c.Secrets = []sender.Secret{{ID: "1", Text: v.Secret}}
	}
	preset, _ := sender.LookupPreset(c.Preset)
	for _, s := range preset.Settings {
		if s.Name == "toleranceSeconds" && v.At == nil {
			c.Settings[s.Name] = "0"
		}
	}
	switch v.Provider {
	case "generic-hmac":
		c.Settings["header"], c.Settings["hash"] = v.Config["header"], v.Config["algorithm"]
		c.Settings["encoding"], c.Settings["prefix"] = v.Config["encoding"], v.Config["prefix"]
	case "scalr":
		c.Settings["header"], c.Settings["hash"], c.Settings["message"] = "X-Signature", "sha1",
			"{body}{header:Date}"
	case "x-twitter":
		c.Settings["header"], c.Settings["prefix"], c.Settings["encoding"] =
			"X-Twitter-Webhooks-Signature", "sha256=", "base64"
	case "github":
		if v.Legacy {
			c.Settings["sha1"] = "accept"
		}
	case "meta":
		c.Settings["verifyToken"] = "any"
	}
	return c
}

func (v *outsideVector) request(t *testing.T) *sender.Request {
	t.Helper()
	r := &sender.Request{
		Method: v.Method,
		Header: map[string][]string{},
		URL:    v.URL,
		Body:   []byte(v.Body),
	}
	_, r.Query, _ = strings.Cut(v.URL, "?")
	for name, value := range v.Headers {
		r.Header[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
	}
	if v.BodyBase64 != "" {
		body, err := base64.StdEncoding.DecodeString(v.BodyBase64)
		if err != nil {
			t.Fatal(err)
		}
		r.Body = body
	}
	return r
}

// Every third-party test vector whose provider has a preset has the result that the file specifies.
func TestVectorsFromOutside(t *testing.T) {
	//nolint:forbidigo // other people's data, which stays where it is
	path := os.Getenv("HOOKSTART_SENDER_VECTORS")
	if path == "" {
		t.Skip("HOOKSTART_SENDER_VECTORS names no file")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []outsideVector
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, v := range vectors {
		if v.presetOf() == "" || (v.Kind == "handshake" && v.Provider == "x-twitter") {
			continue
		}
		tried++
		t.Run(v.Provider+"/"+v.Name, func(t *testing.T) { v.check(t) })
	}
	t.Logf("%d of %d vectors belong to a preset", tried, len(vectors))
}

func (v *outsideVector) check(t *testing.T) {
	now := time.Now()
	if v.At != nil {
		now = time.Unix(*v.At, 0)
	}
	config := v.config()
	if v.Kind == "handshake" {
		v.checkHandshake(t, config, now)
		return
	}
	s, err := sender.Compile(config)
	if err != nil {
		if !v.Valid {
			return // Compile refuses the sender, for example because its secret is empty
		}
		t.Fatal(err)
	}
	r := v.request(t)
	verdict := s.Verify(r, now)
	if verdict.OK() != v.Valid {
		t.Fatalf("%+v, want valid: %t", verdict, v.Valid)
	}
	if v.Reason == "timestamp" && verdict.Code != "signature_expired" {
		t.Errorf("%+v, want signature_expired", verdict)
	}
	if v.Valid && v.DeliveryID != nil {
		d := s.SignedDeliveryID(r, verdict)
		if d.ID == "" {
			d = s.UnsignedDeliveryID(r, verdict)
		}
		if d.ID != *v.DeliveryID {
			t.Errorf("delivery ID %q, want %q", d.ID, *v.DeliveryID)
		}
	}
}

// checkHandshake checks the result of a handshake. If the provider signs the handshake but the
// vector contains it unsigned, checkHandshake signs it first.
func (v *outsideVector) checkHandshake(t *testing.T, config sender.Config, now time.Time) {
	r := v.request(t)
	var s *sender.Sender
	switch config.Preset {
	case "discord":
		config, r = signDiscord(t, config, r, now)
	case "slack":
		config.Secrets = []sender.Secret{{Text: "secret"}}
	}
	delete(config.Settings, "toleranceSeconds")
	s, err := sender.Compile(config)
	if err != nil {
		t.Fatal(err)
	}
	if config.Preset == "slack" {
		signed, err := s.Sign(*r, now)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = signed.Header
	}
	h := s.Handshake(r, now)
	if h == nil || !h.Verdict.OK() {
		t.Fatalf("no handshake: %+v", h)
	}
	want := v.Expect
	if h.Response.Status != want.Status ||
		(want.ContentType != "" && h.Response.ContentType != want.ContentType) {
		t.Errorf("%+v, want %+v", h.Response, want)
	}
	body := want.Body
	if want.JSON != nil {
		var compact bytes.Buffer
		if err := json.Compact(&compact, want.JSON); err != nil {
			t.Fatal(err)
		}
		body = compact.String()
	}
	if string(h.Response.Body) != body {
		t.Errorf("body %s, want %s", h.Response.Body, body)
	}
	for name, value := range want.Headers {
		if h.Response.Header[textproto.CanonicalMIMEHeaderKey(name)] != value {
			t.Errorf("headers %v, want %v", h.Response.Header, want.Headers)
		}
	}
}
