package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/runner"
)

// controlled is an installation with executions to control. Its workflows are:
//   - nightly: its executions wait, because no runner serves its queue.
//   - ordered: its first execution runs until the test ends. The others have the same order key and
//     wait for the first one.
//   - off: it is inactive, and one of its executions waits.
//   - forms: it has received a delivery from GitHub as a form.
//   - demo: it has received a request by which a sender verifies its URL.
//
// nightly, ordered and off each have a queue with the workflow's name.
type controlled struct {
	*localProgram
	nightly, ordered []string // IDs of the executions of these workflows, oldest first
	form             string   // ID of the execution of the workflow forms
}

func launchControlled(t *testing.T) *controlled {
	t.Helper()
	c := &controlled{localProgram: launchLocal(t, t.TempDir())}
	client := c.client()
	urls := map[string]string{}
	for _, id := range []string{"nightly", "ordered", "off", "forms"} {
		urls[id] = c.ingress + makeWorkflow(t, client, id)
		put := api.PutWorkflow{
			AccountID: "tests", Name: id, Queue: id,
			Triggers: []api.PutTrigger{{NodeID: "node"}},
		}
		if id == "ordered" {
			put.Triggers[0].OrderKey = "query:key"
		}
		if _, err := client.PutWorkflow(t.Context(), id, put); err != nil {
			t.Fatal(err)
		}
	}
	c.holdExecutions(t, "ordered")
	send := func(url, contentType, body string, header ...string) string {
		t.Helper()
		headers := map[string]string{"Content-Type": contentType}
		for pair := range slices.Chunk(header, 2) {
			headers[pair[0]] = pair[1]
		}
		a, err := post(t.Context(), url, headers, strings.NewReader(body))
		if err != nil || a.Status != 200 {
			t.Fatalf("POST: %+v, %v", a, err)
		}
		recorded(t, client, a.ExecutionID, func(api.ExecutionDetail) bool { return true })
		return a.ExecutionID
	}
	for range 3 {
		c.nightly = append(c.nightly, send(urls["nightly"], "application/json", `{"n":1}`))
		c.ordered = append(c.ordered,
			send(urls["ordered"]+"&key=order-4711", "application/json", `{"n":1}`))
	}
	recorded(t, client, c.ordered[0],
		func(e api.ExecutionDetail) bool { return e.Status == "running" })
	send(urls["off"], "application/json", `{"n":1}`)
	if _, err := client.Deactivate(t.Context(), "off"); err != nil {
		t.Fatal(err)
	}
	c.form = send(urls["forms"], "application/x-www-form-urlencoded",
		"payload=%7B%22action%22%3A%22opened%22%7D", "X-GitHub-Delivery", "72d3162e-cc78",
		"X-GitHub-Event", "pull_request")
	send(c.webhook, "application/json", `{"type":"url_verification","challenge":"3eZbrw1aBm"}`)
	return c
}

// holdExecutions starts a runner for a queue whose executions run until the test ends, even if they
// are canceled.
func (c *controlled) holdExecutions(t *testing.T, queue string) {
	t.Helper()
	nc, err := nats.Connect(c.nats)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	release, ended := make(chan struct{}), make(chan error, 1)
	running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		ended <- runner.Run(running, nc, runner.Options{Queue: queue, Group: "main"},
			func(context.Context, runner.Execution) (any, error) {
				<-release
				return nil, nil
			})
	}()
	t.Cleanup(func() {
		close(release)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// CSS selectors of controls on the queues page.
const (
	limitDetails    = `[data-code="ordered:main:limit"] `
	streamDetails   = `[data-code="nightly:stream"] `
	setStreamButton = `[id="nightly:set-stream"]`
)

// controlState is one case of the test: a page with controls for queues, executions or operator
// events, and how to bring it into a certain state.
type controlState struct {
	name, path string
	before     func() error // changes the state over the API; nil means no change
	do         func(*tab)   // steps on the page
}

func (c *controlled) states(t *testing.T) []controlState {
	t.Helper()
	client, ctx := c.client(), t.Context()
	says := func(selector, part string) func(*tab) {
		return func(b *tab) { b.text(selector, part) }
	}
	pause := func(until time.Duration) func() error {
		return func() error {
			var at time.Time
			if until > 0 {
				at = time.Now().Add(until)
			}
			_, err := client.PauseQueue(ctx, "nightly", at)
			return err
		}
	}
	events := func(do func(*tab)) func(*tab) {
		return func(b *tab) {
			b.evaluate(`document.querySelector("#account-tests .events").open = true; ""`)
			do(b)
		}
	}
	const sentAsForm = "Sent as a form: choose application/json at GitHub"
	return []controlState{
		{"queues", "/queues", nil, says("#queues", "until resumed")},
		{"queues-paused", "/queues", pause(0), says("#queues", "since")},
		{"queues-paused-until", "/queues", pause(8 * time.Hour), says("#queues", ", until ")},
		{"queues-key-held-up", "/queues", nil, func(b *tab) {
			b.text("#queues", "Key order-4711 of ordered waits for "+c.ordered[0])
			b.text("#queues", "2 behind it")
			b.click(limitDetails + "summary")
		}},
		{"queues-own-stream", "/queues", func() error {
			_, err := client.SetQueueStream(ctx, "off", api.PutQueueStream{
				MaxBytes: 1 << 30, MaxAgeSeconds: 100_000, Replicas: 1,
			})
			return err
		}, func(b *tab) {
			b.text(`tr:has([id="off:stream"])`, "Has a stream of its own")
			b.click(`[data-code="off:stream"] summary`)
			b.click(streamDetails + "summary")
			b.write(streamDetails+"[name=age]", "1")
			b.click(setStreamButton)
			b.text("#queue-said", "Seconds that messages are kept: must be at least ")
		}},
		{"executions-cancel-all", "/executions?of=nightly&status=queued", nil, func(b *tab) {
			b.click("[data-cancel-all] button")
			b.text("dialog[open]", "Cancel all queued executions of nightly that match?")
		}},
		{"execution-queued", "/executions/" + c.nightly[1], nil, says("#again", "Cancel")},
		{"execution-canceled", "/executions/" + c.nightly[0], nil, func(b *tab) {
			b.click("#cancel")
			b.text("#again-said", "It is canceled.")
			b.text("#status", "Canceled")
			b.text("#steps", "by an operator")
		}},
		{"execution-cancel-asked", "/executions/" + c.ordered[0], nil, func(b *tab) {
			b.click("#cancel")
			b.text("#again-said", "It runs, and is asked to end.")
			b.text("#steps", "Cancel asked")
			b.wait(`!document.querySelector("#cancel")`)
		}},
		{"workflow-off", "/workflows/off", nil, says("#over", "executions still wait")},
		{
			"events-empty", "/accounts", nil,
			events(says("#account-tests .events", "events start no workflow")),
		},
		{"events-refused", "/accounts", nil, events(func(b *tab) {
			b.write("#account-tests [name=workflow]", "none")
			b.click("#account-tests [data-events] button")
			b.text(`[id="tests:events-workflow-problem"]`, `account "tests" has no workflow "none"`)
			b.wait(`!document.querySelector("#account-tests").innerText.includes("workflowId")`)
		})},
		{"events-set", "/accounts", func() error {
			_, err := client.PutEvents(ctx, "tests", api.PutEvents{
				WorkflowID: "nightly", Kinds: []string{"execution.failed", "sender.silent"},
				SilentAfterSeconds: 3600,
			})
			return err
		}, events(says("#account-tests .events", "events start nightly"))},
		{
			"url-check", "/workflows/demo", nil,
			says(".sender", "check of the URL, and nothing has answered it"),
		},
		{"sent-as-form", "/workflows/forms", nil, says(".sender", sentAsForm)},
		{"execution-sent-as-form", "/executions/" + c.form, nil, says("main", sentAsForm)},
	}
}

// The pages that control queues, executions and operator events have no axe-core violations in any
// state, are not wider than the window, and cause no browser errors. If HOOKSTART_SCREENSHOTS is
// set to a folder, the test takes a screenshot of each state for people to look at.
func TestControlPages(t *testing.T) {
	t.Parallel()
	findChromium(t)
	axe, installed := readAxe(t)
	if !installed {
		t.Skip("axe is not installed: npm ci --ignore-scripts --prefix deploy/e2e/testdata/axe")
	}
	l := launchControlled(t)
	b := openBrowser(t, l.executor)
	signedInAt(b, "/queues")
	for _, state := range l.states(t) {
		if state.before != nil {
			b.check(state.before())
		}
		setLook(b, "light", 1440)
		b.visit(state.path)
		b.wait(fragmentsAreThere)
		state.do(b)
		checkInAllLooks(t, b, axe, "control-"+state.name)
	}
	b.contented()
}

// The button that pauses and resumes a queue also works on the second page of the list of queues.
func TestPauseOnALaterPage(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchLocal(t, t.TempDir())
	client := l.client()
	makeWorkflow(t, client, "first")
	for i := range 30 {
		id := fmt.Sprintf("later-%02d", i)
		if _, err := client.PutWorkflow(t.Context(), id, api.PutWorkflow{
			AccountID: "tests", Name: id, Queue: id, Triggers: []api.PutTrigger{{NodeID: "node"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	b := openBrowser(t, l.executor)
	signedInAt(b, "/queues")
	b.click("[rel=next]")
	const button = `[id="later-29:pause"]`
	b.text(button, "Pause")
	for _, then := range []string{"paused", "resumed", "paused"} {
		b.click(button)
		b.text("[data-done]", "later-29 is "+then+".")
		b.text(button, map[string]string{"paused": "Resume", "resumed": "Pause"}[then])
	}
	b.contented()
}

// Without a mouse, an operator can do everything that the control pages offer: pause and resume a
// queue, limit a group of runners, give a queue its own stream, change that stream's settings,
// cancel one execution, cancel all that wait, set the workflow that operator events start, and
// remove that setting. The focus is never lost.
func TestControlByKeyboard(t *testing.T) {
	t.Parallel()
	findChromium(t)
	l := launchControlled(t)
	b := openBrowser(t, l.executor)
	press := func(keys string) { t.Helper(); b.do(chromedp.KeyEvent(keys)) }
	to := func(selector string) { t.Helper(); focus(b, selector) }
	focused := func(selector string) {
		t.Helper()
		b.wait(`document.activeElement.matches(` + quote(selector) + `)`)
	}
	queue := func(name string) api.Queue {
		t.Helper()
		all, err := l.client().Queues(t.Context(), apiclient.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all.Items {
			if q.Queue == name {
				return q
			}
		}
		t.Fatalf("there is no queue %s", name)
		return api.Queue{}
	}
	signedInAt(b, "/queues")

	const (
		pause = `[id="nightly:pause"]`
		row   = "tr:has(" + pause + ")"
	)
	to(pause)
	press(kb.Enter)
	b.text(row, "Paused")
	b.text(pause, "Resume")
	focused(pause)
	if q := queue("nightly"); q.Paused == nil || !q.Paused.Until.IsZero() {
		t.Errorf("paused until it is resumed: %+v", q.Paused)
	}
	press(kb.Enter)
	b.text(pause, "Pause")
	focused(pause)
	b.visit("/queues")
	to(row + " [name=seconds]")
	press("for 8")
	to(pause)
	press(kb.Enter)
	b.text(row, ", until ")
	if q := queue("nightly"); q.Paused == nil ||
		q.Paused.Until.Sub(q.Paused.Since).Round(time.Hour) != 8*time.Hour {
		t.Errorf("paused for 8 hours: %+v", q.Paused)
	}

	to(limitDetails + "summary")
	press(kb.Enter)
	to(limitDetails + "[name=limit]")
	press("2" + kb.Enter)
	b.text("#queues", "at most 2 in flight")
	focused(`[id="ordered:main:limit"]`)
	if limit := queue("ordered").Groups[0].MaxInFlight; limit == nil || *limit != 2 {
		t.Errorf("the limit is %v", limit)
	}
	b.do(chromedp.SetValue(chromedp.CSS(limitDetails+"[name=limit]"), ""))
	press(kb.Enter)
	b.wait(`!document.querySelector("#queues").innerText.includes("at most 2")`)
	if limit := queue("ordered").Groups[0].MaxInFlight; limit != nil {
		t.Errorf("the limit is %d", *limit)
	}

	to(streamDetails + "summary")
	press(kb.Enter)
	to(streamDetails + "[name=bytes]")
	press("1000000000")
	to(streamDetails + "[name=age]")
	press("100000" + kb.Enter)
	b.text(row, "Has a stream of its own, at most 1 GB, kept for 100000 s")
	focused(setStreamButton)
	b.wait(`document.querySelector(` + quote(streamDetails+"[name=age]") + `).value === "100000"`)
	b.do(chromedp.SetValue(chromedp.CSS(streamDetails+"[name=bytes]"), ""))
	to(streamDetails + "[name=replicas]")
	press("1")
	to(setStreamButton)
	press(kb.Enter)
	b.text(row, "Has a stream of its own, 1 replica, kept for 100000 s")
	if own := queue("nightly").OwnStream; own == nil || own.MaxBytes != 0 ||
		own.MaxAgeSeconds != 100_000 || own.Replicas != 1 || len(own.PlacementTags) != 0 {
		t.Errorf("its own stream: %+v", own)
	}

	b.visit("/executions/" + l.nightly[0])
	to("#cancel")
	press(kb.Enter)
	b.text("#status", "Canceled")
	b.text("#again-said", "It is canceled.")
	focused("#again-said")

	b.visit("/executions?of=nightly&status=queued")
	to("[data-cancel-all] button")
	press(kb.Enter)
	focused("dialog[open] [value=no]")
	press(kb.Escape)
	b.wait(`!document.querySelector("dialog[open]")`)
	focused("[data-cancel-all] button")
	press(kb.Enter)
	focused("dialog[open] [value=no]")
	to("dialog[open] [value=yes]")
	press(kb.Enter)
	b.text("[data-done]", "2 canceled.")
	for _, id := range l.nightly {
		if e, err := l.client().Execution(t.Context(), id); err != nil || e.Status != "canceled" {
			t.Errorf("%s is %s, %v", id, e.Status, err)
		}
	}
	b.visit("/executions?of=ordered&status=running")
	to("[data-cancel-all] button")
	press(kb.Enter)
	focused("dialog[open] [value=no]")
	to("dialog[open] [value=yes]")
	press(kb.Enter)
	b.text("[data-done]", "0 canceled, 1 asked to end.")
	if e, err := l.client().Execution(t.Context(), l.ordered[1]); err != nil ||
		e.Status != "queued" || !e.CancelRequestedAt.IsZero() {
		t.Errorf("one that waits was canceled with those that run: %+v, %v", e.Execution, err)
	}

	const form = "#account-tests [data-events] "
	b.visit("/accounts")
	to("#account-tests .events summary")
	press(kb.Enter)
	b.wait(`document.querySelector("#account-tests datalist option[value=nightly]")`)
	to(form + "[name=workflow]")
	press("nightly")
	to(form + "[value='execution.failed']")
	press(" ")
	to(form + "[name=silent]")
	press("3600" + kb.Enter)
	b.text("[data-done]", "The account's events start “nightly”.")
	set, err := l.client().Events(t.Context(), "tests")
	if err != nil || set.WorkflowID != "nightly" || set.SilentAfterSeconds != 3600 ||
		!slices.Equal(set.Kinds, []string{"execution.failed"}) {
		t.Errorf("the events are %+v, %v", set, err)
	}
	b.visit("/workflows/nightly")
	b.text("#over", "Started by the events of account tests")
	b.visit("/executions/" + l.ordered[1])
	b.text("main", "Order key\norder-4711")
	b.visit("/accounts")
	to("#account-tests .events summary")
	press(kb.Enter)
	to(form + "[name=start]")
	press(kb.Enter)
	b.text("[data-done]", "start no workflow")
	b.text("#account-tests .events", "events start no workflow")
	b.contented()
}
