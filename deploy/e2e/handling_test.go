package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// sendActions posts a request for each action. If the node's filter accepts a request, sendActions
// waits until the request's execution has succeeded.
func sendActions(t *testing.T, l *localProgram, actions ...string) {
	t.Helper()
	for _, action := range actions {
		a, err := post(t.Context(), l.webhook,
			map[string]string{"Content-Type": "application/json", "X-GitHub-Event": "pull_request"},
			strings.NewReader(`{"action":"`+action+`","number":12345678901234567890,"repository":{"full_name":"acme/shop"}}`))
		if err != nil || a.Status != 200 {
			t.Fatalf("POST: %+v, %v", a, err)
		}
		if a.ExecutionID != "" {
			recorded(t, l.client(), a.ExecutionID,
				func(e api.ExecutionDetail) bool { return e.Status == "succeeded" })
		}
	}
}

// Without a mouse, an operator creates a node's filter from the fields of recent requests, tries it
// on these requests, saves it and removes it. The same works for the order key and the response.
func TestHandlingByKeyboard(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	sendActions(t, l, "opened", "closed", "opened")
	b := openBrowser(t, l.executor)
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	to := func(selector string) { t.Helper(); focus(b, selector) }
	b.do(chromedp.Navigate(b.base + "/workflows/demo"))
	b.wait(`document.activeElement.id === "token"`)
	press(adminToken + kb.Enter)
	b.page("Demo")
	now := func() api.Trigger {
		t.Helper()
		trigger, err := l.client().Trigger(t.Context(), "demo", "webhook")
		if err != nil {
			t.Fatal(err)
		}
		return trigger
	}

	b.text("#filter-now", "every request starts an execution")
	to("[data-filter-details] summary")
	press(kb.Enter)
	b.text("[data-trial]", "4 of the last 4 requests start an execution")
	to(`[data-place="ptr:/action"][data-value='"opened"']`)
	press(kb.Enter)
	b.wait(`document.activeElement.matches("[data-place][aria-pressed=true]")`)
	said := b.text("[data-trial]", "2 of the last 4 requests")
	if !strings.Contains(said, "ptr:/action is closed") ||
		!strings.Contains(said, "ptr:/action is not there") {
		t.Errorf("the trial says: %s", said)
	}
	to(`[data-place="ptr:/number"]`)
	press(" ")
	b.wait(`document.querySelector("#filter").value.includes("12345678901234567890")`)
	press(" ")
	b.wait(`!document.querySelector("#filter").value.includes("number")`)
	to("#filter")
	press(kb.End + "x")
	b.text("#filter-form-said.bad", "Not JSON: line")
	b.wait(`document.querySelector("#filter").getAttribute("aria-invalid") === "true"`)
	b.do(chromedp.SetValue(chromedp.CSS("#filter"), `{"ptr:/action": {"$is": "opened"}}`))
	to("[data-handling=filter] .primary")
	press(kb.Enter)
	b.text("#filter-form-said.bad", `ptr:/action: there is no operator "$is"`)
	if trigger := now(); trigger.Filter != nil {
		t.Errorf("the filter is %s", trigger.Filter)
	}
	b.wait(`document.activeElement.id === "filter"`)
	b.do(chromedp.SetValue(chromedp.CSS("#filter"), `{"ptr:/action": "opened", "ptr:/number": 12345678901234567890}`))
	to("[data-handling=filter] .primary")
	press(kb.Enter)
	b.text("[data-done]", "The filter is saved")
	b.text("#filter-now", `ptr:/action is "opened"`)
	if trigger := now(); string(trigger.Filter) != `{"ptr:/action":"opened","ptr:/number":12345678901234567890}` {
		t.Errorf("the filter is %s", trigger.Filter)
	}
	sendActions(t, l, "closed")
	b.text("#filter-now", "1 filtered")
	to("#filter-now summary")
	press(kb.Enter)
	b.text("#filter-now table", "ptr:/action")

	// Let another client change the node while the page is open. The operator's first attempt to
	// save must not overwrite that change.
	if _, err := l.client().PatchTrigger(t.Context(), "demo", "webhook",
		apiclient.Patch{"orderKey": "ptr:/theirs"}); err != nil {
		t.Fatal(err)
	}
	to("details:has([data-handling=orderKey]) summary")
	press(kb.Enter)
	b.wait(`document.querySelector("#seen-places option[value='ptr:/repository/full_name']")`)
	to("#order-key")
	press("repository" + kb.Enter)
	b.text("#order-form-said.bad", "somebody else has changed the order key to “ptr:/theirs”")
	press(kb.Enter)
	b.text("#order-form-said.bad", "a place is header:Name")
	b.wait(`document.querySelector("#order-key").getAttribute("aria-invalid") === "true"`)
	b.do(chromedp.SetValue(chromedp.CSS("#order-key"), "ptr:/nowhere"))
	press("x")
	b.text("[data-counted]", "0 of the last ")
	b.do(chromedp.SetValue(chromedp.CSS("#order-key"), "ptr:/repository/full_name"))
	press(kb.Enter)
	b.text("[data-done]", "The order key is saved")
	b.text("#order-now", "each value of ptr:/repository/full_name")

	to("details:has([data-handling=answer]) summary")
	press(kb.Enter)
	to("#wait")
	press("10")
	to("[data-handling=answer] [name=raw]")
	press(" ")
	to("[data-handling=answer] .primary")
	press(kb.Enter)
	b.text("[data-done]", "The answer is saved")
	b.text("#answer-now",
		"Waits up to 10 s for the end of the execution; its output alone is the answer.")
	if trigger := now(); trigger.OrderKey != "ptr:/repository/full_name" || trigger.Answer == nil ||
		*trigger.Answer != (api.Answer{WaitSeconds: 10, Raw: true}) {
		t.Errorf("the node is %+v", trigger)
	}

	for form, gone := range map[string]string{
		"filter":   "every request starts",
		"orderKey": "executions have no order", "answer": "does not wait any more",
	} {
		to("details:has([data-handling=" + form + "]) summary")
		press(kb.Enter)
		to("[data-handling=" + form + "] [value=take-away]")
		press(kb.Enter)
		b.text("[data-done]", gone)
	}
	if trigger := now(); trigger.Filter != nil || trigger.OrderKey != "" || trigger.Answer != nil {
		t.Errorf("the node is %+v", trigger)
	}
	b.contented()
}

// The pages for a node's request handling have no axe-core violations in any state, are not wider
// than the window, and cause no browser errors. If HOOKSTART_SCREENSHOTS is set to a folder, the
// test takes a screenshot of each state for people to look at.
func TestHandlingPages(t *testing.T) {
	t.Parallel()
	findChromium(t)
	axe, installed := readAxe(t)
	if !installed {
		t.Skip("axe is not installed: npm ci --ignore-scripts --prefix deploy/e2e/testdata/axe")
	}
	l := launchLocal(t, t.TempDir())
	sendActions(t, l, "opened", "closed", strings.Repeat("W", 200))
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(b.base + "/workflows/demo"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("Demo")
	open := func(b *tab) {
		b.evaluate(`document.querySelectorAll("details:has([data-handling]), #filter-now details").forEach((each) => { each.open = true }) ?? ""`)
		b.see("[data-trial-result] table")
	}
	patch := func(p apiclient.Patch) {
		t.Helper()
		if _, err := l.client().PatchTrigger(t.Context(), "demo", "webhook", p); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []struct {
		name string
		do   func(*tab)
	}{
		{"none", open},
		{"chosen", func(b *tab) {
			open(b)
			b.click(`[data-place="ptr:/action"]`)
			b.text("[data-trial]", "starts nothing")
		}},
		{"invalid", func(b *tab) {
			open(b)
			b.do(chromedp.SetValue(chromedp.CSS("#filter"), `{"ptr:/action": {"$is": "opened"}}`))
			b.click("[data-handling=filter] .primary")
			b.text("#filter-form-said.bad", "there is no operator")
		}},
		{"all", func(b *tab) {
			patch(apiclient.Patch{
				"filter": map[string]any{
					"ptr:/action":           []string{"opened", "reopened"},
					"header:X-GitHub-Event": "pull_request",
				},
				"orderKey": "ptr:/repository/full_name",
				"answer":   api.Answer{WaitSeconds: 10, Raw: true},
			})
			sendActions(t, l, "closed", strings.Repeat("W", 200))
			b.evaluate(`location.reload() ?? ""`)
			b.text("#filter-now", "2 filtered")
			open(b)
		}},
	} {
		setLook(b, "light", 1440)
		b.evaluate(`document.querySelectorAll("form").forEach((each) => { each.reset() }) ?? ""`) // otherwise the browser asks whether to leave
		b.visit("/workflows/demo")
		b.wait(fragmentsAreThere)
		state.do(b)
		checkInAllLooks(t, b, axe, "handling-"+state.name)
	}
	b.contented()
}
