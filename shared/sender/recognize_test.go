package sender_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/sender"
)

// A request is recognized by headers that only one preset uses. If the node's sender is another
// preset, the refusal names the recognized one.
func TestRecognize(t *testing.T) {
	for _, c := range []struct {
		headers string
		want    string // "" means not recognized
	}{
		{"", ""},
		{"X-Hub-Signature-256", ""}, // sent by both GitHub and Meta
		{"X-Github-Delivery X-Hub-Signature-256", "github"},
		{ // Gitea also sends GitHub's headers.
			"X-Github-Delivery X-Gitea-Delivery X-Gitea-Signature X-Gogs-Delivery " +
				"X-Hub-Signature-256", "gitea",
		},
		{"Stripe-Signature", "stripe"},
		{"X-Slack-Signature X-Slack-Request-Timestamp", "slack"},
		{"Svix-Id Svix-Signature", "standard-webhooks"},
		{"X-Slack-Signature Stripe-Signature", ""},
		{"Authorization", ""},
	} {
		r := sender.Request{Method: "POST", Header: map[string][]string{}, Body: []byte("{}")}
		for name := range strings.FieldsSeq(c.headers) {
			r.Header[name] = []string{"x"}
		}
		p, ok := sender.Recognize(&r)
		if p.ID != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q, want %q", c.headers, p.ID, c.want)
		}
	}
	slack, err := sender.Compile(sender.Config{
		Preset: "slack", Secrets: []sender.Secret{{Text: "the-secret"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for headers, want := range map[string]string{
		"X-Github-Delivery X-Hub-Signature-256": "there is no header:X-Slack-Signature; it looks " +
			"like a request of GitHub (X-Github-Delivery): is that the node's sender?",
		"":                          "there is no header:X-Slack-Signature",
		"X-Slack-Request-Timestamp": "there is no header:X-Slack-Signature",
	} {
		r := sender.Request{Method: "POST", Header: map[string][]string{}, Body: []byte("{}")}
		for name := range strings.FieldsSeq(headers) {
			r.Header[name] = []string{"x"}
		}
		if v := slack.Verify(&r, time.Now()); v.Reason != want {
			t.Errorf("%q at a node of Slack: %q, want %q", headers, v.Reason, want)
		}
	}
}

func TestIsURLCheck(t *testing.T) {
	for body, want := range map[string]bool{
		`{"type":"url_verification","challenge":"x","token":"y"}`: true,
		`{"type":"url_verification"}`:                             false,
		`{"type":"event_callback","challenge":"x"}`:               false,
		`"url_verification"`:                                      false,
	} {
		r := sender.Request{Body: []byte(body), KnownJSON: true}
		if got := sender.IsURLVerification(&r); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
	if sender.IsURLVerification(&sender.Request{Body: []byte(`{"type":"url_verification","challenge":"x"}`)}) {
		t.Error("a body that is not known to be JSON is taken for one")
	}
}
