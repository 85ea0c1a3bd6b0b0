package sender_test

// This file contains a second signer, which implements each provider's scheme by hand. It uses
// neither presets.json nor the code of package sender, so it reveals mistakes in both.

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/sender"
)

// The asymmetric keys, generated once.
var (
	ed25519Key = ed25519.NewKeyFromSeed([]byte("hookstart's test key of 32 bytes"))
	ecdsaKey   = func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		return k
	}()
)

func ed25519Public() string {
	public, ok := ed25519Key.Public().(ed25519.PublicKey)
	if !ok {
		panic("no public key")
	}
	return string(public)
}

func ecdsaPublic() string {
	der, err := x509.MarshalPKIXPublicKey(&ecdsaKey.PublicKey)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func mac(h func() hash.Hash, key []byte, parts ...string) []byte {
	m := hmac.New(h, key)
	for _, p := range parts {
		m.Write([]byte(p))
	}
	return m.Sum(nil)
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }
func b64(b []byte) string   { return base64.StdEncoding.EncodeToString(b) }

// signer is one provider: the operator's settings, and how a request is signed.
type signer struct {
	name     string // name of the case: the preset and what is special about it
	preset   string
	secret   func(seed string) string
	settings map[string]string
	url      string
	timed    bool // whether the time is signed and checked
	uncovers bool // whether the body is not signed
	isDigest bool // whether the signature is a plain hash of the secret and the message
	// sign returns the headers, and also the body if it contains the signature.
	sign func(key, body, target string, now int64) (map[string]string, string)
}

const testURL = "https://hooks.example.com/webhooks/wf?token=t"

func plainSecret(seed string) string { return "s-" + hexOf([]byte(seed)) }
func whsec(seed string) string {
	sum := sha256.Sum256([]byte(seed))
	return "whsec_" + b64(sum[:24])
}

func whsecKey(secret string) []byte {
	raw, err := base64.StdEncoding.DecodeString(secret[len("whsec_"):])
	if err != nil {
		panic(err)
	}
	return raw
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// hexHeader returns a value for signer.sign that signs only the body. It sends the HMAC in the
// given header, in hex and preceded by prefix.
func hexHeader(
	h func() hash.Hash, header, prefix string,
) func(key, body, target string, now int64) (map[string]string, string) {
	return func(key, body, _ string, _ int64) (map[string]string, string) {
		return map[string]string{header: prefix + hexOf(mac(h, []byte(key), body))}, body
	}
}

func signers() []signer {
	svix := func(prefix string) func(key, body, target string, now int64) (map[string]string,
		string) {
		return func(key, body, _ string, now int64) (map[string]string, string) {
			id, at := "msg_1", itoa(now)
			return map[string]string{
				prefix + "Id": id, prefix + "Timestamp": at,
				prefix + "Signature": "v1," +
					b64(mac(sha256.New, whsecKey(key), id, ".", at, ".", body)),
			}, body
		}
	}
	pairs := func(header string) func(key, body, target string, now int64) (map[string]string,
		string) {
		return func(key, body, _ string, now int64) (map[string]string, string) {
			return map[string]string{
				header: "t=" + itoa(now) + ",v1=" +
					hexOf(mac(sha256.New, []byte(key), itoa(now), ".", body)) + ",v0=00",
			}, body
		}
	}
	v0 := func(signature, timestamp string) func(key, body, target string,
		now int64) (map[string]string, string) {
		return func(key, body, _ string, now int64) (map[string]string, string) {
			return map[string]string{
				signature: "v0=" + hexOf(mac(sha256.New, []byte(key), "v0:", itoa(now), ":", body)),
				timestamp: itoa(now),
			}, body
		}
	}
	return []signer{
		{
			name:   "standard-webhooks",
			preset: "standard-webhooks",
			secret: whsec,
			timed:  true,
			sign:   svix("Webhook-"),
		},
		{
			name:   "standard-webhooks svix",
			preset: "svix",
			secret: whsec,
			timed:  true,
			sign:   svix("Svix-"),
		},
		{
			name: "standard-webhooks v1a", preset: "standard-webhooks", timed: true,
			secret: func(string) string { return "whpk_" + b64([]byte(ed25519Public())) },
			sign: func(_, body, _ string, now int64) (map[string]string, string) {
				text := "msg_2." + itoa(now) + "." + body
				return map[string]string{
					"Webhook-Id":        "msg_2",
					"Webhook-Timestamp": itoa(now),
					"Webhook-Signature": "v1,AAAA v1a," +
						b64(ed25519.Sign(ed25519Key, []byte(text))),
				}, body
			},
		},
		{
			name:   "github",
			preset: "github",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-Hub-Signature-256", "sha256="),
		},
		{
			name:     "github sha1",
			preset:   "github",
			secret:   plainSecret,
			settings: map[string]string{"sha1": "accept"},
			sign:     hexHeader(sha1.New, "X-Hub-Signature", "sha1="),
		},
		{name: "gitlab", preset: "gitlab", secret: plainSecret, uncovers: true, sign: func(
			key, body, _ string, _ int64,
		) (map[string]string, string) {
			return map[string]string{"X-Gitlab-Token": key}, body
		}},
		{
			name:   "gitlab signing token",
			preset: "gitlab",
			secret: whsec,
			timed:  true,
			sign:   svix("Webhook-"),
		},
		{
			name:   "bitbucket",
			preset: "bitbucket",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-Hub-Signature", "sha256="),
		},
		{
			name:   "bitbucket another hash",
			preset: "bitbucket",
			secret: plainSecret,
			sign:   hexHeader(sha512.New, "X-Hub-Signature", "sha512="),
		},
		{
			name:   "gitea",
			preset: "gitea",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-Gitea-Signature", ""),
		},
		{
			name:   "gitea forgejo",
			preset: "gitea",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-Forgejo-Signature", ""),
		},
		{
			name:   "gitea gogs",
			preset: "gitea",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-Gogs-Signature", ""),
		},
		{name: "gitea form", preset: "gitea", secret: plainSecret, sign: func(
			key, body, _ string, _ int64,
		) (map[string]string, string) {
			return map[string]string{
				"X-Gitea-Signature": hexOf(mac(sha256.New, []byte(key), body)),
				"Content-Type":      "application/x-www-form-urlencoded",
			}, "payload=" + url.QueryEscape(body)
		}},
		{
			name:   "jira",
			preset: "jira",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-Hub-Signature", "sha256="),
		},
		{
			name:   "stripe",
			preset: "stripe",
			secret: whsec,
			timed:  true,
			sign:   pairs("Stripe-Signature"),
		},
		{
			name:   "calendly",
			preset: "calendly",
			secret: plainSecret,
			timed:  true,
			sign:   pairs("Calendly-Webhook-Signature"),
		},
		{
			name:   "slack",
			preset: "slack",
			secret: plainSecret,
			timed:  true,
			sign:   v0("X-Slack-Signature", "X-Slack-Request-Timestamp"),
		},
		{
			name:   "zoom",
			preset: "zoom",
			secret: plainSecret,
			timed:  true,
			sign:   v0("X-Zm-Signature", "X-Zm-Request-Timestamp"),
		},
		{
			name:   "shopify",
			preset: "shopify",
			secret: plainSecret,
			sign:   base64Header("X-Shopify-Hmac-Sha256", ""),
		},
		{
			name:   "shopify events",
			preset: "shopify",
			secret: plainSecret,
			sign:   base64Header("Shopify-Hmac-Sha256", ""),
		},
		{
			name:   "typeform",
			preset: "typeform",
			secret: plainSecret,
			sign:   base64Header("Typeform-Signature", "sha256="),
		},
		{
			name: "discord", preset: "discord", timed: true, secret: func(string) string {
				return hexOf([]byte(ed25519Public()))
			},
			sign: func(_, body, _ string, now int64) (map[string]string, string) {
				return map[string]string{
					"X-Signature-Timestamp": itoa(now),
					"X-Signature-Ed25519": hexOf(ed25519.Sign(ed25519Key,
						[]byte(itoa(now)+body))),
				}, body
			},
		},
		{
			name:   "linear",
			preset: "linear",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "Linear-Signature", ""),
		},
		{
			name:   "notion",
			preset: "notion",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-Notion-Signature", "sha256="),
		},
		{
			name:     "meta",
			preset:   "meta",
			secret:   plainSecret,
			settings: map[string]string{"verifyToken": "v"},
			sign:     hexHeader(sha256.New, "X-Hub-Signature-256", "sha256="),
		},
		{name: "msgraph", preset: "msgraph", secret: plainSecret, uncovers: true, sign: func(
			key, body, _ string, _ int64,
		) (map[string]string, string) {
			return nil,
				fmt.Sprintf(`{"value":[{"id":"n1","clientState":%q,"x":%q},{"id":"n2","clientState":%q}]}`, key, hexOf([]byte(body)), key)
		}},
		{
			name:   "pagerduty",
			preset: "pagerduty",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "X-PagerDuty-Signature", "v1=00,v1="),
		},
		{
			name:   "circleci",
			preset: "circleci",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "Circleci-Signature", "v2=00,v1="),
		},
		{
			name:   "sentry",
			preset: "sentry",
			secret: plainSecret,
			sign:   hexHeader(sha256.New, "Sentry-Hook-Signature", ""),
		},
		{
			name:   "vercel",
			preset: "vercel",
			secret: plainSecret,
			sign:   hexHeader(sha1.New, "X-Vercel-Signature", ""),
		},
		{
			name:   "intercom",
			preset: "intercom",
			secret: plainSecret,
			sign:   hexHeader(sha1.New, "X-Hub-Signature", "sha1="),
		},
		{name: "square", preset: "square", secret: plainSecret, url: testURL, sign: func(
			key, body, target string, _ int64,
		) (map[string]string, string) {
			return map[string]string{
				"X-Square-Hmacsha256-Signature": b64(mac(sha256.New, []byte(key), target, body)),
			}, body
		}},
		{name: "twilio", preset: "twilio", secret: plainSecret, url: testURL, sign: func(
			key, body, target string, _ int64,
		) (map[string]string, string) {
			form := url.Values{"Body": {body}, "AccountSid": {"AC1"}, "a": {"2", "1", "2"}}
			text := target
			for _, name := range slices.Sorted(maps.Keys(form)) {
				for _, value := range slices.Compact(slices.Sorted(slices.Values(form[name]))) {
					text += name + value
				}
			}
			return map[string]string{
				"X-Twilio-Signature": b64(mac(sha1.New, []byte(key), text)),
				"Content-Type":       "application/x-www-form-urlencoded",
			}, form.Encode()
		}},
		{name: "twilio port", preset: "twilio", secret: plainSecret, url: testURL, sign: func(
			key, _, _ string, _ int64,
		) (map[string]string, string) {
			return map[string]string{
				"X-Twilio-Signature": b64(mac(sha1.New, []byte(key),
					"https://hooks.example.com:443/webhooks/wf?token=t", "Digits", "1")),
			}, "Digits=1"
		}},
		{
			name: "hubspot", preset: "hubspot", secret: plainSecret, url: testURL, timed: true,
			sign: func(key, body, target string, now int64) (map[string]string, string) {
				at := itoa(now * 1000)
				return map[string]string{
					"X-Hubspot-Signature-V3": b64(mac(sha256.New, []byte(key), "POST", target,
						body, at)),
					"X-Hubspot-Request-Timestamp": at,
				}, body
			},
		},
		{name: "hubspot v1", preset: "hubspot", secret: plainSecret, isDigest: true, sign: func(
			key, body, _ string, _ int64,
		) (map[string]string, string) {
			sum := sha256.Sum256([]byte(key + body))
			return map[string]string{
				"X-Hubspot-Signature":         hexOf(sum[:]),
				"X-Hubspot-Signature-Version": "v1",
			}, body
		}},
		{
			name: "hubspot v2", preset: "hubspot", secret: plainSecret, url: testURL,
			isDigest: true,
			sign: func(key, body, target string, _ int64) (map[string]string, string) {
				sum := sha256.Sum256([]byte(key + "POST" + target + body))
				return map[string]string{
					"X-Hubspot-Signature":         hexOf(sum[:]),
					"X-Hubspot-Signature-Version": "v2",
				}, body
			},
		},
		{
			name: "mailgun", preset: "mailgun", secret: plainSecret, timed: true, uncovers: true,
			sign: func(key, body, _ string, now int64) (map[string]string, string) {
				return nil,
					fmt.Sprintf(`{"signature":{"timestamp":"%d","token":"tok","signature":%q},"event-data":{"x":%q}}`, now, hexOf(mac(sha256.New, []byte(key), itoa(now), "tok")), hexOf([]byte(body)))
			},
		},
		{
			name:     "mailgun form",
			preset:   "mailgun",
			secret:   plainSecret,
			timed:    true,
			uncovers: true,
			sign: func(key, body, _ string, now int64) (map[string]string, string) {
				form := url.Values{
					"timestamp": {itoa(now)},
					"token":     {"tok"},
					"signature": {hexOf(mac(sha256.New, []byte(key), itoa(now), "tok"))},
					"subject":   {body},
				}
				return map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
					form.Encode()
			},
		},
		{
			name: "sendgrid", preset: "sendgrid", timed: true, secret: func(string) string {
				return ecdsaPublic()
			},
			sign: func(_, body, _ string, now int64) (map[string]string, string) {
				sum := sha256.Sum256([]byte(itoa(now) + body))
				signature, err := ecdsa.SignASN1(rand.Reader, ecdsaKey, sum[:])
				if err != nil {
					panic(err)
				}
				return map[string]string{
					"X-Twilio-Email-Event-Webhook-Timestamp": itoa(now),
					"X-Twilio-Email-Event-Webhook-Signature": b64(signature),
				}, body
			},
		},
		{
			name: "hmac", preset: "hmac", secret: plainSecret, timed: true,
			settings: map[string]string{
				"header":     "x-sig",
				"prefix":     "x=",
				"hash":       "sha512",
				"encoding":   "base64",
				"message":    "{id}/{time}/{method}/{header:X-More}/{body}",
				"timeHeader": "x-time",
				"idHeader":   "x-id",
			},
			sign: func(key, body, _ string, now int64) (map[string]string, string) {
				return map[string]string{
					"X-Sig": "x=AAAA,x=" +
						b64(mac(sha512.New, []byte(key), "7/", itoa(now), "/POST/more/", body)),
					"X-Id":   "7",
					"X-Time": itoa(now),
					"X-More": "more",
				}, body
			},
		},
		{
			// Standard Webhooks, described with the settings of the general preset: the list of
			// signatures is separated by spaces, because the prefix contains a comma.
			name: "hmac of Standard Webhooks", preset: "hmac", timed: true,
			secret: func(name string) string { return b64([]byte(plainSecret(name))) },
			settings: map[string]string{
				"header":     "Webhook-Signature",
				"prefix":     "v1,",
				"encoding":   "base64",
				"key":        "base64",
				"message":    "{id}.{time}.{body}",
				"timeHeader": "Webhook-Timestamp",
				"idHeader":   "Webhook-Id",
			},
			sign: func(key, body, _ string, now int64) (map[string]string, string) {
				secret, err := base64.StdEncoding.DecodeString(key)
				if err != nil {
					panic(err)
				}
				return map[string]string{
					"Webhook-Signature": "v1a,AAAA v1,AAAA v1," +
						b64(mac(sha256.New, secret, "msg_7.", itoa(now), ".", body)),
					"Webhook-Id":        "msg_7",
					"Webhook-Timestamp": itoa(now),
				}, body
			},
		},
		{
			name:     "header",
			preset:   "header",
			secret:   plainSecret,
			uncovers: true,
			settings: map[string]string{"header": "X-Api-Key"},
			sign: func(key, body, _ string, _ int64) (map[string]string, string) {
				return map[string]string{"X-Api-Key": key}, body
			},
		},
		{name: "bearer", preset: "bearer", secret: plainSecret, uncovers: true, sign: func(
			key, body, _ string, _ int64,
		) (map[string]string, string) {
			return map[string]string{"Authorization": "bearer  " + key}, body
		}},
		{
			name:     "basic",
			preset:   "basic",
			secret:   plainSecret,
			uncovers: true,
			settings: map[string]string{"user": "u"},
			sign: func(key, body, _ string, _ int64) (map[string]string, string) {
				return map[string]string{"Authorization": "Basic " + b64([]byte("u:"+key))}, body
			},
		},
	}
}

func base64Header(
	header, prefix string,
) func(key, body, target string, now int64) (map[string]string, string) {
	return func(key, body, _ string, _ int64) (map[string]string, string) {
		return map[string]string{header: prefix + b64(mac(sha256.New, []byte(key), body))}, body
	}
}

// request returns a request with a signed body.
func (g *signer) request(key, body string, at time.Time) *sender.Request {
	headers, body := g.sign(key, body, g.url, at.Unix())
	r := &sender.Request{
		Method: "POST",
		Header: map[string][]string{"Content-Type": {"application/json"}},
		URL:    g.url,
		Query:  "token=t",
		Body:   []byte(body),
	}
	for name, value := range headers {
		r.Header[canonical(name)] = []string{value}
	}
	return r
}

func (g *signer) config(secrets ...string) sender.Config {
	c := sender.Config{Preset: g.preset, Settings: g.settings}
	for i, s := range secrets {
		c.Secrets = append(c.Secrets, sender.Secret{ID: fmt.Sprint(i), Text: s})
	}
	return c
}

func signDiscord(
	t *testing.T, c sender.Config, r *sender.Request, now time.Time,
) (sender.Config, *sender.Request) {
	t.Helper()
	for _, g := range signers() {
		if g.name == "discord" {
			return g.config(g.secret("")), g.request(g.secret(""), string(r.Body), now)
		}
	}
	t.Fatal("no signer of Discord")
	return c, r
}

var sha256New = sha256.New

func sum256(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
