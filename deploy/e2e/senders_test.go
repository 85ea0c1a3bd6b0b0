package e2e

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/sender"
)

// realSender describes a provider that TestRealSenders simulates.
type realSender struct {
	preset, secret, next string // next is the secret after the rotation
	settings             map[string]string
	contentType          string
	// delivery returns the body of the nth delivery. Unless header is set, the body contains the
	// delivery ID.
	delivery  func(n int) string
	header    string          // header that holds the delivery ID instead; "" means none
	handshake func(*senderAt) // called while the workflow is inactive
}

// senderAt is a provider that sends its requests to the trigger node of one workflow.
type senderAt struct {
	realSender
	t       *testing.T
	l       *localProgram
	client  *apiclient.Client
	id      string // ID of the workflow
	path    string
	calls   string // URL to which the provider sends its requests
	private ed25519.PrivateKey
}

type senderAnswer struct {
	status      int
	body        string
	executionID string
	header      http.Header
}

func (s *senderAt) api(method, path string, body any, status int) string {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method,
		s.l.executor+"/api/v1/workflows/"+s.id+"/triggers/node"+path,
		strings.NewReader(string(text)))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if response.StatusCode != status {
		s.t.Fatalf("%s %s: %d %s, want %d", method, path, response.StatusCode, answer, status)
	}
	return string(answer)
}

// send sends a request of the provider, signed with secret. If secret is "", the request is not
// signed.
func (s *senderAt) send(method, query, body, deliveryID, secret string) senderAnswer {
	s.t.Helper()
	r := sender.Request{
		Method: method,
		Header: map[string][]string{"Content-Type": {s.contentType}},
		URL:    s.calls + query,
		Body:   []byte(body),
	}
	_, r.Query, _ = strings.Cut(r.URL, "?")
	if s.header != "" && deliveryID != "" {
		r.Header[s.header] = []string{deliveryID}
	}
	switch {
	case secret == "":
	case s.preset == "discord":
		now := strconv.FormatInt(time.Now().Unix(), 10)
		r.Header["X-Signature-Timestamp"] = []string{now}
		r.Header["X-Signature-Ed25519"] = []string{
			hex.EncodeToString(ed25519.Sign(s.private, []byte(now+body))),
		}
	default:
		signed, err := sender.Sign(sender.Config{
			Preset:   s.preset,
			Settings: s.settings,
			Secrets:  []sender.Secret{{Text: secret}},
		}, r, time.Now())
		if err != nil {
			s.t.Fatal(err)
		}
		r.Header, r.Query, r.Body = signed.Header, signed.Query, signed.Body
	}
	path, _, _ := strings.Cut(s.path, "?")
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.l.ingress+path+"?"+r.Query,
		strings.NewReader(string(r.Body)))
	if err != nil {
		s.t.Fatal(err)
	}
	maps.Copy(request.Header, r.Header)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	return senderAnswer{
		response.StatusCode, string(text), response.Header.Get("Hookstart-Execution-Id"),
		response.Header,
	}
}

// deliver sends the nth delivery, signed with secret, and returns the ID of its execution. The test
// fails if the delivery is not accepted.
func (s *senderAt) deliver(n int, secret string) string {
	s.t.Helper()
	a := s.send("POST", "", s.delivery(n), fmt.Sprintf("delivery-%d", n), secret)
	if a.status/100 != 2 || a.executionID == "" {
		s.t.Fatalf("delivery %d: %+v", n, a)
	}
	return a.executionID
}

func (s *senderAt) expect(what string, a senderAnswer, status int, body string) {
	s.t.Helper()
	if a.status != status || a.body != body {
		s.t.Errorf("%s: %d %q, want %d %q", what, a.status, a.body, status, body)
	}
}

func realSenders(public, nextPublic string) []realSender {
	whsec := func(text string) string { return "whsec_" + text }
	form := "application/x-www-form-urlencoded"
	id := func(format string) func(int) string {
		return func(n int) string { return fmt.Sprintf(format, n) }
	}
	return []realSender{
		{preset: "github", delivery: id(`{"n":%d}`), header: "X-Github-Delivery"},
		{preset: "gitlab", delivery: id(`{"n":%d}`), header: "Idempotency-Key"},
		{preset: "stripe", delivery: id(`{"id":"evt_%d"}`)},
		{
			preset: "slack", delivery: id(`{"type":"event_callback","event_id":"Ev%d"}`),
			handshake: func(s *senderAt) {
				s.expect("challenge",
					s.send("POST", "", `{"type":"url_verification","challenge":"3eZbrw1a"}`, "",
						s.secret), 200, "3eZbrw1a")
			},
		},
		{
			preset:   "standard-webhooks",
			secret:   whsec("c2VjcmV0LW9mLXRoZS1zdGFuZGFyZA=="),
			next:     whsec("dGhlLW5leHQtc2VjcmV0LW9mLWl0IQ=="),
			delivery: id(`{"n":%d}`),
			header:   "Webhook-Id",
		},
		{preset: "shopify", delivery: id(`{"n":%d}`), header: "X-Shopify-Webhook-Id"},
		{
			preset: "discord", secret: public, next: nextPublic, delivery: id(`{"type":2,"id":"%d"}`),
			handshake: func(s *senderAt) {
				s.expect("ping", s.send("POST", "", `{"type":1}`, "", s.secret), 200, `{"type":1}`)
				s.expect("event ping", s.send("POST", "", `{"type":0}`, "", s.secret), 204, "")
				if a := s.send("POST", "", `{"type":1}`, "", ""); a.status != 401 {
					s.t.Errorf("a ping that is not signed: %+v", a)
				}
			},
		},
		{
			preset: "meta", settings: map[string]string{"verifyToken": "a-token-of-my-choice"},
			delivery: id(`{"entry":[{"changes":[{"value":{"messages":[{"id":"wamid.%d"}]}}]}]}`),
			handshake: func(s *senderAt) {
				s.expect("challenge",
					s.send("GET",
						"&hub.mode=subscribe&hub.verify_token=a-token-of-my-choice&"+
							"hub.challenge=115", "", "", ""), 200, "115")
				if a := s.send("GET",
					"&hub.mode=subscribe&hub.verify_token=another&hub.challenge=115", "", "",
					""); a.status == 200 || strings.Contains(a.body, "115") {
					s.t.Errorf("with a wrong token: %+v", a)
				}
			},
		},
		{preset: "msgraph", delivery: id(`{"value":[{"id":"n%d"}]}`), handshake: func(s *senderAt) {
			s.expect("validation", s.send("POST", "&validationToken=a%20b%2Bc", "", "", ""), 200,
				"a b+c")
		}},
		{
			preset:      "twilio",
			contentType: form,
			delivery:    id("MessageSid=SM%d&Body=hello"),
			header:      "I-Twilio-Idempotency-Token",
		},
	}
}

// Each real sender works at the first attempt. It is configured through the API, completes the
// handshake while the workflow is still inactive, and sends a signed delivery and its retry. A
// forged delivery is refused, and rotating the secret causes no refusals.
func TestRealSenders(t *testing.T) {
	t.Parallel()
	l := launchLocal(t, t.TempDir())
	client := l.client()
	keys := [2]ed25519.PrivateKey{
		ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, no 1")),
		ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, no 2")),
	}
	public := func(k ed25519.PrivateKey) string { return hex.EncodeToString(k[32:]) }
	for _, r := range realSenders(public(keys[0]), public(keys[1])) {
		t.Run(r.preset, func(t *testing.T) {
			if r.secret == "" {
				r.secret, r.next = "first-secret-of-"+r.preset, "next-secret-of-"+r.preset
			}
			if r.contentType == "" {
				r.contentType = "application/json"
			}
			s := &senderAt{
				realSender: r,
				t:          t,
				l:          l,
				client:     client,
				id:         "of-" + r.preset,
				private:    keys[0],
			}
			s.path = makeWorkflow(t, client, s.id)
			s.calls = l.ingress + s.path
			s.tryAll(keys[1])
		})
	}
	for _, secret := range []string{"first-secret-of-", "next-secret-of-", "a-token-of-my-choice"} {
		if strings.Contains(l.Output(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

func (s *senderAt) tryAll(next ed25519.PrivateKey) {
	s.t.Helper()
	if _, err := s.client.Deactivate(s.t.Context(), s.id); err != nil {
		s.t.Fatal(err)
	}
	s.api("PUT", "/sender", map[string]any{"preset": s.preset}, 422) // the secret is missing
	s.api("PUT", "/sender", map[string]any{
		"preset":   s.preset,
		"secrets":  []string{s.secret},
		"settings": s.settings,
	}, 201)
	if s.handshake != nil {
		s.handshake(s)
	}
	if n := len(recordedIDs(s.t, s.client, s.id)); n != 0 {
		s.t.Errorf("%d records after a handshake", n)
	}
	if _, err := s.client.Activate(s.t.Context(), s.id); err != nil {
		s.t.Fatal(err)
	}

	// A forged delivery does not use up its delivery ID: the sender's real delivery with that ID is
	// accepted afterwards.
	for _, a := range []senderAnswer{
		s.send("POST", "", s.delivery(1), "delivery-1", ""),
		s.send("POST", "", s.delivery(1), "delivery-1", s.forged()),
	} {
		if a.status != 401 || a.header.Get("WWW-Authenticate") == "" ||
			!strings.Contains(a.body, `"signature_`) {
			s.t.Errorf("forged: %+v", a)
		}
	}
	first := s.deliver(1, s.secret)
	if again := s.deliver(1, s.secret); again != first {
		s.t.Errorf("the retry is another execution: %s, %s", again, first)
	}
	second := s.deliver(2, s.secret)

	// Both secrets are valid until the old one is revoked.
	s.api("POST", "/sender/secrets", map[string]any{"secret": s.next}, 201)
	third := s.deliver(3, s.secret)
	old := s.private
	s.private = next
	fourth := s.deliver(4, s.next)
	s.api("POST", "/sender/secrets", map[string]any{"secret": s.next, "endOthersAfterSeconds": 0},
		201)
	fifth := s.deliver(5, s.next)
	s.private = old
	if a := s.send("POST", "", s.delivery(6), "delivery-6", s.secret); a.status != 401 {
		s.t.Errorf("with a secret that was ended: %+v", a)
	}

	for _, id := range []string{first, second, third, fourth, fifth} {
		recorded(s.t, s.client, id, func(api.ExecutionDetail) bool { return true })
	}
	if n := len(recordedIDs(s.t, s.client, s.id)); n != 5 {
		s.t.Errorf("%d records, want 5", n)
	}
	shown := s.api("GET", "/sender", nil, 200)
	if strings.Contains(shown, s.secret) && s.preset != "discord" {
		s.t.Error("the API shows the secret")
	}
}

// forged returns the secret with which the test signs a forged delivery: one that has the right
// form, but is not the sender's. "" means that the forged delivery is not signed.
func (s *senderAt) forged() string {
	switch s.preset {
	case "standard-webhooks":
		return "whsec_bm90IHRoZSBzZWNyZXQgYXQgYWxsIQ=="
	case "discord":
		return "" // package sender tests signatures with a wrong key
	default:
		return "forged"
	}
}
