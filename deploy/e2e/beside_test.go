package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hookstart/hookstart/executor/client/api"
)

// signedInAt opens the page of the console at path, signs in with the admin token, and waits until
// the page is ready.
func signedInAt(b *tab, path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.wait(`"ready" in document.documentElement.dataset && !document.querySelector("#token")`)
}

// In a wide window, an execution opens in a panel next to its list, and the list keeps its
// position. In the panel, an operator can go on to the next execution and retry a failed one.
// Escape closes the panel.
func TestAnExecutionBesideItsList(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	var ids []string
	for i := range 30 {
		body := fmt.Sprintf(`{"n":%d}`, i)
		if i >= 28 {
			body = fmt.Sprintf(`{"fail":"reason %d\nand more"}`, i)
		}
		header := map[string]string{"Content-Type": "application/json"}
		a, err := post(t.Context(), l.webhook, header, strings.NewReader(body))
		if err != nil || a.Status != 200 {
			t.Fatalf("POST: %+v, %v", a, err)
		}
		recorded(t, l.client(), a.ExecutionID, func(e api.ExecutionDetail) bool {
			return e.Status == "succeeded" || e.Status == "failed"
		})
		ids = append(ids, a.ExecutionID)
	}
	b := openBrowser(t, l.executor)
	signedInAt(b, "/executions")
	b.do(chromedp.EmulateViewport(1440, 900))
	b.text(`[data-id="`+ids[29]+`"] .why`, "reason 29")
	if said := b.evaluate(`document.querySelector('[data-id="` + ids[29] + `"]').innerText`); strings.Contains(said, "and more") {
		t.Errorf("the row has more than the first line: %s", said)
	}
	b.evaluate(`window.stayed = true; scrollTo(0, 300); ""`)
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	row := func(i int) string { return `[data-id="` + ids[i] + `"] .when` }
	b.evaluate(`document.querySelector(` + quote(row(20)) + `).focus({ preventScroll: true }); ""`)
	press(kb.Enter)
	b.text(".beside #input-tree", `"n": 20`)
	b.text(".beside h2", "Succeeded")
	b.wait(`document.activeElement.matches(".beside") && window.stayed && scrollY === 300`)
	b.wait(`document.querySelector(` + quote(row(20)) + `).ariaCurrent === "true"`)
	b.click(".beside #input-raw-tab")
	b.text(".beside #input-text", `{"n":20}`)
	b.click(`.beside [data-beside-step="-1"]`)
	b.text(".beside #input-tree", `"n": 21`)
	press(kb.Escape)
	b.wait(`!document.querySelector(".beside") && window.stayed`)
	b.wait(`document.activeElement.matches(` + quote(row(21)) + `)`)

	// The result of an action in the panel is shown in the panel.
	b.evaluate(`scrollTo(0, 0); ""`)
	b.click(row(29))
	b.text(".beside #failure", "and more")
	b.click(".beside #retry")
	b.text(".beside #again-said", "Started on the same request.")
	b.click(".beside #again-said a")
	b.text(".beside main, .beside .facts", "a retry of "+ids[29])
	b.evaluate(`history.back(); ""`) // like the browser's Back button
	b.wait(`!document.querySelector(".beside") && window.stayed`)
	b.text(`[data-id="`+ids[29]+`"] .came`, "retried")
	if axe, installed := readAxe(t); installed {
		b.click(row(28))
		b.text(".beside #failure", "reason 28")
		b.do(chromedp.Evaluate[chromedp.Void](axe))
		for _, scheme := range []string{"light", "dark"} {
			setLook(b, scheme, 1440)
			if found := violations(b); found != "" {
				t.Errorf("%s:\n%s", scheme, found)
			}
		}
		press(kb.Escape)
	}

	// On a phone, clicking a row opens the execution's own page instead of a panel.
	b.do(chromedp.EmulateViewport(375, 900))
	b.click(row(28))
	b.page("Failed")
	b.contented()
}

// Pressing the / key moves the focus to the search field. A chart shows the values of the bar under
// the pointer. Hours are shown from 0 to 23, even with the language en-US, unless the browser's
// language explicitly selects the 12-hour clock.
func TestSearchKeyChartsAndHours(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	sendActions(t, l, "opened", "closed")
	b := openBrowser(t, l.executor)
	signedInAt(b, "/")
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	b.text("#numbers", "accepted 2")
	b.evaluate(`document.querySelectorAll("[data-chart]")[0].focus(); ""`)
	press(kb.End)
	for range 3 { // go back to a bar of a minute in which a request arrived
		said := b.evaluate(`document.querySelector("[data-chart-value]").innerText`)
		if said != "" && !strings.Contains(said, "none") {
			break
		}
		press(kb.ArrowLeft)
	}
	b.text("[data-chart-value]", "accepted")
	b.evaluate(`document.activeElement.blur(); ""`)
	b.wait(`document.querySelector("[data-chart-value]").innerText === ""`)
	// Read the value immediately: the simulated event does not move the real pointer, so the next
	// refresh of the numbers removes the value.
	said := b.evaluate(`{
		const bars = [...document.querySelectorAll(".step")];
		const bar = bars.find((each) => each.dataset.value.includes("accepted"));
		bar.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
		bar.closest("[data-chart]").parentElement.querySelector("[data-chart-value]").innerText
	}`)
	if !strings.Contains(said, "accepted") {
		t.Errorf("the chart says %q of the bar under the pointer", said)
	}

	press("/")
	b.page("Executions")
	b.wait(`document.activeElement.name === "delivery"`)
	locale := emulation.SetLocaleOverrideParams{Locale: "en-US"}
	_, err := chromedp.Call(b.ctx, emulation.SetLocaleOverride, locale)
	b.check(err)
	b.visit("/executions")
	b.wait(`/\d\d:\d\d/.test(document.querySelector(".execution time").title)`)
	if title := b.evaluate(`document.querySelector(".execution time").title`); strings.Contains(title, "AM") ||
		strings.Contains(title, "PM") {
		t.Errorf("the time is %s", title)
	}
	// The part u-hc-h12 of a language tag explicitly selects the 12-hour clock.
	_, err = chromedp.Call(b.ctx, emulation.SetUserAgentOverride,
		emulation.SetUserAgentOverrideParams{
			UserAgent:      b.evaluate(`navigator.userAgent`),
			AcceptLanguage: "en-US-u-hc-h12",
		})
	b.check(err)
	b.visit("/executions")
	b.wait(`/\d\d:\d\d:\d\d\.\d+ [AP]M/.test(document.querySelector(".execution time").title)`)
	b.contented()
}

// If the program has a demo runner, a new operator's first workflow uses the queue of that runner,
// so its executions run immediately.
func TestTheFirstWorkflowRuns(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	signedInAt(b, "/new-workflow")
	b.write("#name", "My first")
	b.click("#new-workflow .primary")
	b.page("My first")
	b.text("#title", "A demo runner in this program takes its queue")
	b.write("#sample", `{"hello": "world"}`)
	b.click("[data-send-test]")
	b.text(".execution .status", "Succeeded")
	b.contented()
}
