package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hookstart/hookstart/shared/sender"
)

// A new operator makes a workflow, and connects Stripe and then GitHub to it, in the console alone: each event
// is verified, a secret is rotated without a refusal, and nothing is said of a sender that another one did.
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
	b.click("[data-create-workflow] .primary")
	b.page("Events")
	b.text("#state", "Inactive")
	url := ""

	post := func(preset, signedWith, body string) int {
		t.Helper()
		header := map[string][]string{"Content-Type": {"application/json"}}
		request := sender.Request{Method: http.MethodPost, URL: url, Header: header, Body: []byte(body)}
		signed, err := sender.Sign(sender.Config{Preset: preset, Secrets: []sender.Secret{{Text: signedWith}}}, request, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		single := map[string]string{}
		for name, values := range signed.Header {
			single[name] = values[0]
		}
		a, err := post(t.Context(), url, single, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return a.status
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
		b.evaluate(`document.querySelector("[data-set-sender]").parentElement.open = true; ""`)
		b.write("#preset", preset)
		b.see("#sender-secret")
		b.write("#sender-secret", secret)
		b.click("[data-set-sender] .primary")
		b.text("[data-done]", "The sender is set")
		b.text("#sender-seen", "not yet")
	}
	verified := func() {
		t.Helper()
		b.wait(`(() => { const text = document.querySelector("#sender-seen").innerText; return /Verified\s+(just now|\d+ (s|min) ago)/.test(text); })()`)
	}

	set("Stripe", "whsec_the-first-of-stripe")
	url = copied(b, "webhook-url")
	b.text(".sender details[open] .steps", "Developers, Webhooks") // what to do at Stripe stays in sight
	b.text("#sender-seen", "The workflow is inactive")
	want("an event of Stripe while inactive", post("stripe", "whsec_the-first-of-stripe", `{"id":"evt_0"}`), http.StatusForbidden)
	b.wait(fragmentsAreThere)
	b.click("[data-switch]")
	b.text("#state", "Active")
	want("an event of Stripe", post("stripe", "whsec_the-first-of-stripe", `{"id":"evt_1"}`), http.StatusOK)
	verified()
	b.visit("/workflows/events")
	b.wait(fragmentsAreThere)
	b.evaluate(`document.querySelector("[data-add-secret]").parentElement.open = true; ""`)
	b.write("#new-secret", "whsec_the-next-of-stripe")
	b.click("[data-add-secret] .primary")
	b.text("[data-done]", "The new secret works")
	want("signed with the secret before", post("stripe", "whsec_the-first-of-stripe", `{"id":"evt_2"}`), http.StatusOK)
	want("signed with the next secret", post("stripe", "whsec_the-next-of-stripe", `{"id":"evt_3"}`), http.StatusOK)
	want("signed with neither", post("stripe", "whsec_of-nobody", `{"id":"evt_4"}`), http.StatusUnauthorized)
	b.text("#sender-seen", "no signature matches any of the secrets")

	set("GitHub", "a-long-random-text")
	if text := b.evaluate(`document.querySelector("#sender-seen").innerText`); strings.Contains(text, "refused") {
		t.Errorf("what was seen of Stripe is said of GitHub: %s", text)
	}
	want("an event of GitHub", post("github", "a-long-random-text", `{"zen":"Design for failure."}`), http.StatusOK)
	verified()
	b.contented()
}
