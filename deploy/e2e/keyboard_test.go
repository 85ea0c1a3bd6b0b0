package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Everything can be done without a mouse.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	// to goes on by Tab until the focus is there.
	to := func(selector string) {
		t.Helper()
		for range 80 {
			if b.evaluate(`String(document.activeElement.matches(`+quote(selector)+`))`) == "true" {
				if b.evaluate(`getComputedStyle(document.activeElement).outlineStyle`) == "none" {
					t.Errorf("one cannot see that the focus is on %s", selector)
				}
				return
			}
			press(kb.Tab)
		}
		t.Fatalf("the focus does not come to %s", selector)
	}

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
	press(" ") // the focus is still there
	b.text("#state", "Active")
	to("[data-show-token]")
	press(kb.Enter)
	b.text("#webhook-url", "hst_")
	to(".rotate summary")
	press(kb.Enter)
	to("[data-rotate] select")
	press(kb.ArrowUp) // ends at once
	to("[data-rotate] button")
	press(kb.Enter)
	b.text("[data-token-said]", "The old one ended at once")
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
	to("[data-run-again]")
	press(kb.Enter)
	b.text("[data-said]", "Started on the sample payload")

	b.visit("/workflows/demo")
	to("[data-delete]")
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	press(kb.Escape)
	b.wait(`!document.querySelector("dialog[open]") && document.activeElement.matches("[data-delete]")`)
	press(kb.Enter)
	b.wait(`document.activeElement.matches("dialog[open] [value=no]")`)
	b.evaluate(`String(document.querySelector("dialog").dispatchEvent(new Event("close")))`) // late, about the first time
	to("dialog [value=yes]")
	press(kb.Enter)
	b.page("Workflows")
	b.text("[data-done]", "“Demo” is deleted.")
	b.contented()
}
