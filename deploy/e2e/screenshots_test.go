package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/stream"
)

// TestScreenshots writes screenshots of every page to a folder for people to look at, in light and
// dark colours, and at desktop and phone widths:
//
//	HOOKSTART_SCREENSHOTS=/tmp/pictures go test -run TestScreenshots ./deploy/e2e
func TestScreenshots(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("HOOKSTART_SCREENSHOTS")
	if folder == "" {
		t.Skip("HOOKSTART_SCREENSHOTS names no folder")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Run("empty", func(t *testing.T) {
		c := newCamera(t, folder, launch(t, "hookstart-local",
			"--data-dir", t.TempDir(), "--no-demo", "--ingress-addr=127.0.0.1:0",
			"--executor-addr=127.0.0.1:0", "--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
			"--admin-token="+adminToken))
		c.takeAll("empty-", []scene{
			{name: "overview", path: "/"},
			{name: "workflows", path: "/workflows"},
			{name: "executions", path: "/executions"},
			{name: "dead-letters", path: "/dead-letters"},
			{name: "queues", path: "/queues"},
			{name: "refusals", path: "/refusals"},
			{name: "accounts", path: "/accounts"},
			{name: "new-workflow", path: "/new-workflow"},
			{name: "keys", path: "/keys"},
			{name: "audit", path: "/audit"},
		})
	})
	t.Run("busy", func(t *testing.T) {
		l := launchWithProvider(t)
		longKey(t, l)
		c := newCamera(t, folder, l.process)
		ids := fill(t, l)
		c.takeAll("", []scene{
			{name: "overview", path: "/"},
			{name: "workflows", path: "/workflows"},
			{name: "workflows-none-found", path: "/workflows?q=nothing"},
			{name: "workflows-of-account", path: "/workflows?account=acme"},
			{name: "workflow", path: "/workflows/orders"},
			{name: "workflow-open", path: "/workflows/orders", do: func(b *tab) {
				b.click("[data-show-token]")
				b.text("#webhook-url", "hst_")
				b.click(".rotate summary")
				b.click("#refusals summary")
				b.evaluate(`document.querySelector(".call").open = true; ""`)
				b.evaluate(unfold)
				b.click("#tab-python")
			}},
			{name: "workflow-limit", path: "/workflows/invoices", do: func(b *tab) {
				b.click("[data-switch]")
				b.text("#switch-form-said", "change the plan")
			}},
			{name: "workflow-over", path: "/workflows/shrunk"},
			{name: "workflow-saved", path: "/workflows/ledger", do: func(b *tab) {
				b.do(chromedp.SetValue(chromedp.CSS("[name=requests]"), "7"),
					chromedp.SetValue(chromedp.CSS("[name=seconds]"), "10"))
				b.click("[data-settings] button")
				b.text("[data-done]", "The settings are saved.")
			}},
			{name: "workflow-changed-since", path: "/workflows/ledger", do: func(b *tab) {
				b.evaluate(`document.querySelector("[name='shown.name']").value = document.querySelector("[name='shown.queue']").value = "before"`)
				b.do(chromedp.SetValue(chromedp.CSS("#set-name"), "General ledger"),
					chromedp.SetValue(chromedp.CSS("#set-queue"), "ledger"))
				b.click("[data-settings] button")
				b.text("[data-settings] [data-said].bad", "somebody else has changed")
			}},
			{name: "workflow-delete", path: "/workflows/orders", do: func(b *tab) {
				b.click("[data-delete]")
				b.see("dialog[open]")
			}},
			{name: "workflow-github", path: "/workflows/demo", do: func(b *tab) {
				b.evaluate(`document.querySelector(".call").open = true; ""`)
				b.evaluate(unfold)
				b.click("#tab-github")
			}},
			{name: "execution-succeeded", path: "/executions/" + ids["succeeded"]},
			{name: "execution-failed", path: "/executions/" + ids["failed"]},
			{name: "execution-queued", path: "/executions/" + ids["queued"]},
			{name: "execution-rejected", path: "/executions/" + ids["rejected"]},
			{name: "execution-rerun", path: "/executions/" + ids["rerun"]},
			{
				name: "execution-run-again", path: "/executions/" + ids["succeeded"],
				do: func(b *tab) {
					b.click("#input-raw-tab")
					b.click("#run-again")
					b.see("dialog[open]")
				},
			},
			{name: "executions-beside", path: "/executions", do: func(b *tab) {
				b.evaluate(`matchMedia("(min-width: 66rem)").matches && document.querySelector(".execution:has(.failed) .when, .execution .when").click(); ""`)
				b.wait(`!matchMedia("(min-width: 66rem)").matches || document.querySelector(".beside .timeline")`)
			}},
			{name: "executions", path: "/executions"},
			{
				name: "executions-filtered",
				path: "/executions?status=failed&source=webhook&within=24h",
			},
			{name: "executions-no-filter", path: "/executions?status=broken"},
			{name: "executions-no-match", path: "/executions?delivery=none"},
			{name: "executions-rejected", path: "/executions?status=rejected"},
			{name: "executions-replay-all", path: "/executions?status=rejected", do: func(b *tab) {
				b.click("[data-replay-all-do]")
				b.see("dialog[open]")
			}},
			{name: "executions-of-workflow", path: "/executions?of=orders&account=acme"},
			{name: "dead-letters", path: "/dead-letters"},
			{name: "dead-letters-none-found", path: "/dead-letters?reason=nothing&within=24h"},
			{name: "dead-letters-selected", path: "/dead-letters", do: func(b *tab) {
				b.click("[data-bulk-one]")
				b.click("[data-bulk-do=dismiss]")
				b.see("dialog[open]")
			}},
			{name: "queues", path: "/queues"},
			{name: "accounts-delete", path: "/accounts", do: func(b *tab) {
				b.click("[form$=':delete']")
				b.see("dialog[open]")
			}},
			{name: "refusals", path: "/refusals"},
			{name: "refusals-no-place", path: "/refusals?within=1h&after=nonsense"},
			{name: "accounts-chosen", path: "/accounts#account-acme"},
			{name: "accounts", path: "/accounts"},
			{name: "accounts-created", path: "/accounts", do: func(b *tab) {
				b.evaluate(`sessionStorage.setItem("hookstart-next", JSON.stringify({ page: location.href, done: "“Acme Inc.” is created." })) ?? ""`)
				b.visit("/accounts")
				b.text("[data-done]", "created")
			}},
			{name: "accounts-downgrade", path: "/accounts", do: func(b *tab) {
				b.do(chromedp.SetValue(chromedp.CSS("#account-acme select"), "none"))
				b.click("#account-acme button")
				b.text("dialog[open]", "senders get 403 webhooks_not_in_plan")
			}},
			{name: "new-workflow", path: "/new-workflow", do: func(b *tab) {
				b.click("summary")
				b.write("#name", "Demo")
				b.click("#new-workflow .primary")
				b.text("#new-workflow #id-problem", "already")
			}},
			{name: "keys", path: "/keys"},
			{name: "keys-made", path: "/keys", do: func(b *tab) {
				b.write("#name", "A new one")
				b.click("#new-key .primary")
				b.text("#made-key", "hsk_")
			}},
			{name: "keys-revoke", path: "/keys", do: func(b *tab) {
				b.click(".keys .act button")
				b.see("dialog[open]")
			}},
			{name: "audit", path: "/audit"},
			{name: "audit-filtered", path: "/audit?within=24h&account=none"},
			{name: "not-found", path: "/no/such/page"},
			{name: "execution-not-found", path: "/executions/none"},
		})
		c.takeForREADME("overview", "/")
		c.takeForREADME("workflow", "/workflows/orders")
		signOut(c.tab)
		c.takeAll("", []scene{
			{name: "sign-in", path: "/sign-in"},
			{name: "sign-in-used", path: "/sign-in?once=used"},
			{name: "sign-in-wrong", path: "/sign-in", do: func(b *tab) {
				b.write("#token", "wrong")
				b.do(chromedp.Submit(chromedp.CSS("#token")))
				b.text("[role=alert]", "neither the admin token")
			}},
		})
		signInAtProvider(c.tab, "test-user2", "verysecure")
		c.page("Workflows")
		c.takeAll("viewer-", []scene{
			{name: "overview", path: "/"},
			{name: "workflows", path: "/workflows"},
			{name: "workflow", path: "/workflows/orders"},
			{name: "execution-failed", path: "/executions/" + ids["failed"]},
			{name: "dead-letters", path: "/dead-letters"},
			{name: "accounts", path: "/accounts"},
			{name: "keys", path: "/keys"},
		})
		signOut(c.tab)
		signInAtProvider(c.tab, "test-user@localhost", "verysecure")
		c.page("Workflows")
		c.takeAll("one-account-", []scene{
			{name: "overview", path: "/"},
			{name: "workflows", path: "/workflows"},
			{name: "workflow", path: "/workflows/demo"},
			{name: "accounts", path: "/accounts"},
		})
	})
}

const windowHeight = 900

// scene is a page, and the steps to take on it before the screenshot.
type scene struct {
	name, path string
	do         func(*tab)
}

type camera struct {
	*tab
	folder string
}

// newCamera signs in to the console in a new browser. It returns a camera that takes screenshots in
// this browser and stores them in the folder.
func newCamera(t *testing.T, folder string, p *process) *camera {
	t.Helper()
	c := &camera{openBrowser(t, p.Await(`\nConsole +(http://[^/\s]+)`)), folder}
	c.do(chromedp.Navigate(c.base + "/sign-in"))
	c.write("#token", adminToken)
	c.do(chromedp.Submit(chromedp.CSS("#token")))
	c.page("Overview")
	return c
}

func (c *camera) takeAll(prefix string, scenes []scene) {
	c.t.Helper()
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1440}, {"dark", 1440}, {"light", 375}, {"dark", 375}} {
		c.look(look.scheme, look.width, windowHeight)
		for _, s := range scenes {
			c.visit(s.path)
			if s.do != nil {
				s.do(c.tab)
			}
			c.wait(fragmentsAreThere)
			picture := c.picture(look.width)
			name := fmt.Sprintf("%s%s-%s-%d.png", prefix, s.name, look.scheme, look.width)
			c.check(os.WriteFile(filepath.Join(c.folder, name), picture, 0o600))
		}
	}
}

// picture takes a screenshot of the whole page, as PNG. It enlarges the window to the height of the
// page, because the browser does not always paint content outside the window. If a dialog is open,
// the screenshot shows only the content of the window.
func (c *camera) picture(width int64) []byte {
	c.t.Helper()
	if c.evaluate(`document.querySelector("dialog[open]") ? "yes" : "no"`) == "no" {
		height, err := chromedp.Run(c.ctx, chromedp.Evaluate[int64](`document.documentElement.scrollHeight`))
		c.check(err)
		c.do(chromedp.EmulateViewport(width, height))
		defer c.do(chromedp.EmulateViewport(width, windowHeight))
	}
	picture, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	c.check(err)
	return picture
}

// takeForREADME takes a screenshot of the top of a page. The images in testdata/screenshots are
// copies of such screenshots.
func (c *camera) takeForREADME(name, path string) {
	c.t.Helper()
	c.look("light", 1120, 800)
	c.visit(path)
	c.wait(fragmentsAreThere)
	picture, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	c.check(err)
	c.check(os.WriteFile(filepath.Join(c.folder, "readme-"+name+".png"), picture, 0o600))
}

func (c *camera) look(scheme string, width, height int64) {
	c.t.Helper()
	_, err := chromedp.Call(c.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"},
		}})
	c.check(err)
	c.do(chromedp.EmulateViewport(width, height))
}

// fill creates examples of everything that pages show. It returns the ID of one execution for each
// state, keyed by state, and the ID of a rerun under the key "rerun".
func fill(t *testing.T, l *localProgram) map[string]string {
	t.Helper()
	ctx := t.Context()
	client := l.client()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	nc, err := nats.Connect(l.nats)
	check(err)
	t.Cleanup(nc.Close)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		ended <- runner.Run(running, nc, runner.Options{Queue: "bills", Group: "bills"},
			func(context.Context, runner.Execution) (any, error) {
				return nil, runner.Permanent(
					errors.New("the ledger is closed: period 2026-10 was settled on 2 November"))
			})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	for id, plan := range map[string]string{"acme": "free", "umbrella": "pro", "globex": "none"} {
		_, err := client.PutAccount(ctx, id,
			api.PutAccount{Name: strings.ToUpper(id[:1]) + id[1:] + " Inc.", Plan: plan})
		check(err)
	}
	urls := map[string]string{}
	for _, w := range []struct{ id, name, account, queue string }{
		{"orders", "New orders", "acme", ""},
		{"invoices", "Invoices", "acme", ""},
		{"ledger", "Book into the ledger", "umbrella", "bills"},
		{
			"shrunk", "A workflow with a rather long name that somebody gave it", "umbrella",
			"a-queue-with-a-long-name",
		},
		{"off", "Switched off", "globex", ""},
	} {
		_, err := client.PutWorkflow(ctx, w.id,
			api.PutWorkflow{
				AccountID: w.account, Name: w.name, Queue: w.queue,
				Triggers: []api.PutTrigger{
					{NodeID: "webhook", Name: "Webhook", SamplePayload: []byte(`{"order": 17, "customer": {"name": "Ada", "vip": true}, "items": [{"sku": "A-1", "n": 2}]}`)},
				},
			})
		check(err)
		trigger, err := client.Trigger(ctx, w.id, "webhook")
		check(err)
		urls[w.id] = trigger.URL
	}
	for _, id := range []string{"orders", "ledger", "shrunk"} {
		_, err := client.Activate(ctx, id)
		check(err)
	}
	_, err = client.PutWorkflow(ctx, "shrunk", api.PutWorkflow{
		AccountID: "umbrella", Name: "A workflow with a rather long name that somebody gave it",
		Triggers: []api.PutTrigger{
			{NodeID: "webhook"}, {NodeID: "second", Name: "From the shop"},
		},
	})
	check(err)

	send := func(url, delivery, body string) string {
		t.Helper()
		header := map[string]string{
			"Content-Type": "application/json",
			"User-Agent":   "GitHub-Hookshot/044aadd", "X-GitHub-Event": "push",
		}
		if delivery != "" {
			header["X-GitHub-Delivery"] = delivery
		}
		a, err := post(ctx, url, header, strings.NewReader(body))
		check(err)
		return a.ExecutionID
	}
	order := `{"order": 12345678901234567890, "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "vip": true, "note": null}, "items": [{"sku": "A-1", "n": 2}, {"sku": "B-7", "n": 1, "tags": []}]}`
	ids := map[string]string{"rejected": send(urls["off"], "", order)}
	_, err = client.PutAccount(ctx, "globex", api.PutAccount{Name: "Globex Inc.", Plan: "free"})
	check(err)
	ids["rejected"] = send(urls["off"], "9f1c7d30-6e7b-11ef-9b4c-1d2e3f4a5b6c", order)
	for i := range 30 {
		ids["queued"] = send(urls["orders"], fmt.Sprintf("72d3162e-cc78-11e3-81ab-4c9367dc%04d", i),
			order)
	}
	for range 3 {
		send(urls["orders"], "72d3162e-cc78-11e3-81ab-4c9367dc0029", order)
	}
	for range 4 {
		ids["failed"] = send(urls["ledger"], "", order)
		ids["succeeded"] = send(l.webhook, fmt.Sprint("delivery-", time.Now().UnixNano()), order)
	}
	for range 17 {
		send(urls["orders"]+"x", "", order)
	}
	send(urls["orders"], "", "{")
	send(strings.Split(urls["orders"], "?")[0], "", order)
	send(urls["shrunk"], "", order)
	for i := range 6 {
		send(strings.Replace(urls["orders"], "orders", fmt.Sprint("order", i), 1), "", order)
	}
	check(past(ctx, nc))
	awaitShown(t, client, ids)
	again, err := client.RerunExecution(ctx, ids["succeeded"])
	check(err)
	ids["rerun"] = again.ExecutionID
	_, err = client.RotateToken(ctx, "orders", "webhook", time.Hour)
	check(err)
	_, err = client.PutAccount(ctx, "umbrella", api.PutAccount{Name: "Umbrella Inc.", Plan: "free"})
	check(err)
	send(urls["shrunk"], "", order)
	awaitShown(t, client, ids)
	return ids
}

// past publishes the messages that a day of use would have left in the streams.
func past(ctx context.Context, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Minute)
	publish := func(msg *nats.Msg, err error) error {
		if err == nil {
			_, err = js.PublishMsg(ctx, msg)
		}
		return err
	}
	start := func(n int, at time.Time) error {
		id := uuid.NewString()
		payload, err := execution.NewPayload("application/json", []byte(`{}`))
		if err != nil {
			return err
		}
		progress := execution.Progress{
			ID: id, Status: execution.Succeeded,
			At: at.Add(time.Duration(n%7) * time.Second),
		}
		if n%13 == 0 {
			progress.Status, progress.Error = execution.Failed, "no luck"
		}
		return errors.Join(publish(stream.StartMessage(execution.Start{
			ID: id, WorkflowID: "ledger", NodeID: "webhook", AccountID: "umbrella", Queue: "past",
			Source: execution.SourceWebhook, AcceptedAt: at, Payload: payload,
		})), publish(stream.ProgressMessage("past", "ledger", "webhook", "", progress)))
	}
	for m := 2; m < 60; m++ {
		at := now.Add(-time.Duration(m) * time.Minute)
		for n := range 4 + (m*m)%9 {
			if err := start(m+n, at.Add(time.Duration(n)*time.Second)); err != nil {
				return err
			}
		}
		last := stream.RefusedRequest{At: at}
		refused := []stream.RefusalCount{{
			Code: "workflow_not_found", Minute: at, Count: 1 + int64(m*m%3), Last: last,
		}}
		if m > 20 && m < 30 {
			refused = append(refused, stream.RefusalCount{
				WorkflowID: "ledger", Code: "rate_limited", Minute: at, Count: int64(m*m) % 7,
				Last: last,
			})
		}
		if err := publish(stream.RefusalsMessage(uuid.NewString(), at, refused)); err != nil {
			return err
		}
	}
	for h := 1; h < 24; h++ {
		for n := range 20 + (h*h)%37 {
			age := time.Duration(h)*time.Hour + time.Duration(n)*time.Second
			if err := start(h+n, now.Add(-age)); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitShown waits until everything that fill has created is recorded and counted.
func awaitShown(t *testing.T, client *apiclient.Client, ids map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !shown(ctx, client, ids) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("not all is recorded and counted")
		}
	}
}

// shown reports whether everything that fill has created is recorded and counted: each execution in
// ids has the status that is its key in ids (the one with the key "rerun" may have any status), and
// all three refused requests are counted.
func shown(ctx context.Context, client *apiclient.Client, ids map[string]string) bool {
	for state, id := range ids {
		if e, err := client.Execution(ctx, id); err != nil ||
			(state != "rerun" && e.Status != state) {
			return false
		}
	}
	refused, err := client.Refusals(ctx, "orders", time.Time{}, apiclient.Page{})
	return err == nil && len(refused.Items) == 3
}
