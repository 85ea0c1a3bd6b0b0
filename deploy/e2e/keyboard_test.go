package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hookstart/hookstart/executor/client/api"
)

// Without a mouse, an operator can sign in and open pages, switch a workflow off and on, rotate its
// token, send a test request, read an execution and run it again, and delete a workflow.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	to := func(selector string) { t.Helper(); focus(b, selector) }

	b.do(chromedp.Navigate(b.base + "/sign-in"))
	b.wait(`document.activeElement.id === "token"`)
	press(adminToken + kb.Enter)
	b.page("Overview")
	to(".skip")
	press(kb.Enter)
	b.wait(`document.activeElement.id === "main"`)

	b.visit("/")
	to(`nav a[href="/workflows"]`)
	press(kb.Enter)
	b.page("Workflows")
	to(`a[href="/workflows/demo"]`)
	press(kb.Enter)
	b.page("Demo")

	to("[data-switch]")
	press(" ")
	b.text("#state", "Inactive")
	press(" ") // the focus is still on the switch, although the page has changed
	b.text("#state", "Active")
	to("[data-show-token]")
	press(kb.Enter)
	b.text("#webhook-url", "hst_")
	to(".rotate summary")
	press(kb.Enter)
	to("[data-rotate] select")
	press(kb.ArrowUp) // the old token expires immediately
	to("[data-rotate] button")
	press(kb.Enter)
	b.text("[data-done]", "The old one ended at once")
	to("#sample")
	press(" ")
	b.text("[data-sample-said]", "Valid JSON")
	to("[data-send-test]")
	press(kb.Enter)
	b.text("[data-sample-said]", "Started on the sample payload")
	b.wait(`document.activeElement.matches("[data-send-test]")`)
	to("#tab-curl")
	press(kb.ArrowRight + kb.ArrowRight)
	b.text("#snippet-python", "urllib")

	b.see(".execution")
	to(".execution .when")
	press(kb.Enter)
	b.text(".timeline", "Stored")
	to("#input-tree-tab")
	press(kb.ArrowRight)
	b.text("#input-text", "hello")
	to("#run-again")
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [formaction$='/replay']")`)
	press(kb.Escape)
	b.wait(`!document.querySelector("dialog[open]") && document.activeElement.matches("#run-again")`)
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [formaction$='/replay']")`)
	press(kb.Tab + kb.Enter)
	b.text("#again-said", "Started on the sample payload")

	b.visit("/workflows/demo")
	to("[data-delete]")
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	press(kb.Escape)
	b.wait(`!document.querySelector("dialog[open]") && document.activeElement.matches("[data-delete]")`)
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	// The close event of the dialog that Escape closed above may arrive only after the dialog has
	// been opened again. Simulate this: the dialog must ignore the event.
	b.evaluate(`String(document.querySelector("dialog[open]").dispatchEvent(new Event("close")))`)
	to("dialog [value=yes]")
	press(kb.Enter)
	b.page("Workflows")
	b.text("[data-done]", "“Demo” is deleted.")
	b.contented()
}

// Using only the keyboard, an operator can change filters, which take effect immediately, and can
// select several dead letters and requeue them.
func TestDeadLettersByKeyboard(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	ids := []string{}
	for _, body := range []string{`{"fail":"this one"}`, `{"fail":"that one"}`, `{"fail":"another"}`} {
		a, err := post(t.Context(), l.webhook, map[string]string{
			"Content-Type": "application/json", "X-GitHub-Delivery": "gh-" + body[9:13],
		}, strings.NewReader(body))
		if err != nil || a.Status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		ids = append(ids, a.ExecutionID)
	}
	for _, id := range ids {
		recorded(t, l.client(), id,
			func(e api.ExecutionDetail) bool { return e.Status == "failed" })
	}
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(b.base + "/sign-in?next=/dead-letters"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("Dead letters")
	rows := func(n string) {
		t.Helper()
		b.wait(`document.documentElement.dataset.ready !== undefined && document.querySelectorAll(".dead-letters tbody tr").length === ` + n)
	}
	rows("3")
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	b.do(chromedp.Focus(chromedp.CSS("[name=reason]")))
	press("one" + kb.Tab) // without pressing "Filter"
	rows("2")
	b.wait(`document.activeElement.name === "reason"`)
	b.do(chromedp.Focus(chromedp.CSS("[data-bulk-page]")))
	press(" ")
	b.text("[data-bulk-do=requeue]", "the 2 selected")
	press(kb.Tab)
	press(kb.Enter)
	b.see("dialog[open]")
	press(kb.Escape) // closes the dialog without requeueing
	press(kb.Enter)
	b.text("dialog[open]", "Retry the 2 selected?")
	press(kb.Tab + kb.Enter)
	b.text("[data-done]", "2 retried.")
	within(t, time.Minute, "second failure of both",
		func() bool { return len(deadLetters(t, l)) == 3 })
	b.visit("/dead-letters?reason=another")
	rows("1")
	b.do(chromedp.Focus(chromedp.CSS("[data-bulk-do=dismiss]")))
	press(kb.Enter)
	b.text("dialog[open]", "Dismiss all that match?")
	// The executor may process only part of the dead letters and say so in the response, and the
	// page then posts the form again. Fake such a response to the first post.
	b.evaluate(`(() => {
		const real = fetch;
		window.fetch = () => {
			window.fetch = (...request) => new Promise((resolve) => {
				window.goOn = () => resolve(real(...request));
			});
			return Promise.resolve(Response.json({
				page: "/dead-letters", done: "10 so far …", again: { "so-far.0": "10" },
			}));
		};
		return "";
	})()`)
	press(kb.Tab + kb.Enter)
	b.text("#bulk-form-said", "10 so far …")
	b.see("[data-bulk-do=dismiss][aria-disabled=true]")
	b.evaluate(`String(goOn())`)
	b.text("[data-done]", "11 dismissed.")
	b.text("main", "Nothing matches these filters.")

	// Executions can be filtered by workflow and by the beginning of a delivery ID. An execution
	// can be run again from its page, and the dialog then asks "Run again on what?".
	b.visit("/executions")
	b.do(chromedp.Focus(chromedp.CSS("[name=delivery]")))
	press("gh-tha" + kb.Tab)
	b.wait(`new URLSearchParams(location.search).get("delivery") === "gh-tha" && document.querySelectorAll(".execution").length === 1`)
	b.text(".execution .size", "application/json")
	b.do(chromedp.Focus(chromedp.CSS("[name=of]")))
	press("none" + kb.Tab)
	b.text(".executions", "Nothing matches these filters.")
	b.visit("/executions/" + ids[2])
	b.do(chromedp.Focus(chromedp.CSS("#run-again")))
	press(kb.Enter)
	b.text("dialog[open]", "Run again on what?")
	press(kb.Enter)
	b.text("#again-said", "Started on the same request.")
	b.click("#again-said a")
	b.text("main", "Run again, on the request of "+ids[2])
	b.visit("/queues")
	b.text(".queues", "1 member")
}

// Three dialogs work without a mouse: deleting an empty account, deleting an account that is not
// empty, which is refused, and replaying a rejected request. The focus moves into a dialog when it
// opens. Escape closes the dialog without any effect, and returns the focus to the button.
func TestDialogsByKeyboard(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	if _, err := l.client().PutAccount(t.Context(), "empty",
		api.PutAccount{Name: "Empty", Plan: "free"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client().Deactivate(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	a, err := post(t.Context(), l.webhook, nil, strings.NewReader("while it was off"))
	if err != nil || a.Status != 403 {
		t.Fatalf("%+v, %v", a, err)
	}
	recorded(t, l.client(), a.ExecutionID,
		func(e api.ExecutionDetail) bool { return e.Status == "rejected" })
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(b.base + "/sign-in?next=/accounts"))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("Accounts")
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	// asked opens a button's dialog twice: it closes the dialog with Escape the first time, and
	// confirms it the second time.
	asked := func(button, title string) {
		t.Helper()
		b.wait(`document.documentElement.dataset.ready !== undefined`)
		b.do(chromedp.Focus(chromedp.CSS(button)))
		press(kb.Enter)
		b.text("dialog[open]", title)
		b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
		press(kb.Escape)
		b.wait(`!document.querySelector("dialog[open]") && document.activeElement.matches(` + quote(button) + `)`)
		press(" ")
		b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
		press(kb.Tab)
		b.wait(`document.activeElement.matches("dialog[open] [value=yes]")`)
		press(kb.Enter)
	}
	asked(`[form="demo:delete"]`, "Delete “Demo”?")
	b.text(`[id="demo:delete-said"]`, "workflow")
	asked(`[form="empty:delete"]`, "Delete “Empty”?")
	b.text("[data-done]", "“Empty” is deleted.")
	b.visit("/executions?status=rejected")
	asked("[data-replay-all-do]", "Run all rejected executions that match again?")
	b.text("[data-done]", "1 run again.")
	b.visit("/executions?status=succeeded")
	b.see(".execution")
	b.contented()
}
