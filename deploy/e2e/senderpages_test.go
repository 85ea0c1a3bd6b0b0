package e2e

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/sender"
)

// senderState is a state of the section "Sender" on a workflow's page. do performs the steps that
// bring an open page into this state.
type senderState struct {
	name, workflow string
	do             func(*tab)
}

// choose returns a step that unfolds the form for setting a sender and enters name as the preset.
func choose(name string) func(*tab) {
	return func(b *tab) {
		b.evaluate(`document.querySelector("#sender-form").parentElement.open = true; ""`)
		b.write("#preset", name)
	}
}

func senderStates() []senderState {
	open := func(*tab) {}
	dialog := func(button string) func(*tab) {
		return func(b *tab) {
			b.click(button)
			b.see("dialog[open]")
		}
	}
	return []senderState{
		{"none", "none", func(b *tab) { choose("")(b) }},
		{"choose-github", "none", func(b *tab) {
			choose("GitHub")(b)
			b.text("[data-preset-fields] .steps", "Payload URL")
		}},
		{"choose-meta", "none", func(b *tab) { choose("meta")(b); b.see("#setting-verifyToken") }},
		{"choose-hmac", "none", func(b *tab) {
			choose("hmac")(b)
			b.see("#setting-header")
			b.click("[data-preset-fields] details summary")
		}},
		{"choose-nobody", "none", func(b *tab) {
			choose("Nobody's")(b)
			b.see("[data-no-preset]")
		}},
		{"choose-refused", "none", func(b *tab) {
			choose("discord")(b)
			b.write("#sender-secret", "no key")
			b.click("#sender-form .primary")
			b.text("#sender-form-said", "the public key must be hex")
		}},
		{"stripe", "stripe", open},
		{"stripe-rotate", "stripe", func(b *tab) {
			b.evaluate(`document.querySelectorAll(".sender details").forEach((each) => { each.open = true }) ?? ""`)
			choose("stripe")(b)
			b.see("#sender-secret")
		}},
		{"stripe-end", "stripe", dialog("[id$=':end']")},
		{"stripe-remove", "stripe", dialog("#remove-sender")},
		{"discord", "discord", open},
		{"discord-test", "discord", func(b *tab) {
			b.click("[data-send-test]")
			b.text("[data-sample-said]", "Started on the sample payload")
		}},
		{"notion-waits", "notion", open},
		{"notion-shown", "captured", func(b *tab) {
			b.click("[data-show-captured]")
			b.text("[data-captured]", "")
		}},
		{"plain", "plain", open},
	}
}

// sendersToShow creates a workflow for each state of a sender that the pages can show.
func sendersToShow(t *testing.T, l *localProgram) {
	t.Helper()
	client, ctx := l.client(), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for id, put := range map[string]api.PutSender{
		"none": {},
		"stripe": {
			Preset:   "stripe",
			Secrets:  []string{"whsec_the-secret-of-stripe"},
			Settings: map[string]string{"toleranceSeconds": "600"},
		},
		"discord": {
			Preset:  "discord",
			Secrets: []string{"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"},
		},
		"notion":   {Preset: "notion"},
		"captured": {Preset: "notion"},
		"plain": {
			Preset:   "plain",
			Settings: map[string]string{"deliveryId": "ptr:/event/id, header:X-Mine"},
		},
	} {
		_, err := client.PutWorkflow(ctx, id, api.PutWorkflow{
			AccountID: "demo",
			Name:      id,
			Triggers: []api.PutTrigger{
				{NodeID: "node", SamplePayload: []byte(`{"hello":"world"}`)},
			},
		})
		must(err)
		_, err = client.Activate(ctx, id)
		must(err)
		if put.Preset != "" {
			_, err = client.PutSender(ctx, id, "node", put)
			must(err)
		}
	}
	kept := int64(86_400)
	_, err := client.AddSenderSecret(ctx, "stripe", "node", api.AddSenderSecret{
		Secret:                "whsec_the-next-of-stripe",
		EndOthersAfterSeconds: &kept,
	})
	must(err)
	for _, body := range []string{`{"id":"evt_1"}`, `{"none":1}`} {
		sent, err := client.SendTest(ctx, "stripe", "node", api.SendTest{Body: &body})
		must(err)
		if !sent.Success {
			t.Fatalf("%+v", sent)
		}
	}
	forged := sender.Request{Method: "POST", Body: []byte(`{}`)}
	signed, err := sender.Sign(sender.Config{
		Preset:  "stripe",
		Secrets: []sender.Secret{{Text: "whsec_another"}},
	}, forged, time.Now())
	must(err)
	trigger, err := client.Trigger(ctx, "stripe", "node")
	must(err)
	a, err := post(ctx, trigger.URL, map[string]string{
		"Stripe-Signature": signed.Header["Stripe-Signature"][0],
	}, strings.NewReader(`{}`))
	must(err)
	if a.Status != 401 {
		t.Fatalf("forged: %+v", a)
	}
	brings, err := client.Trigger(ctx, "captured", "node")
	must(err)
	first, err := http.NewRequestWithContext(ctx, http.MethodPost, brings.URL,
		strings.NewReader(`{"verification_token":"secret_of-notion-0123"}`))
	must(err)
	first.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(first)
	must(err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("notion's first post: %s", answer.Status)
	}
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, err := client.Sender(ctx, "stripe", "node")
		must(err)
		// Read the node with Trigger, which leaves the captured secret unread. Sender would return
		// the secret, which the API shows only once, so the page could no longer show it.
		brought, err := client.Trigger(ctx, "captured", "node")
		must(err)
		if seen.LastRefusal != nil && seen.DeliveriesWithoutID == 1 &&
			len(brought.Sender.Secrets) == 1 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("the executor was not told: %+v, %+v", seen, brought.Sender)
		}
	}
}

// The section "Sender" and its dialogs have no axe-core violations in any state, are not wider than
// the window, and cause no browser errors. If HOOKSTART_SCREENSHOTS is set to a folder, the test
// takes a screenshot of each state for people to look at.
func TestSenderPages(t *testing.T) {
	t.Parallel()
	findChromium(t)
	axe, installed := readAxe(t)
	if !installed {
		t.Skip("axe is not installed: npm ci --ignore-scripts --prefix deploy/e2e/testdata/axe")
	}
	l := launchLocal(t, t.TempDir())
	sendersToShow(t, l)
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(b.base + "/workflows/none"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("none")
	folder := os.Getenv("HOOKSTART_SCREENSHOTS")
	looks := []struct {
		scheme string
		width  int64
	}{{"light", 1440}, {"dark", 375}, {"light", 375}, {"dark", 1440}}
	for _, state := range senderStates() {
		setLook(b, "light", 1440)
		b.visit("/workflows/" + state.workflow)
		b.wait(fragmentsAreThere)
		state.do(b)
		b.do(chromedp.Evaluate[chromedp.Void](axe))
		for _, look := range looks[:2] { // both schemes and both widths, but not all combinations
			setLook(b, look.scheme, look.width)
			if found := violations(b); found != "" {
				t.Errorf("%s, %s, %d px wide:\n%s", state.name, look.scheme, look.width, found)
			}
			checkWidth(t, b, state.name, look.width)
		}
		if folder == "" {
			continue
		}
		// The screenshot shows only the section, so that it is large enough to read.
		b.evaluate(`for (const each of document.querySelectorAll(".top, .toolbar, .jump, .crumbs, #executions, #settings")) { each.hidden = true; each.style.display = "none" }; ""`)
		for _, look := range looks {
			setLook(b, look.scheme, look.width)
			b.check(os.WriteFile(folder+"/senders-"+state.name+"-"+look.scheme+"-"+
				strconv.Itoa(int(look.width))+".png", (&camera{b, folder}).picture(look.width),
				0o600))
		}
	}
	b.contented()
}

// An operator can choose, test, rotate and remove a sender without a mouse.
func TestSenderByKeyboard(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	to := func(selector string) { t.Helper(); focus(b, selector) }
	b.do(chromedp.Navigate(b.base + "/workflows/demo"))
	b.wait(`document.activeElement.id === "token"`)
	press(adminToken + kb.Enter)
	b.page("Demo")

	to("[data-choose] summary")
	press(kb.Enter)
	to("#preset")
	press("Stripe")
	b.see("#sender-secret")
	to("#sender-secret")
	press("whsec_the-first-secret" + kb.Enter)
	b.text("[data-done]", "The sender is set")
	b.text("#sender-seen", "cret")

	to("[data-send-test]")
	press(kb.Enter)
	b.text("[data-sample-said]", "Sent as Stripe does, and accepted.")
	b.wait(`document.activeElement.matches("[data-send-test]")`)

	// A test request that the filter rejects is not shown as a handshake.
	if _, err := l.client().PatchTrigger(t.Context(), "demo", "webhook",
		apiclient.Patch{"filter": map[string]string{"ptr:/action": "opened"}}); err != nil {
		t.Fatal(err)
	}
	press(kb.Enter)
	b.text("[data-sample-said]", "It does not meet the filter, so it starts nothing.")

	b.visit("/workflows/demo")
	to("details:has(#new-secret-form) summary")
	press(kb.Enter)
	to("#new-secret")
	press("whsec_the-next-one" + kb.Enter)
	b.text("[data-done]", "The new secret works")
	to("li:nth-child(2) [id$=':end']")
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	press(kb.Escape)
	b.wait(`!document.querySelector("dialog[open]") && document.activeElement.matches("[id$=':end']")`)
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	to("dialog[open] [value=yes]")
	press(kb.Enter)
	b.text("[data-done]", "The secret has ended")

	to("#remove-sender")
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	press(kb.Escape)
	b.wait(`!document.querySelector("dialog[open]") && document.activeElement.matches("#remove-sender")`)
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	to("dialog[open] [value=yes]")
	press(kb.Enter)
	b.text("[data-done]", "The sender is removed")
	b.see("[data-choose]")
	b.contented()
}

// focus presses Tab until the element that matches selector has the focus, and fails the test if
// the browser draws no outline around it.
func focus(b *tab, selector string) {
	b.t.Helper()
	for range 80 {
		if b.evaluate(`String(document.activeElement.matches(`+quote(selector)+`))`) == "true" {
			if b.evaluate(`getComputedStyle(document.activeElement).outlineStyle`) == "none" {
				b.t.Errorf("one cannot see that the focus is on %s", selector)
			}
			return
		}
		b.do(chromedp.KeyEvent(kb.Tab))
	}
	b.t.Fatalf("the focus does not come to %s", selector)
}
