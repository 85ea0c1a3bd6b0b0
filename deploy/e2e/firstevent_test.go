package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hookstart/hookstart/shared/sender"
)

// Using only the console, a new operator creates a workflow and connects it first to Slack, then to
// Stripe and then to GitHub. Each event is verified, rotating a secret causes no refusal, and no
// event is attributed to the wrong sender.
func TestFirstVerifiedEvents(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(b.base + "/new-workflow"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("New workflow")
	b.write("#name", "Events")
	b.click("#new-workflow .primary")
	b.page("Events")
	b.text("#state", "Inactive")
	url := ""

	post := func(preset, signedWith, body string) int {
		t.Helper()
		header := http.Header{"Content-Type": {"application/json"}}
		request := sender.Request{
			Method: http.MethodPost,
			URL:    url,
			Header: header,
			Body:   []byte(body),
		}
		signed, err := sender.Sign(sender.Config{
			Preset:  preset,
			Secrets: []sender.Secret{{Text: signedWith}},
		}, request, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		sent, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		sent.Header = signed.Header
		answer, err := http.DefaultClient.Do(sent)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	want := func(what string, got, status int) {
		t.Helper()
		if got != status {
			t.Errorf("%s: %d, want %d", what, got, status)
		}
	}
	set := func(preset, secret string) {
		t.Helper()
		b.wait(fragmentsAreThere)
		b.evaluate(`document.querySelector("#sender-form").parentElement.open = true; ""`)
		b.write("#preset", preset)
		b.see("#sender-secret")
		b.write("#sender-secret", secret)
		b.click("#sender-form .primary")
		b.text("[data-done]", "The sender is set")
		if text := b.text("#sender-seen", "not yet"); strings.Contains(text, "refused") {
			t.Errorf("what was seen of the sender before is said of %s: %s", preset, text)
		}
	}
	verified := func() {
		t.Helper()
		b.wait(`(() => { const text = document.querySelector("#sender-seen").innerText; return /Verified\s+(just now|\d+ (s|min) ago)/.test(text); })()`)
	}

	set("Slack", "8f742231b10e8888abcd99yyyzzz85a5")
	// After the sender has been set, its instructions stay visible.
	b.text(".sender details[open] .steps", "Copy the Signing Secret")
	b.text("#sender-seen", "The workflow is inactive")
	url = copied(b, "webhook-url")
	want("Slack's check of the URL",
		post("slack", "8f742231b10e8888abcd99yyyzzz85a5",
			`{"type":"url_verification","challenge":"3eZbrw1aBm"}`), http.StatusOK)
	want("an event of Slack while inactive",
		post("slack", "8f742231b10e8888abcd99yyyzzz85a5",
			`{"type":"event_callback","event_id":"Ev0"}`), http.StatusForbidden)
	b.wait(fragmentsAreThere)
	b.click("[data-switch]")
	b.text("#state", "Active")
	want("an event of Slack",
		post("slack", "8f742231b10e8888abcd99yyyzzz85a5",
			`{"type":"event_callback","event_id":"Ev1"}`), http.StatusOK)
	verified()

	set("Stripe", "whsec_the-first-of-stripe")
	b.text(".sender details[open] .steps", "Developers, Webhooks")
	want("an event of Stripe", post("stripe", "whsec_the-first-of-stripe", `{"id":"evt_1"}`),
		http.StatusOK)
	verified()
	b.visit("/workflows/events")
	b.wait(fragmentsAreThere)
	b.evaluate(`document.querySelector("#new-secret-form").parentElement.open = true; ""`)
	b.write("#new-secret", "whsec_the-next-of-stripe")
	b.click("#new-secret-form .primary")
	b.text("[data-done]", "The new secret works")
	want("signed with the secret before",
		post("stripe", "whsec_the-first-of-stripe", `{"id":"evt_2"}`), http.StatusOK)
	want("signed with the next secret",
		post("stripe", "whsec_the-next-of-stripe", `{"id":"evt_3"}`), http.StatusOK)
	want("signed with neither", post("stripe", "whsec_of-nobody", `{"id":"evt_4"}`),
		http.StatusUnauthorized)
	b.text("#sender-seen", "no signature matches any of the secrets")

	set("GitHub", "a-long-random-text")
	want("an event of GitHub",
		post("github", "a-long-random-text", `{"zen":"Design for failure."}`), http.StatusOK)
	verified()
	b.contented()
}
