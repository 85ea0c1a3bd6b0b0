package e2e

import (
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/hookstart/hookstart/executor/client/api"
)

// Forms work in the browser even in rare cases, such as an error response from a gateway, an
// element that has disappeared from the page, two confirmation dialogs in a row, and a conflict
// with a change by another client.
func TestFormsInTheBrowser(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	client, ctx := l.client(), t.Context()
	plan := func(account, plan string) {
		t.Helper()
		if _, err := client.PutAccount(ctx, account, api.PutAccount{
			Name: account, Plan: plan,
		}); err != nil {
			t.Fatal(err)
		}
	}
	plan("one", "ultra")
	plan("two", "ultra")
	b := openBrowser(t, l.executor)
	signedInAt(b, "/workflows/demo")

	// If the page reloads after a form has been posted, the new page says what the form has done.
	b.click(".rotate summary")
	b.click("#rotate-form button")
	b.text("[data-done]", "There is a new URL.")

	// An error response from a gateway does not count as success, even if its body is JSON. The
	// page scrolls to the message, so that the operator sees it even if the pressed button is far
	// down the page.
	b.visit("/queues")
	b.wait(fragmentsAreThere)
	b.evaluate(`{
		const filler = document.createElement("div");
		filler.style.height = "3000px";
		document.getElementById("queue-said").after(filler);
		const fetch = window.fetch;
		window.fetch = async (path, options) => options?.method !== "POST"
			? fetch(path, options) : new Response('{"message":"x"}', {
				status: 503, headers: { "Content-Type": "application/json" },
			});
		""
	}`)
	b.click(`[id="demo:pause"]`)
	b.text("#queue-said", "The executor answered 503.")
	if at := b.evaluate(`{
		const { top, bottom } = document.getElementById("queue-said").getBoundingClientRect();
		String(scrollY > 500 && top >= 0 && bottom <= innerHeight);
	}`); at != "true" {
		t.Error("what the page says cannot be seen")
	}

	// The page shows why a form was refused even if the form's element is no longer on the page.
	b.visit("/queues")
	b.wait(fragmentsAreThere)
	b.click(`tr:has([id="demo:stream"]) .limit:has([id="demo:stream-form"]) summary`)
	b.write(`[id="demo:stream-form"] [name=age]`, "1")
	b.evaluate(`document.getElementById("demo:stream-form").setAttribute("id", "gone"); ""`)
	b.click(`[id="demo:set-stream"]`)
	b.text("#queue-said", "Seconds that messages are kept: must be at least ")

	// If a form is submitted without the page's script, the next page asks for confirmation in an
	// open dialog. If another form is then submitted with the script, the dialog asks about that
	// form instead.
	b.visit("/accounts")
	b.evaluate(`document.getElementById("one:delete").submit(); ""`)
	b.text("dialog[open]", "Delete “one”?")
	b.wait(`"ready" in document.documentElement.dataset`)
	b.click(`[form="two:delete"]`)
	b.text("dialog[open]", "Delete “two”?")
	b.wait(`document.querySelector("dialog[open]").matches(":modal")`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.wait(`!document.querySelector("dialog[open]")`)

	// Resetting a form after a conflict selects the current plan, not the one first loaded.
	b.visit("/accounts")
	plan("one", "pro")
	const choice = "#account-one .plan select"
	b.do(chromedp.SetValue(chromedp.CSS(choice), "free"))
	b.click("#account-one .plan button")
	b.text(`[id="one:plan-said"]`, "somebody else has changed the plan to “pro”")
	if chosen := b.evaluate(`document.querySelector("` + choice + `").value`); chosen != "free" {
		t.Errorf("what was chosen is now %s", chosen)
	}
	b.evaluate(`document.getElementById("one:plan").reset(); ""`)
	if chosen := b.evaluate(`document.querySelector("` + choice + `").value`); chosen != "pro" {
		t.Errorf("the form returns to the plan %s", chosen)
	}
	// A sample payload that has been saved can be changed and saved again without reloading the
	// page.
	b.visit("/workflows/demo")
	b.wait(fragmentsAreThere)
	for _, sample := range []string{"[1]", "[2]", "[3]"} {
		b.evaluate(`{
			const area = document.getElementById("sample");
			area.value = ` + quote(sample) + `;
			area.dispatchEvent(new Event("input"));
			""
		}`)
		b.text("[data-sample-said]", "Valid JSON, not saved yet.")
		b.click("[data-save-sample]")
		b.text("[data-sample-said]", "Saved.")
		b.wait(`!document.querySelector("[data-unsaved].on")`)
	}
	if saved, err := client.Trigger(ctx, "demo", "webhook"); err != nil ||
		string(saved.SamplePayload) != "[3]" {
		t.Errorf("the sample payload is %s, %v", saved.SamplePayload, err)
	}

	// The page requests a preset's fields when the operator chooses the preset. Make this request
	// fail. Submitting the form must then show the fields instead of setting the sender. If the
	// server then refuses the form, the secret that was typed must stay in its field.
	b.evaluate(`{
		const fetch = window.fetch;
		window.fetch = async (path, options) => path.startsWith("/fragments/sender")
			? new Response("", { status: 503 }) : fetch(path, options);
		""
	}`)
	choose("stripe")(b)
	b.text("#sender-form-said", "The executor answered 503.")
	b.click("#sender-form .primary")
	b.text("#sender-form-said", "Not set yet: see what is asked for Stripe")
	b.see("#sender-secret")
	b.write("#sender-secret", "whsec_with_space ")
	b.click("#sender-form .primary")
	b.text("#sender-form-said", "the secret begins or ends with white space")
	b.wait(`document.querySelector("#sender-secret").value === "whsec_with_space "`)
	b.contented()
}

// Text that is typed while a form is being posted is not lost. A button that is pressed again
// before the next page is shown does not repeat the change.
func TestFormsInTheBrowserMeanwhile(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	signedInAt(b, "/queues")
	value := func(selector string) string {
		t.Helper()
		return b.evaluate(`document.querySelector(` + quote(selector) + `).value`)
	}

	// Posting one form keeps the text that was typed into another.
	const limit, stream = `[id="demo:demo:limit-form"] `, `[id="demo:stream-form"] `
	b.wait(fragmentsAreThere)
	b.evaluate(unfold)
	b.write(limit+`[name=limit]`, "7")
	b.click(`[id="demo:pause"]`)
	b.text(`[id="demo:pause"]`, "Resume")
	if typed := value(limit + "[name=limit]"); typed != "7" {
		t.Errorf("the limit is %q", typed)
	}

	// Text that is typed between the request and the response is kept.
	b.write(stream+"[name=age]", "1")
	b.evaluate(`{
		const fetch = window.fetch;
		window.fetch = async (path, options) => {
			if (options?.method === "POST") {
				document.querySelector(` + quote(stream+"[name=bytes]") + `).value = "5";
			}
			return fetch(path, options);
		};
		""
	}`)
	b.click(`[id="demo:set-stream"]`)
	b.text("#queue-said", "Seconds that messages are kept: must be at least ")
	age, bytes := value(stream+"[name=age]"), value(stream+"[name=bytes]")
	if age != "1" || bytes != "5" {
		t.Errorf("the age is %q, and the bytes are %q", age, bytes)
	}

	// After a key has been created, the page no longer shows the error of the previous attempt.
	b.visit("/keys")
	b.write("#name", "CI")
	choose := func(role, account string) {
		t.Helper()
		b.do(chromedp.SetValue(chromedp.CSS("#role"), role),
			chromedp.SetValue(chromedp.CSS("#account"), account))
		b.click("#new-key .primary")
	}
	choose("admin", "demo")
	b.text("#account-problem", "an admin has access to all accounts")
	choose("editor", "demo")
	b.text("#made-key", "hsk_")
	b.wait(`document.getElementById("account-problem").hidden`)
	b.wait(`document.getElementById("name").value === ""`)

	// Pressing a form's button again before the next page is shown does not post the form again.
	// The script below presses it repeatedly after the first post.
	b.visit("/workflows/demo")
	b.evaluate(`{
		const fetch = window.fetch;
		let posts = 0;
		window.fetch = async (path, options) => {
			if (options?.method === "POST") {
				sessionStorage.setItem("posts", ++posts);
				setInterval(() => document.querySelector("#rotate-form button").click(), 1);
			}
			return fetch(path, options);
		};
		""
	}`)
	b.click(".rotate summary")
	b.click("#rotate-form button")
	b.text("[data-done]", "There is a new URL.")
	if posts := b.evaluate(`sessionStorage.getItem("posts")`); posts != "1" {
		t.Errorf("the form was posted %s times", posts)
	}

	// A form has been posted and the page wants to reload, but another field has unsaved text. The
	// browser asks whether to leave the page, and the operator stays. The page then says what the
	// form has done.
	err := chromedp.Listen(b.ctx, func(event any) {
		if _, ok := event.(*page.EventJavascriptDialogOpening); ok {
			go func() {
				_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog,
					page.HandleJavaScriptDialogParams{Accept: false})
			}()
		}
	})
	b.check(err)
	b.visit("/workflows/demo")
	b.click("[data-sample] textarea")
	b.write("[data-sample] textarea", " ")
	b.evaluate(`document.documentElement.dataset.stayed = ""; ""`)
	b.evaluate(`document.querySelector(".rotate").open = true; ""`)
	b.click("#rotate-form button")
	b.text("[data-done]", "There is a new URL.")
	b.wait(`"stayed" in document.documentElement.dataset`)
	b.contented()
}

// A double click posts a form only once, and so does a key that is held down. Pressing the key
// again later posts the form again.
func TestFormsInTheBrowserPressedTwice(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	b := openBrowser(t, l.executor)
	signedInAt(b, "/workflows/demo")
	b.evaluate(`{
		const fetch = window.fetch;
		window.posts = 0;
		window.fetch = async (path, options) => {
			posts += options?.method === "POST" ? 1 : 0;
			return fetch(path, options);
		};
		""
	}`)
	b.write("#sample", " ")
	const test = "[data-send-test]"
	wantPosts := func(want string) {
		t.Helper()
		b.wait(`!document.querySelector("` + test + `").matches("[aria-disabled]")`)
		b.text("[data-sample-said]", "Started on the sample payload")
		if posts := b.evaluate(`String(posts)`); posts != want {
			t.Fatalf("the form was posted %s times, not %s", posts, want)
		}
	}
	enter := func(repeated bool) {
		t.Helper()
		_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r",
			WindowsVirtualKeyCode: 13, AutoRepeat: &repeated,
		})
		b.check(err)
	}
	started := func() string {
		t.Helper()
		return b.evaluate(`document.querySelector("[data-sample-said] a").href`)
	}
	b.click(test)
	wantPosts("1")
	first := started()
	b.evaluate(`document.querySelector("` + test + `").dispatchEvent(new MouseEvent("click", {
		detail: 2, bubbles: true, cancelable: true,
	})); ""`)
	wantPosts("1")
	enter(false)
	wantPosts("2")
	if second := started(); second == first {
		t.Errorf("%s is returned again", second)
	}
	enter(true)
	wantPosts("2")
	b.contented()
}
