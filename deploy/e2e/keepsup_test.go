package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// A page that stays open shows the changes that other pages and clients make.
func TestConsoleKeepsUp(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocalWithLink(t)
	b := openBrowser(t, l.executor)
	b.do(chromedp.Navigate(l.Await(`\nConsole +(\S+)`)))
	b.page("Overview")

	goOnAfterLast(t, b, l)
	changedByOthers(t, b, l)
	ownIsShown(t, b, l)
	failuresGo(b)
	zoneIsSaid(t, b)
	b.contented()
}

// goOnAfterLast follows the link "Older" on lists to which rows have been added since the page was
// opened, and checks that the next page begins with the row after the last one shown.
func goOnAfterLast(t *testing.T, b *tab, l *localProgram) {
	t.Helper()
	const shown = `[...document.querySelectorAll("[data-id]")].map((row) => row.dataset.id)`
	b.visit("/workflows/demo") // the list is empty, so it has no link "Older"
	b.see("[data-live-state].on")
	b.do(chromedp.MouseEvent("mouseMoved", 1, 1)) // the list does not change under the pointer
	var ids []string
	start := func(n int) {
		t.Helper()
		for range n {
			started, err := l.client().RerunTrigger(t.Context(), "demo", "webhook")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, started.ExecutionID)
		}
		b.wait(shown + `[0] === ` + quote(ids[len(ids)-1]))
	}
	older := func(path string) {
		t.Helper()
		b.click("[data-older]")
		b.wait(`location.search.includes("after=") && location.pathname === ` + quote(path) + ` && ` + shown + `[0] === ` + quote(ids[len(ids)-1-25]))
	}
	start(30)
	older("/workflows/demo")
	b.visit("/executions") // the list is full, so it has the link "Older"
	b.see("[data-live-state].on")
	start(30)
	older("/executions")
}

// changedByOthers checks that the open page shows the changes that another client makes to the
// workflow.
func changedByOthers(t *testing.T, b *tab, l *localProgram) {
	t.Helper()
	b.do(chromedp.EmulateViewport(375, 900))
	b.visit("/workflows/demo")
	b.wait(fragmentsAreThere)
	b.text("#tokens", "never used")
	b.evaluate(`document.querySelector("[data-switch]").focus() ?? ""`)
	const top = `String(document.querySelector(".editor").getBoundingClientRect().top)`
	before := b.evaluate(top)
	if _, err := l.client().Deactivate(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	b.text("#state", "Inactive")
	b.text("#quota", "0 active")
	b.wait(`document.activeElement.matches("[data-switch][aria-checked=false]")`)
	if after := b.evaluate(top); after != before {
		t.Errorf("what is below was at %s, and is at %s now", before, after)
	}
	if _, err := l.client().Activate(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	b.wait(`document.querySelector("[data-switch][aria-checked=true]")`)
	if a, err := post(t.Context(), l.webhook, nil, strings.NewReader("x")); err != nil ||
		a.Status != 200 {
		t.Fatalf("POST to the demo: %+v, %v", a, err)
	}
	b.text("#tokens", "last used")

	const height = `String(document.querySelector("[data-sample]").offsetHeight)`
	before = b.evaluate(height)
	b.write("#sample", " ")
	b.see("[data-unsaved].on")
	if after := b.evaluate(height); after != before {
		t.Errorf("the form is %s px high when it has something to save, and was %s", after, before)
	}
	b.click("[data-save-sample]")
	b.text("[data-sample-said]", "Saved")
	b.do(chromedp.EmulateViewport(1440, 900))
}

// ownIsShown starts executions while the pointer or the focus is in the list. An execution that the
// user starts appears at once; one that another client starts appears only after the pointer has
// left the list.
func ownIsShown(t *testing.T, b *tab, l *localProgram) {
	t.Helper()
	b.visit("/workflows/demo?within=1h")
	b.see("[data-live-state].on")
	const newest = `document.querySelector("[data-id]").dataset.id`
	before := b.evaluate(newest)
	// Fake the responses to the page's requests for the list: return an old list, which lacks the
	// execution that is started below. After the page has shown "Started", return the old list once
	// more, and then let all further requests through. The new row can therefore come only from a
	// later response.
	b.evaluate(`(async () => {
		const rows = document.querySelector("[data-live]").dataset.live, real = fetch;
		const old = await (await real(rows)).text();
		window.fetch = (...request) => {
			if (request[0] !== rows) return real(...request);
			if (document.querySelector("#again-list-said").innerText.includes("Started")) {
				window.fetch = real;
				window.oldShown = true;
			}
			return Promise.resolve(new Response(old));
		};
		return "";
	})()`)
	b.click(`[data-id] [id$=":run-again"]`)
	b.click(`dialog[open] [formaction$="/rerun"]`)
	// Put the pointer and the focus back into the list. While they are there, the page must insert
	// the user's own executions, but not those that other clients start.
	hover(b, `[data-id] [id$=":run-again"]`)
	b.wait(`window.oldShown`)
	// Make the page fetch the list once more.
	b.evaluate(`document.dispatchEvent(new Event("visibilitychange")), ""`)
	b.wait(newest + ` !== ` + quote(before))
	own := b.evaluate(newest)
	b.wait(`document.querySelector("[data-live-show]").hidden && document.activeElement.matches("[id$=':run-again']")`)

	others, err := l.client().RerunTrigger(t.Context(), "demo", "webhook")
	if err != nil {
		t.Fatal(err)
	}
	b.text("[data-live-show]", "1 new: show")
	if now := b.evaluate(newest); now != own {
		t.Errorf("%s came under the pointer", now)
	}
	b.do(chromedp.MouseEvent("mouseMoved", 1, 1))
	b.wait(newest + ` === ` + quote(others.ExecutionID))
}

// hover moves the pointer to an element.
func hover(b *tab, selector string) {
	b.t.Helper()
	var x, y float64
	at := b.evaluate(`{ const box = document.querySelector(` + quote(selector) + `).getBoundingClientRect(); box.x + box.width / 2 + " " + (box.y + box.height / 2); }`)
	if _, err := fmt.Sscan(at, &x, &y); err != nil {
		b.t.Fatalf("%s is at %s: %v", selector, at, err)
	}
	b.do(chromedp.MouseEvent("mouseMoved", x, y))
}

// failuresGo makes an action of the operator fail because the executor "cannot be reached". It
// checks that this message disappears as soon as the executor can be reached again, or at the
// operator's next successful action.
func failuresGo(b *tab) {
	b.t.Helper()
	b.visit("/workflows/demo")
	b.see("[data-live-state].on")
	b.wait(fragmentsAreThere)
	const fail = `window.realFetch ??= fetch; window.fetch = () => Promise.reject(new Error("no network")); ""`
	const reach = `window.fetch = window.realFetch; ""`
	const said = `document.querySelector("#again-list-said")`
	b.evaluate(fail)
	b.click(`[data-id] [id$=":run-again"]`)
	b.wait(said + `.innerText.includes("cannot be reached")`)
	b.evaluate(reach)
	b.wait(said + `.innerText === ""`)
	b.evaluate(fail)
	b.click(`[data-id] [id$=":run-again"]`)
	b.wait(said + `.innerText.includes("cannot be reached")`)
	b.evaluate(reach)
	b.click("[data-send-test]")
	b.text("[data-sample-said]", "Started on the sample payload")
	b.wait(said + `.innerText === ""`)
}

// zoneIsSaid checks that the time shown on hover is exact and includes its time zone.
func zoneIsSaid(t *testing.T, b *tab) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"})
	b.check(err)
	for _, path := range []string{"/executions", "/workflows", "/workflows/demo"} {
		b.visit(path)
		b.see("time[data-time]")
		times := b.evaluate(`[...document.querySelectorAll("time[data-time]")].map((time) => time.title).join("\n")`)
		for title := range strings.Lines(times) {
			if !regexp.MustCompile(`:\d\d\.\d{3}.* GMT\+5:45 \(.*T.*Z\)\n?$`).MatchString(title) {
				t.Fatalf("%s: %q", path, title)
			}
		}
	}
}
