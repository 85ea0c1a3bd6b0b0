package sender_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

var noon = time.Unix(1_790_000_000, 0)

func compile(t testing.TB, c sender.Config) *sender.Sender {
	t.Helper()
	s, err := sender.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every preset that verifies requests must have a signer in this package, so that nobody adds a
// preset whose signatures are not tested.
func TestEveryPresetHasVectors(t *testing.T) {
	have := map[string]bool{}
	for _, g := range signers() {
		p, ok := sender.LookupPreset(g.preset)
		if !ok {
			t.Errorf("a signer of no preset: %s", g.name)
		}
		have[p.ID] = true
	}
	for _, p := range sender.Presets() {
		if p.Verifies && !have[p.ID] {
			t.Errorf("the preset %s has no vectors: add a signer", p.ID)
		}
	}
}

// A request that the provider has signed passes verification. Verification fails if the request was
// changed or signed with another secret, if its time is too far in the past or future, or if it has
// no signature.
func TestVerify(t *testing.T) {
	for _, g := range signers() {
		t.Run(g.name, func(t *testing.T) {
			key, other := g.secret("one"), g.secret("two")
			asymmetric := key == other
			s := compile(t, g.config(key))
			check := func(what string, r *sender.Request, at time.Time, want webhook.Code) {
				t.Helper()
				v := s.Verify(r, at)
				if v.Code != want || (v.Reason == "") != v.OK() {
					t.Errorf("%s: %+v, want %q", what, v, want)
				}
				if strings.Contains(v.Reason, key) {
					t.Errorf("%s: the reason has the secret: %s", what, v.Reason)
				}
			}
			body := `{"id":"evt_1","type":"x"}`
			check("right", g.request(key, body, noon), noon, "")
			check("not ASCII", g.request(key, "{\"a\":\"ä\xff\"}", noon), noon, "")
			nul := webhook.Code("")
			if g.isDigest {
				nul = webhook.CodeSignatureInvalid
			}
			check("NUL", g.request(key, "{\"a\":\"\x00\"}", noon), noon, nul)

			naked := g.request(key, body, noon)
			naked.Header = map[string][]string{"Content-Type": naked.Header["Content-Type"]}
			naked.Body = []byte(body)
			check("not signed", naked, noon, webhook.CodeSignatureMissing)
			if !asymmetric {
				check("another's secret", g.request(other, body, noon), noon,
					webhook.CodeSignatureInvalid)
			}
			if !g.uncovers {
				changed := g.request(key, body, noon)
				changed.Body = append(slices.Clone(changed.Body), 'x')
				check("changed body", changed, noon, webhook.CodeSignatureInvalid)
			}
			if g.url != "" {
				moved := g.request(key, body, noon)
				moved.URL += "x"
				check("changed URL", moved, noon, webhook.CodeSignatureInvalid)
				moved.URL = ""
				check("no public URL", moved, noon, webhook.CodeSignatureInvalid)
			}
			if !g.timed {
				return
			}
			for _, edge := range []time.Duration{-300 * time.Second, 300 * time.Second} {
				check("at the edge", g.request(key, body, noon), noon.Add(edge), "")
			}
			check("late", g.request(key, body, noon), noon.Add(301*time.Second),
				webhook.CodeSignatureExpired)
			check("early", g.request(key, body, noon), noon.Add(-301*time.Second),
				webhook.CodeSignatureExpired)
			if !asymmetric {
				check("late and wrong", g.request(other, body, noon), noon.Add(time.Hour),
					webhook.CodeSignatureInvalid)
			}
			off := g.config(key)
			off.Settings = maps.Clone(off.Settings)
			if off.Settings == nil {
				off.Settings = map[string]string{}
			}
			off.Settings["toleranceSeconds"] = "0"
			if v := compile(t, off).Verify(g.request(key, body, noon),
				noon.Add(1000*time.Hour)); !v.OK() {
				t.Errorf("without a window: %+v", v)
			}
		})
	}
}

// A request is refused if its signature header contains two different timestamps, or one with
// leading zeros, even if the signature matches, because a provider's library may interpret such
// timestamps differently.
func TestOddTimes(t *testing.T) {
	const body = "{}"
	s := compile(t, sender.Config{Preset: "stripe", Secrets: []sender.Secret{{Text: "secret"}}})
	at := itoa(noon.Unix())
	sign := func(at string) string { return hexOf(mac(sha256New, []byte("secret"), at, ".", body)) }
	for header, want := range map[string]bool{
		"t=" + at + ",v1=" + sign(at):                  true,
		"t=" + at + ",v1=" + sign(at) + ",t=" + at:     true,
		"t=" + at + ",v1=" + sign(at) + ",t=1":         false,
		"t=1,t=" + at + ",v1=" + sign(at):              false,
		"t=0" + at + ",v1=" + sign("0"+at):             false,
		"t=" + at + ",v1=" + sign(at) + ",t=2,t=" + at: false,
	} {
		if v := s.Verify(&sender.Request{
			Header: map[string][]string{"Stripe-Signature": {header}},
			Body:   []byte(body),
		}, noon); v.OK() != want {
			t.Errorf("%s: %+v", header, v)
		}
	}
}

// During a rotation, all secrets work, in any order, except for those that have expired.
func TestRotation(t *testing.T) {
	for _, g := range signers() {
		one, two := g.secret("one"), g.secret("two")
		if one == two {
			continue
		}
		c := g.config(two, one)
		c.Secrets[1].ExpiresAt = noon
		s := compile(t, c)
		for _, v := range []struct {
			key string
			at  time.Time
			id  string
		}{{two, noon, "0"}, {one, noon.Add(-1), "1"}, {one, noon, ""}} {
			if got := s.Verify(g.request(v.key, "{}", v.at), v.at); got.SecretID != v.id ||
				got.OK() != (v.id != "") {
				t.Errorf("%s, secret %s: %+v", g.name, v.id, got)
			}
		}
	}
}

// Sign and the tests' own signer produce the same signatures, for everything that Sign supports.
func TestSign(t *testing.T) {
	for _, g := range signers() {
		t.Run(g.name, func(t *testing.T) {
			key := g.secret("one")
			c := g.config(key)
			r := sender.Request{
				Method: "POST",
				URL:    g.url,
				Query:  "token=t",
				Header: map[string][]string{"Content-Type": {"application/json"}, "X-More": {"x"}},
				Body:   []byte(`{"a":1}`),
			}
			if g.url == "" {
				r.URL = testURL
			}
			signed, err := sender.Sign(c, r, noon)
			if g.preset == "discord" || g.preset == "sendgrid" || strings.HasPrefix(key, "whpk_") {
				if !errors.Is(err, sender.ErrPublicKeyOnly) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(signed.Query, "token=t&bodySHA256=") {
				r.URL = strings.Replace(r.URL, "token=t", signed.Query, 1)
			}
			if v := compile(t, c).Verify(&sender.Request{
				Method: "POST",
				URL:    r.URL,
				Query:  signed.Query,
				Header: signed.Header,
				Body:   signed.Body,
			}, noon); !v.OK() {
				t.Errorf("%+v of %+v", v, signed)
			}
			if len(r.Header) != 2 {
				t.Error("the caller's headers were changed")
			}
		})
	}
}

func TestBadConfigs(t *testing.T) {
	secret := []sender.Secret{{Text: "secret"}}
	for _, c := range []struct {
		config sender.Config
		field  string
	}{
		{sender.Config{Preset: "nobody"}, "preset"},
		{sender.Config{Preset: "github"}, "secrets"},
		{sender.Config{Preset: "github", Secrets: []sender.Secret{{Text: ""}}}, "secrets"},
		{sender.Config{Preset: "github", Secrets: []sender.Secret{{Text: "a "}}}, "secrets"},
		{
			sender.Config{
				Preset:  "github",
				Secrets: []sender.Secret{{Text: strings.Repeat("a", 5000)}},
			}, "secrets",
		},
		{
			sender.Config{Preset: "github", Secrets: secret, Settings: map[string]string{"x": "1"}},
			"settings.x",
		},
		{
			sender.Config{
				Preset:   "github",
				Secrets:  secret,
				Settings: map[string]string{"sha1": "maybe"},
			}, "settings.sha1",
		},
		{sender.Config{Preset: "plain", Secrets: secret}, "secrets"},
		{sender.Config{Preset: "discord", Secrets: secret}, "secrets"},
		{sender.Config{Preset: "discord", Secrets: []sender.Secret{{Text: "00ff"}}}, "secrets"},
		{sender.Config{Preset: "sendgrid", Secrets: secret}, "secrets"},
		{
			sender.Config{Preset: "standard-webhooks", Secrets: []sender.Secret{{Text: "whsec_!"}}},
			"secrets",
		},
		{
			sender.Config{Preset: "standard-webhooks", Secrets: []sender.Secret{{Text: "whsec_"}}},
			"secrets",
		},
		{sender.Config{Preset: "meta", Secrets: secret}, "settings.verifyToken"},
		{sender.Config{Preset: "basic", Secrets: secret}, "settings.user"},
		{
			sender.Config{
				Preset:   "basic",
				Secrets:  secret,
				Settings: map[string]string{"user": "a:b"},
			}, "settings.user",
		},
		{sender.Config{Preset: "header", Secrets: secret}, "settings.header"},
		{
			sender.Config{
				Preset:   "header",
				Secrets:  secret,
				Settings: map[string]string{"header": "a b"},
			}, "settings.header",
		},
		{
			sender.Config{
				Preset:   "header",
				Secrets:  []sender.Secret{{Text: "a\nb"}},
				Settings: map[string]string{"header": "a"},
			}, "secrets",
		},
		{
			sender.Config{
				Preset:   "stripe",
				Secrets:  secret,
				Settings: map[string]string{"toleranceSeconds": "-1"},
			}, "settings.toleranceSeconds",
		},
		{
			sender.Config{
				Preset:   "github",
				Secrets:  secret,
				Settings: map[string]string{"toleranceSeconds": "1"},
			}, "settings.toleranceSeconds",
		},
		{
			sender.Config{Preset: "plain", Settings: map[string]string{"deliveryId": "body"}},
			"settings.deliveryId",
		},
		{
			sender.Config{Preset: "plain", Settings: map[string]string{"deliveryId": "ptr:id"}},
			"settings.deliveryId",
		},
		{
			sender.Config{
				Preset:   "plain",
				Settings: map[string]string{"deliveryId": "query:token"},
			}, "settings.deliveryId",
		},
		{sender.Config{Preset: "hmac", Secrets: secret}, "settings.header"},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "message": "{nobody}{body}"},
			}, "settings.message",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "message": "{secret}{body}"},
			}, "settings.message",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "message": "{url}"},
			}, "settings.message",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "message": "{time}{body}"},
			}, "settings.message",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "message": "{id}{body}"},
			}, "settings.message",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "timeHeader": "b"},
			}, "settings.message",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "key": "hex"},
			}, "secrets",
		},
		{
			sender.Config{
				Preset:   "hmac",
				Secrets:  secret,
				Settings: map[string]string{"header": "a", "hash": "md5"},
			}, "settings.hash",
		},
	} {
		_, err := sender.Compile(c.config)
		wrong, ok := errors.AsType[*sender.ConfigError](err)
		if !ok || wrong.Field != c.field || wrong.Detail == "" {
			t.Errorf("%+v: %v, want one of %s", c.config, err, c.field)
		}
		if err != nil && len(c.config.Secrets) > 0 && len(c.config.Secrets[0].Text) > 8 &&
			strings.Contains(err.Error(), c.config.Secrets[0].Text) {
			t.Errorf("the error has the secret: %v", err)
		}
	}
}

// The error for an invalid secret describes the kind of secret that was probably meant. For the
// preset standard-webhooks, for example, it describes a public key only if the text begins with
// whpk_.
func TestRefusalOfASecretSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ preset, secret, want string }{
		{"discord", "no key", "the public key must be hex"},
		{"discord", "00ff", "the public key must have 32 bytes"},
		{"sendgrid", "no key", "the public key must be ECDSA P-256, in base64 or PEM"},
		{"standard-webhooks", "a text!", "the secret must be whsec_ and base64, or base64"},
		{"standard-webhooks", "whpk_!", "the public key must be whpk_ and base64"},
		{"standard-webhooks", "whpk_AAAA", "the public key must have 32 bytes"},
		{
			"stripe", "sk_live_1234567890",
			"what begins with sk_ is another key of Stripe, which verifies nothing: give it the " +
				"Signing secret (whsec_…)",
		},
		{
			"stripe", "pk_test_1234567890",
			"what begins with pk_ is another key of Stripe, which verifies nothing: give it the " +
				"Signing secret (whsec_…)",
		},
		{
			"stripe", "rk_live_1234567890",
			"what begins with rk_ is another key of Stripe, which verifies nothing: give it the " +
				"Signing secret (whsec_…)",
		},
	} {
		_, err := sender.Compile(sender.Config{
			Preset:  c.preset,
			Secrets: []sender.Secret{{Text: c.secret}},
		})
		wrong, ok := errors.AsType[*sender.ConfigError](err)
		if !ok || wrong.Detail != c.want {
			t.Errorf("%s with %q: %v, want %q", c.preset, c.secret, err, c.want)
		}
	}
}

// An attacker who knows a request with HubSpot's signature of version 1 or 2 can forge another
// request without the secret. The first forgery extends the digest by the padding of the hash and
// more data. The second one sends the text that was signed for version 2 as the body of a request
// of version 1. Both are refused.
func TestExtendedDigests(t *testing.T) {
	const secret, body = "s-secret", `[{"eventId":1}]`
	s := compile(t, sender.Config{Preset: "hubspot", Secrets: []sender.Secret{{Text: secret}}})
	padded := append([]byte(secret+body), 0x80)
	for len(padded)%64 != 56 {
		padded = append(padded, 0)
	}
	padded = binary.BigEndian.AppendUint64(padded, uint64(len(secret+body)*8))
	for _, c := range []struct {
		body string
		want webhook.Code
	}{
		{body, ""},
		{string(padded[len(secret):]) + `,{"eventId":2}]`, webhook.CodeSignatureInvalid},
		{"POST" + testURL + body, webhook.CodeSignatureInvalid},
	} {
		r := &sender.Request{
			Method: "POST",
			URL:    testURL,
			Body:   []byte(c.body),
			Header: map[string][]string{
				canonical("X-HubSpot-Signature"):         {hexOf(sum256(secret + c.body))},
				canonical("X-HubSpot-Signature-Version"): {"v1"},
			},
		}
		if v := s.Verify(r, noon); v.Code != c.want {
			t.Errorf("%q: %+v, want %q", c.body, v, c.want)
		}
	}
}

// Supabase shows the secret of a hook as v1,whsec_…. The prefix "v1," does not change the key.
func TestSecretWithVersion(t *testing.T) {
	for _, g := range signers() {
		if g.name != "standard-webhooks" {
			continue
		}
		key := g.secret("one")
		s := compile(t, g.config("v1,"+key))
		if v := s.Verify(g.request(key, "{}", noon), noon); !v.OK() {
			t.Errorf("%+v", v)
		}
	}
}

// HubSpot signs the URL with some of its characters decoded. A request with such a signature is
// accepted, unless other characters of the URL were decoded as well.
func TestDecodedURL(t *testing.T) {
	for _, g := range signers() {
		if g.name != "hubspot" {
			continue
		}
		key, s := g.secret("one"), compile(t, g.config(g.secret("one")))
		g.url = testURL + "&to=a@b/c&x=%20"
		r := g.request(key, "{}", noon)
		r.URL = testURL + "&to=a%40b%2fc&x=%20"
		if v := s.Verify(r, noon); !v.OK() {
			t.Errorf("%+v", v)
		}
		r.URL = testURL + "&to=a%40b%2fc&x= "
		if s.Verify(r, noon).OK() {
			t.Error("a URL with another character decoded is verified")
		}
	}
}

// Mailgun signs a time that is directly followed by a token, which is also the delivery ID. Moving
// a digit between the two would change the delivery ID under a valid signature. Such a request is
// refused even if any time is allowed.
func TestMovedDigits(t *testing.T) {
	const secret = "s-secret"
	s := compile(t, sender.Config{
		Preset:   "mailgun",
		Secrets:  []sender.Secret{{Text: secret}},
		Settings: map[string]string{"toleranceSeconds": "0"},
	})
	signed := itoa(noon.Unix()) + "12ab"
	signature := hexOf(mac(sha256New, []byte(secret), signed))
	for digits := 1; digits < len(signed)-2; digits++ {
		body := fmt.Sprintf(`{"signature":{"timestamp":%q,"token":%q,"signature":%q}}`,
			signed[:digits], signed[digits:], signature)
		if v := s.Verify(&sender.Request{Body: []byte(body)}, noon); v.OK() != (digits == 10) {
			t.Errorf("%d digits in the time: %+v", digits, v)
		}
	}
}

// With a tolerance of 0, the time may be any number if the message separates it from the body. A
// larger tolerance allows older requests.
func TestOldTimes(t *testing.T) {
	t.Parallel()
	for _, g := range signers() {
		if g.name != "stripe" && g.name != "slack" {
			continue
		}
		key := g.secret("one")
		for tolerance, from := range map[string]int64{
			"0": 0, "604800": noon.Unix() - 600_000,
		} {
			config := g.config(key)
			config.Settings = map[string]string{"toleranceSeconds": tolerance}
			r := g.request(key, `{"id":"evt_1"}`, time.Unix(from, 0))
			if v := compile(t, config).Verify(r, noon); !v.OK() {
				t.Errorf("%s, signed at %d, tolerance %s: %+v", g.name, from, tolerance, v)
			}
		}
	}
}

// IsPublicKey tells public keys, which may be shown, from secrets.
func TestIsPublicKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		preset, secret string
		want           bool
	}{
		{"discord", "00ff", true},
		{"standard-webhooks", "whpk_AAAA", true},
		{"standard-webhooks", "whsec_AAAA", false},
		{"github", "whpk_AAAA", false},
		{"plain", "", false},
	} {
		preset, ok := sender.LookupPreset(c.preset)
		if !ok || preset.IsPublicKey(c.secret) != c.want {
			t.Errorf("%s: %s, want %t", c.preset, c.secret, c.want)
		}
	}
}
