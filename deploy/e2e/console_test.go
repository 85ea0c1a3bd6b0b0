package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hookstart/hookstart/executor/client/api"
)

// In a browser, an operator completes the tasks of the first day in the console of the real
// program: signing in, creating an account and a workflow, watching, repeating and requeueing
// executions, and changing settings.
func TestConsole(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocalWithLink(t)
	b := openBrowser(t, l.executor)

	// The sign-in link that the program prints works exactly once.
	link := l.Await(`\nConsole +(\S+)`)
	b.do(chromedp.Navigate(link))
	b.page("Overview")
	signOut(b)
	b.do(chromedp.Navigate(link))
	b.text("[role=alert]", "works once")

	// Signing in with the admin token opens the page that was requested.
	b.do(chromedp.Navigate(b.base + "/accounts"))
	b.write("#token", "wrong")
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.text("[role=alert]", "neither the admin token")
	b.write("#token", adminToken)
	b.do(chromedp.Submit(chromedp.CSS("#token")))
	b.page("Accounts")

	b.write("#name", "Acme Inc.")
	b.wait(`document.querySelector("#id").value === "acme-inc"`)
	b.do(chromedp.SetValue(chromedp.CSS("#plan"), "free"))
	b.click("#new-account .primary")
	b.text("#account-acme-inc", "0 of 1 active")
	b.text("[data-done]", "“Acme Inc.” is created.")

	demoIsSaid(b)
	url := createAndActivate(t, b)
	arrived := arriveLive(t, b, url)
	onAPhone(b)
	showIt(b, arrived)
	runAgain(b, arrived)
	refuseSome(t, b, url)
	requeue(t, b, l)
	rotate(t, b, l, url)
	hitTheLimit(b)
	changeSettings(t, b, l)
	downgrade(t, b)
	longNames(t, l)
	longKey(t, l)

	t.Run("accessibility", func(t *testing.T) {
		checkAccessibility(t, b, []string{
			"/", "/workflows", "/workflows?q=nothing", "/workflows/new-orders",
			"/workflows/invoices", "/workflows/demo", "/new-workflow", "/executions",
			"/executions?status=failed", "/executions?status=broken",
			"/executions/" + arrived, "/dead-letters", "/queues", "/executions?status=rejected",
			"/refusals", "/accounts", "/keys", "/audit", "/no/such/page",
		})
	})
	deleteIt(t, b, l)
	signOut(b)
	t.Run("accessibility of the sign-in", func(t *testing.T) {
		checkAccessibility(t, b, []string{"/sign-in", "/sign-in?once=used"})
	})
	b.do(chromedp.Navigate(b.base + "/workflows/new-orders"))
	b.see("#token")
	b.contented()
}

func signOut(b *tab) {
	b.t.Helper()
	b.click(".sign-out button")
	b.see("#token")
}

// demoIsSaid checks that the page of the demo workflow explains what its runner does, and from
// where the webhook URL can be reached.
func demoIsSaid(b *tab) {
	b.t.Helper()
	const does = `A demo runner in this program takes its queue: it answers any input, and fails on {"fail": "why"}.`
	b.visit("/workflows/demo")
	b.text("#title", does)
	b.text("[data-token-said]", "Senders on other machines cannot reach it")
	b.text("#reach", "on this machine, http://127.0.0.1:")
}

// createAndActivate creates and activates a workflow in the console. It returns the workflow's
// webhook URL, as the page's copy button copies it.
func createAndActivate(t *testing.T, b *tab) (url string) {
	t.Helper()
	b.visit("/workflows")
	b.click(".head .button")
	b.write("#name", "New orders")
	// Choose the queue default, from which no runner consumes.
	b.do(chromedp.SetValue(chromedp.CSS("#account"), "acme-inc"),
		chromedp.SetValue(chromedp.CSS("#queue"), "default"))
	// If the ID is taken, the page says so beside the field, and the form keeps its input.
	b.wait(`document.querySelector("#id").value === "new-orders"`)
	b.do(chromedp.SetValue(chromedp.CSS("#id"), "demo"))
	b.click("#new-workflow .primary")
	b.text("#id-problem", "already")
	b.do(chromedp.SetValue(chromedp.CSS("#id"), "new-orders"))
	b.click("#new-workflow .primary")
	b.page("New orders")
	b.text("[data-done]", "“New orders” is created. It is inactive")
	b.text("#state", "Inactive")
	if title := b.evaluate(`document.querySelector("#title").innerText`); strings.Contains(title, "demo runner") {
		t.Errorf("no demo: %s", title)
	}
	b.click("[data-switch]")
	b.text("#state", "Active")
	b.text("#quota", "1 of 1 active")

	if html := b.evaluate(`document.documentElement.outerHTML`); strings.Contains(html, "hst_") {
		t.Error("the token is in the page before somebody wants to see it")
	}
	b.click("[data-show-token]")
	b.text("#webhook-url", "hst_")
	b.click("[data-show-token]")
	b.wait(`!document.documentElement.outerHTML.includes("hst_")`)
	return copied(b, "webhook-url")
}

// copied presses the copy button with the given ID (data-copy), and returns what the button has
// copied to the clipboard.
func copied(b *tab, id string) string {
	b.t.Helper()
	// A pressed button says "Copied" for a while. Wait until it no longer does.
	b.wait(`!document.querySelector('[data-copy="` + id + `"]').innerText.includes("Copied")`)
	b.evaluate(`navigator.clipboard.writeText("nothing").then(() => "")`)
	b.click(`[data-copy="` + id + `"]`)
	b.text(`[data-copy="`+id+`"]`, "Copied")
	return b.evaluate(`navigator.clipboard.readText()`)
}

// arriveLive posts a request as a sender does, and checks that the open page shows the execution.
func arriveLive(t *testing.T, b *tab, url string) (executionID string) {
	t.Helper()
	b.see("[data-live-state].on")
	b.do(chromedp.MouseEvent("mouseMoved", 1, 1)) // the list does not change under the pointer
	a, err := post(t.Context(), url,
		map[string]string{"Content-Type": "application/json", "X-GitHub-Delivery": "delivery-1"},
		strings.NewReader(`{"order": 12345678901234567890, "note": "<b>bold</b>"}`))
	if err != nil || a.Status != 200 {
		t.Fatalf("POST to the copied URL: %+v, %v", a, err)
	}
	row := `[data-id="` + a.ExecutionID + `"]`
	b.text(row, "delivery-1")
	if again, err := post(t.Context(), url, map[string]string{"Content-Type": "application/json", "X-GitHub-Delivery": "delivery-1"}, strings.NewReader(`{}`)); err != nil || !again.Deduplicated {
		t.Fatalf("a repeat: %+v, %v", again, err)
	}
	if curl := copied(b, "code-curl"); !strings.Contains(curl, "'"+url+"'") {
		t.Errorf("the curl command has not the URL:\n%s", curl)
	}

	// While the focus is in the list, the rows do not move.
	b.do(chromedp.KeyEvent(kb.Tab)) // makes the browser treat the focus as set by the keyboard
	b.evaluate(`document.querySelector(` + quote(row+" .when") + `).focus() ?? ""`)
	if a, err := post(t.Context(), url, map[string]string{"Content-Type": "text/plain"},
		strings.NewReader("second")); err != nil || a.Status != 200 {
		t.Fatalf("the second POST: %+v, %v", a, err)
	}
	b.text("[data-live-show]", "1 new: show")
	b.wait(`document.querySelectorAll(".execution").length === 1`)
	b.click("[data-live-show]")
	b.wait(`document.querySelectorAll(".execution").length === 2`)
	return a.ExecutionID
}

// onAPhone checks that a phone shows a workflow's executions above its parameters, and that the
// list of delivery headers is collapsed.
func onAPhone(b *tab) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(375, 900))
	b.visit("/workflows/new-orders")
	b.wait(`document.querySelector("#executions").getBoundingClientRect().bottom <= document.querySelector("#parameters").getBoundingClientRect().top`)
	b.wait(`document.querySelectorAll("#parameters ol.headers li").length > 10`)
	b.wait(`document.querySelector("#parameters ol.headers").closest("details").open === false`)
	b.do(chromedp.EmulateViewport(1440, 900))
}

func showIt(b *tab, executionID string) {
	b.t.Helper()
	b.click(`[data-id="` + executionID + `"] .when`) // opens the execution next to the list
	b.text(".beside h2", "Queued")
	b.text(".beside #input-tree", "12345678901234567890")
	b.click("[data-beside-page]")
	b.page("Queued")
	b.text("#input-tree", "12345678901234567890") // large numbers are not rounded
	b.text("#input-tree", `"<b>bold</b>"`)
	b.text(".timeline", "Recorded")
	b.text("main", "delivery-1")
	b.click("#input-raw-tab")
	b.text("#input-text", `{"order": 12345678901234567890,`)
}

// runAgain checks that an execution can be run again with the sample payload as soon as the
// workflow has one, and that the editor validates the payload while it is typed.
func runAgain(b *tab, executionID string) {
	b.t.Helper()
	if offered := b.evaluate(`String(document.querySelectorAll("#run-again, #retry").length)`); offered != "0" {
		b.t.Errorf("of a queued execution without a sample payload, %s buttons are there", offered)
	}
	b.visit("/workflows/new-orders")
	asks := func(want string) {
		b.t.Helper()
		if asked := b.evaluate(`{ const leave = new Event("beforeunload", { cancelable: true }); dispatchEvent(leave); String(leave.defaultPrevented) }`); asked != want {
			b.t.Errorf("whether the browser asks before what is written is lost: %s", asked)
		}
	}
	asks("false")
	b.write("#sample", "[1,\n 2,]")
	b.text("[data-sample-said]", "Not JSON: line 2, column 4: Unexpected token ']'")
	b.evaluate(`document.querySelector("#sample").value = ""`)
	b.write("#sample", `{"sample": tru`)
	b.see("[data-unsaved].on")
	asks("true")
	b.text("[data-sample-said]", "Not JSON: line 1")
	b.wait(`document.querySelector("[data-send-test]").disabled`)
	b.write("#sample", `e}`)
	b.text("[data-sample-said]", "Valid JSON")
	b.click("[data-send-test]")
	b.text("[data-sample-said]", "Started on the sample payload")
	b.wait(`!document.querySelector("[data-unsaved].on")`)
	asks("false")
	b.wait(`document.querySelectorAll(".execution").length === 3`)

	b.visit("/executions/" + executionID)
	b.text("#run-again", "Run again on the sample payload")
	b.click("#run-again")
	b.text("#again-said", "Started on the sample payload")
	b.click("#again-said a")
	b.text("#input-tree", "true")
	b.text("main", executionID)
	b.visit("/executions/" + executionID)
	b.text("main", "Started again")

	b.visit("/workflows/new-orders?source=rerun")
	b.wait(`document.querySelectorAll(".execution").length === 2`)
	b.visit("/workflows/new-orders?delivery=delivery-1")
	b.text(".executions", "1 repeat")
	b.wait(`document.querySelectorAll(".execution").length === 1`)
}

// refuseSome sends requests that are refused, and checks that the open page and the overview show
// the reason.
func refuseSome(t *testing.T, b *tab, url string) {
	t.Helper()
	b.visit("/workflows/new-orders")
	b.text("#reach", "leads to an ingress of this installation")
	b.wait(`!document.querySelector("#refusals li")`)
	wrong := url + "x"
	for range 2 {
		header := map[string]string{"User-Agent": "a sender with " + wrong}
		if a, err := post(t.Context(), wrong, header, strings.NewReader("12345")); err != nil ||
			a.Status != 403 {
			t.Fatalf("a wrong token: %+v, %v", a, err)
		}
	}
	b.text("#refusals", "2 refused: token_invalid, last ")
	b.click("#refusals summary")
	said := b.text("#refusals", "body of 5 bytes")
	if !strings.Contains(said, "token=[token]") || strings.Contains(b.evaluate(`document.documentElement.outerHTML`), "hst_") {
		t.Errorf("of a refused request it says: %s", said)
	}
	// A refusal whose details are open stays open when another refusal arrives.
	b.evaluate(`document.activeElement.blur() ?? ""`)
	b.do(chromedp.MouseEvent("mouseMoved", 1, 1))
	if a, err := post(t.Context(), url, map[string]string{"Content-Type": "application/json"},
		strings.NewReader("{")); err != nil || a.Status != 400 {
		t.Fatalf("what is not valid JSON: %+v, %v", a, err)
	}
	b.text("#refusals", "1 refused: json_invalid")
	b.see(`#refusals [data-code="token_invalid"][open] p`)

	b.visit("/")
	b.text("#numbers", "token_invalid 2")
	b.text("#numbers", "refused 3")
	b.text("#reach", "leads to an ingress of this installation")
	b.click(`.tile[href^="/refusals"]`)
	b.page("Refusals")
	said = b.text(".refusals", "token=[token]")
	if !strings.Contains(said, "json_invalid") || !strings.Contains(said, "give the sender the new URL") || strings.Contains(b.evaluate(`document.documentElement.outerHTML`), "hst_") {
		t.Errorf("of all that was refused it says: %s", said)
	}
	b.click(`.refusals a[href="/workflows/new-orders"]`)
	b.page("New orders")
	b.visit("/executions?status=broken")
	b.text("main", "“broken” is not a status")
}

// requeue makes an execution fail, and retries it with its original input from the execution's
// page. The retries fail as well, and are retried from the list of dead letters and the list of
// executions.
func requeue(t *testing.T, b *tab, l *localProgram) {
	t.Helper()
	a, err := post(t.Context(), l.webhook, map[string]string{"Content-Type": "application/json"}, strings.NewReader(`{"fail":"on purpose","n":5}`))
	if err != nil || a.Status != 200 {
		t.Fatalf("POST to the demo: %+v, %v", a, err)
	}
	recorded(t, l.client(), a.ExecutionID,
		func(e api.ExecutionDetail) bool { return e.Status == "failed" })
	b.visit("/executions/" + a.ExecutionID)
	b.text("main", "Retry takes the place of this execution")
	b.click("#retry")
	b.text("#again-said", "Started on the same request.")
	b.click("#again-said a")
	b.text("#input-tree", "on purpose")
	b.text("main", "a retry of "+a.ExecutionID)
	b.visit("/executions/" + a.ExecutionID)
	b.text("main", "Retried as")
	b.wait(`!document.querySelector("#retry")`)

	// The retry fails for the same reason, and is retried from the list of dead letters.
	b.text(".facts", "Retried as")
	again := strings.TrimPrefix(b.evaluate(`[...document.querySelectorAll(".facts dt")].find((each) => each.innerText === "Retried as").nextElementSibling.querySelector("a").pathname`), "/executions/")
	recorded(t, l.client(), again, func(e api.ExecutionDetail) bool { return e.Status == "failed" })
	b.click(`nav a[href="/dead-letters"]`)
	b.page("Dead letters")
	b.wait(`document.querySelectorAll(".dead-letters tbody tr").length === 1`)
	b.text(".dead-letters", "on purpose")
	b.see(`.dead-letters a[href="/executions/` + again + `"]`)
	b.click(".dead-letters [data-once]")
	b.text(".dead-letters .said", "Started. Show it")
	b.text(".dead-letters [data-once][aria-disabled=true]", "Retried")
	b.click(".dead-letters .said a")
	b.text("main", "a retry of "+again)

	// The second retry fails, too, and is retried from the list of executions.
	third := strings.TrimPrefix(b.evaluate(`location.pathname`), "/executions/")
	recorded(t, l.client(), third, func(e api.ExecutionDetail) bool { return e.Status == "failed" })
	b.visit("/")
	b.text("#numbers", "1 dead letter that nobody works on any more")
	b.visit("/executions?status=failed")
	b.text(`[data-id="`+third+`"] .why`, "on purpose")
	b.click(`[data-id="` + third + `"] [data-once]`)
	b.text("#again-list-said", "Started on the same request. Show it")
	b.text(`[data-id="`+third+`"] [data-once][aria-disabled=true]`, "Retried")
	b.click("#again-list-said a")
	b.text("main", "a retry of "+third)
}

// rotate creates a new token on the page. The old token remains valid for a while.
func rotate(t *testing.T, b *tab, l *localProgram, old string) {
	t.Helper()
	b.visit("/workflows/new-orders")
	b.click(".rotate summary")
	b.click("[data-rotate] button")
	b.wait(`document.querySelectorAll(".tokens li").length === 2`)
	b.text(".tokens", "ends in")
	url := copied(b, "webhook-url")
	if url == old || !strings.HasPrefix(url, old[:strings.Index(old, "hst_")]) {
		t.Errorf("the URL after the rotation is %s", url)
	}
	for _, one := range []string{url, old} {
		if a, err := post(t.Context(), one, nil, strings.NewReader("x")); err != nil ||
			a.Status != 200 {
			t.Errorf("POST after the rotation: %+v, %v", a, err)
		}
	}

	// Another client rotates the token as well. After that, the page no longer shows or copies the
	// outdated token.
	b.click("[data-show-token]")
	b.text("#webhook-url", "hst_")
	again, err := l.client().RotateToken(t.Context(), "new-orders", "webhook", 0)
	if err != nil {
		t.Fatal(err)
	}
	if now := copied(b, "webhook-url"); now != again.URL {
		t.Errorf("after another rotation it copies %s", now)
	}
	b.text("[data-token-said]", "The token was rotated elsewhere.")
	b.wait(`!document.documentElement.outerHTML.includes("hst_")`)
}

// hitTheLimit checks that the free plan allows only one active workflow.
func hitTheLimit(b *tab) {
	b.t.Helper()
	b.visit("/new-workflow?account=acme-inc")
	b.write("#name", "Invoices")
	b.click("#new-workflow .primary")
	b.page("Invoices")
	b.click("[data-switch]")
	said := b.text("#switch-form-said", "or change the plan")
	if !strings.Contains(said, "Deactivate New orders") {
		b.t.Errorf("the refusal says: %s", said)
	}
	b.wait(`document.querySelector("[data-switch]").getAttribute("aria-checked") === "false"`)
	b.visit("/accounts")
	b.do(chromedp.SetValue(chromedp.CSS("#account-acme-inc select"), "pro"))
	b.click("#account-acme-inc button")
	b.text("#account-acme-inc", "no limit")
	b.text("[data-done]", "“Acme Inc.” is on the plan pro now.")
	b.wait(`document.activeElement?.matches("[data-done]")`)
	b.visit("/workflows/invoices")
	b.click("[data-switch]")
	b.text("#state", "Active")
}

// changeSettings changes some settings of a workflow on its page, and checks that all others stay
// the same.
func changeSettings(t *testing.T, b *tab, l *localProgram) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, client := t.Context(), l.client()
	_, err := client.SetSamplePayload(ctx, "invoices", "webhook", []byte(`{"kept":true}`))
	check(err)
	before, err := client.Trigger(ctx, "invoices", "webhook")
	check(err)
	b.visit("/workflows/invoices")
	// Meanwhile, another client changes the queue.
	triggers := []api.PutTrigger{{NodeID: "webhook", Name: "Webhook"}}
	_, err = client.PutWorkflow(ctx, "invoices", api.PutWorkflow{
		AccountID: "acme-inc", Name: "Invoices", Queue: "theirs", Triggers: triggers,
	})
	check(err)
	b.do(chromedp.SetValue(chromedp.CSS("#set-name"), "Invoices & bills"))
	b.write("[name=requests]", "7")
	b.click("[data-settings] button")
	b.text("[data-settings] [data-said].bad", "Not saved")
	b.text("[data-settings] #set-seconds-problem", "needs both numbers")
	b.wait(`document.activeElement.matches("[name=seconds][aria-invalid=true]")`)
	b.write("[name=seconds]", "10")
	b.click("[data-settings] button")
	b.text("[data-done]", "The settings are saved.")
	b.text("h1", "Invoices & bills")
	b.text("#title", "queue theirs")
	b.text("#rate", "7 requests per 10 s")
	b.wait(`document.title === "Invoices & bills · hookstart"`)
	b.wait(`!document.querySelector("[data-settings] [aria-invalid], [data-settings] [data-problem]:not([hidden])")`)
	b.wait(`document.querySelector("#set-queue").value === "theirs"`) // the next save must keep it

	w, err := client.Workflow(ctx, "invoices")
	check(err)
	after, err := client.Trigger(ctx, "invoices", "webhook")
	check(err)
	if w.Name != "Invoices & bills" || w.Queue != "theirs" || w.RateLimit == nil ||
		*w.RateLimit != (api.RateLimit{Requests: 7, WindowSeconds: 10}) || !w.Active ||
		w.AccountID != "acme-inc" {
		t.Errorf("it is %+v", w)
	}
	if after.Token != before.Token || string(after.SamplePayload) != `{"kept":true}` || after.Name != "Webhook" {
		t.Error("its trigger node is not what it was")
	}

	// The page does not silently overwrite a change that another client made meanwhile.
	_, err = client.PutWorkflow(ctx, "invoices", api.PutWorkflow{
		AccountID: "acme-inc", Name: "Invoices & bills", Queue: "theirs-again",
		RateLimit: w.RateLimit, Triggers: triggers,
	})
	check(err)
	b.do(chromedp.SetValue(chromedp.CSS("#set-queue"), "mine"))
	b.click("[data-settings] button")
	b.text("[data-settings] [data-said].bad",
		"somebody else has changed the queue to “theirs-again”")
	if w, err = client.Workflow(ctx, "invoices"); err != nil || w.Queue != "theirs-again" {
		t.Errorf("it is %+v, %v", w, err)
	}
	b.click("[data-settings] button")
	b.text("[data-done]", "The settings are saved.")
	b.text("#title", "queue mine")
	const ready = `"ready" in document.documentElement.dataset`
	b.wait(ready)
	// Another client changes a setting just before the form is posted. The form changes a different
	// one, so both changes survive.
	b.do(chromedp.Evaluate[chromedp.Void](`{
		const fetch = window.fetch;
		window.fetch = async (path, options) => {
			if (options?.method === "POST") {
				window.fetch = fetch;
				await fetch("/api/v1/workflows/invoices", { method: "PATCH",
					body: JSON.stringify({ name: "Invoices, bills" }) });
			}
			return fetch(path, options);
		};
	}`), chromedp.SetValue(chromedp.CSS("#set-queue"), "theirs"))
	b.click("[data-settings] button")
	b.text("#title", "queue theirs")
	b.text("h1", "Invoices, bills")
	b.wait(ready)
	b.do(chromedp.SetValue(chromedp.CSS("#set-name"), "Invoices & bills"))
	b.click("[data-settings] button")
	b.text("h1", "Invoices & bills")
	b.wait(ready)

	// A saved setting no longer counts as changed. When the rate limit is cleared, the plan's limit
	// applies again.
	b.do(chromedp.SetValue(chromedp.CSS("[name=requests]"), ""),
		chromedp.SetValue(chromedp.CSS("[name=seconds]"), ""))
	b.click("[data-settings] button")
	b.text("#rate", "600 requests/min")
	if w, err = client.Workflow(ctx, "invoices"); err != nil || w.RateLimit != nil ||
		w.Name != "Invoices & bills" || w.Queue != "theirs" {
		t.Errorf("it is %+v, %v", w, err)
	}
}

// downgrade checks that the page asks for confirmation before a downgrade, and lists the workflows
// that would stop. It cancels the first downgrade.
func downgrade(t *testing.T, b *tab) {
	t.Helper()
	b.visit("/accounts")
	change := func(plan string) {
		b.do(chromedp.SetValue(chromedp.CSS("#account-acme-inc select"), plan))
		b.click("#account-acme-inc button")
	}
	change("free")
	asked := b.text("dialog[open]", "Change “Acme Inc.” to the plan free?")
	stops, stays, _ := strings.Cut(asked, "This one stays")
	if !strings.Contains(stops, "This one stops") || !strings.Contains(stops, "Invoices & bills") ||
		!strings.Contains(stays, "New orders") {
		t.Errorf("it asks: %s", asked)
	}
	if axe, installed := readAxe(t); installed {
		b.do(chromedp.Evaluate[chromedp.Void](axe))
		if found := violations(b); found != "" {
			t.Errorf("the dialog: %s", found)
		}
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	b.wait(`!document.querySelector("dialog[open]") && document.querySelector("#account-acme-inc select").value === "pro" && document.activeElement.matches("#account-acme-inc button")`)
	b.text("#account-acme-inc", "no limit")
	change("free")
	b.text("dialog[open]", "This one stops")
	b.click("dialog [value=yes]")
	b.text("[data-done]", "“Acme Inc.” is on the plan free now.")
	b.text("#account-acme-inc", "2 of 1 active")
	change("ultra") // the page does not ask for confirmation, because no workflow would stop
	b.text("[data-done]", "“Acme Inc.” is on the plan ultra now.")
	b.text("#account-acme-inc", "no limit")
}

// longNames gives a workflow and its trigger nodes a name of 200 letters, in which a browser finds
// no place for a line break.
func longNames(t *testing.T, l *localProgram) {
	t.Helper()
	long := strings.Repeat("W", 200)
	if _, err := l.client().PutWorkflow(t.Context(), "invoices", api.PutWorkflow{
		AccountID: "acme-inc", Name: long,
		Triggers: []api.PutTrigger{{NodeID: "webhook", Name: long}, {NodeID: "second", Name: long}},
	}); err != nil {
		t.Fatal(err)
	}
}

// deleteIt deletes a workflow, and checks that the confirmation dialog states the consequences
// correctly.
func deleteIt(t *testing.T, b *tab, l *localProgram) {
	t.Helper()
	trigger, err := l.client().Trigger(t.Context(), "demo", "webhook")
	if err != nil {
		t.Fatal(err)
	}
	a, err := post(t.Context(), trigger.URL, map[string]string{"Content-Type": "application/json"}, strings.NewReader(`{"fail":"before the end"}`))
	if err != nil || a.Status != 200 {
		t.Fatalf("POST to the demo: %+v, %v", a, err)
	}
	recorded(t, l.client(), a.ExecutionID,
		func(e api.ExecutionDetail) bool { return e.Status == "failed" })
	b.visit("/workflows/demo")
	b.click("[data-delete]")
	b.text("dialog[open]", "senders get 404 workflow_not_found")
	b.click("dialog [value=no]")
	b.wait(`!document.querySelector("dialog[open]")`)
	if _, err := l.client().Workflow(t.Context(), "demo"); err != nil {
		t.Fatalf("it was to be kept: %v", err)
	}
	b.click("[data-delete]")
	b.click("dialog [value=yes]")
	b.page("Workflows")
	b.text("[data-done]", "“Demo” is deleted.")
	b.wait(`!document.querySelector('a[href="/workflows/demo"]')`)

	if refused, err := post(t.Context(), trigger.URL, nil, strings.NewReader("x")); err != nil ||
		refused.Status != 404 || refused.Code != "workflow_not_found" {
		t.Errorf("POST after it was deleted: %+v, %v", refused, err)
	}
	b.visit("/executions/" + a.ExecutionID)
	b.text("main", "before the end")
	b.text("main", "It cannot run again: its workflow is gone.")
	if _, err := l.client().RequeueExecution(t.Context(), a.ExecutionID); err == nil {
		t.Error("it was requeued")
	}
	b.visit("/dead-letters")
	b.text(".dead-letters", "deleted")
	b.text(".dead-letters", "its trigger node is gone")
	b.visit("/workflows")
	b.wait(`document.querySelector("[data-done]").hidden`)
}
