package e2e

import (
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hookstart/hookstart/shared/sender"
)

// An operator sets Slack as the sender of a workflow that has none, using only the console. Signed
// events are then accepted, and forged ones refused, until the operator removes the sender.
func TestConnectSlack(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	const secret = "8f742231b10e8888abcd99yyyzzz85a5"
	b.do(chromedp.Navigate(b.base + "/workflows/demo"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("Demo")
	b.wait(fragmentsAreThere) // otherwise parts that arrive later would move the section
	choose("slack")(b)
	b.text("[data-preset-fields] .steps", "Copy the Signing Secret and paste it here first")
	picture(b, "choose")
	b.click("#sender-form button") // submit the form without a secret
	b.wait(`document.querySelector("#sender-secret:invalid") !== null`)
	b.write("#sender-secret", secret)
	b.click("#sender-form button")
	b.text("[data-done]", "The sender is set")
	b.text("#sender-seen", "Verified")
	url := copied(b, "webhook-url")

	post := func(body, signedWith string) (status int, answer string) {
		t.Helper()
		request := sender.Request{
			Method: "POST",
			Header: map[string][]string{"Content-Type": {"application/json"}},
			Body:   []byte(body),
		}
		signed, err := sender.Sign(sender.Config{
			Preset:  "slack",
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
		response, err := http.DefaultClient.Do(sent)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if status, answer := post(`{"type":"url_verification","challenge":"3eZbrw1aBm"}`,
		secret); status != http.StatusOK || !strings.Contains(answer, "3eZbrw1aBm") {
		t.Errorf("the handshake: %d %s", status, answer)
	}
	if status, answer := post(`{"type":"event_callback","event_id":"Ev1"}`,
		secret); status != http.StatusOK {
		t.Errorf("an event: %d %s", status, answer)
	}
	if status, answer := post(`{"type":"event_callback","event_id":"Ev2"}`,
		"another-signing-secret"); status != http.StatusUnauthorized {
		t.Errorf("a forged event: %d %s", status, answer)
	}
	// Without a reload, the page shows what the ingress reports about the requests that the sender
	// has sent.
	b.wait(`!document.querySelector("#sender-seen").innerText.includes("not yet")`)
	b.text("#sender-seen", "signature_invalid")
	if html := b.evaluate(`document.documentElement.outerHTML`); strings.Contains(html, secret) {
		t.Error("the secret is in the page")
	}
	picture(b, "set")
	tryOut(b)

	b.click("#remove-sender")
	b.click("dialog[open] button.danger")
	b.text("[data-done]", "The sender is removed")
	if status, answer := post(`{"type":"event_callback","event_id":"Ev2"}`,
		"another-signing-secret"); status != http.StatusOK {
		t.Errorf("with the token alone: %d %s", status, answer)
	}
}

// tryOut sends test requests from the page, and checks that they are signed, have different
// delivery IDs and are recorded as verified. While the workflow is inactive, the requests are
// refused, and the page offers to start an execution without a request to the endpoint.
func tryOut(b *tab) {
	b.t.Helper()
	first := ""
	for range 2 {
		b.click("[data-send-test]")
		b.text("[data-sample-said]", "Sent as Slack does, and accepted.")
		b.wait(`document.querySelector("[data-sample-said] a").href !== ` + strconv.Quote(first))
		first = b.evaluate(`document.querySelector("[data-sample-said] a").href`)
	}
	picture(b, "sent")
	b.click("[data-switch]")
	b.text("#state", "Inactive")
	b.text("#sender-seen",
		"a handshake is answered, but what Slack sends is rejected with 403 until it is activated")
	b.click("[data-send-test]")
	b.text("[data-sample-said].bad", "the workflow is inactive")
	b.click("[data-run-past]")
	b.text("[data-sample-said]", "Started on the sample payload.")
	b.click("[data-switch]")
	b.text("#state", "Active")
	b.do(chromedp.Navigate(first))
	b.text("main", "slack · verified")
	b.do(chromedp.Navigate(b.base + "/workflows/demo"))
	b.page("Demo")
	b.evaluate(unfold)
	b.text(".headers", "/event_id in the JSON")
	b.wait(fragmentsAreThere) // otherwise parts that arrive later would move the elements below
}

// picture takes a screenshot if HOOKSTART_SCREENSHOTS is set to a folder, for developers who change
// the page.
func picture(b *tab, name string) {
	folder := os.Getenv("HOOKSTART_SCREENSHOTS")
	if folder == "" {
		return
	}
	c := &camera{b, folder}
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1440}, {"dark", 1440}, {"light", 375}, {"dark", 375}} {
		c.look(look.scheme, look.width, windowHeight)
		b.check(os.WriteFile(folder+"/sender-"+name+"-"+look.scheme+"-"+map[int64]string{
			1440: "1440",
			375:  "375",
		}[look.width]+".png", c.picture(look.width), 0o600))
	}
	c.look("light", 1440, windowHeight)
}
