package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/webhook"
)

// wantSecured checks that the answer has the security headers that every response must have. what
// names the answer in messages.
func wantSecured(t *testing.T, what string, a answer) {
	t.Helper()
	policy := a.header.Get("Content-Security-Policy")
	for _, part := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:",
		"connect-src 'self'",
		"form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
	} {
		if !strings.Contains(policy, part) {
			t.Errorf("%s: the policy has no %s: %q", what, part, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("%s: %s", what, policy)
	}
	for name, want := range map[string]string{
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %s is %q", what, name, got)
		}
	}
}

// inline matches markup that violates the content security policy, or that loads something from
// other hosts.
var inline = regexp.MustCompile(
	`(?i)<style|<script(?:[^>]*)>[^<]|\sstyle=|\son[a-z]+=|javascript:|(?:src|href|action)="?(?:https?:)?//`,
)

func TestEveryPage(t *testing.T) {
	t.Parallel()
	r := start(t)
	token := r.CreateWorkflow(t, "orders", "free", true)
	r.CreateWorkflow(t, "invoices", "free", false)
	r.CreateWorkflow(t, "grown", "pro", true)
	_, _, err := r.PutAccount(t.Context(), "on-pro", "Shrunk", "none")
	r.check(err)
	r.CreateWorkflow(t, "early", "ultra", true)
	r.CreateWorkflow(t, "late", "ultra", true)
	_, _, err = r.PutAccount(t.Context(), "on-ultra", "Cut", "free")
	r.check(err)
	r.check(
		r.SetSamplePayload(
			t.Context(),
			"orders",
			"node",
			[]byte(`{"a":"</textarea><script>alert(1)</script>"}`),
		),
	)
	hostile := `{"<script>alert(1)</script>":["</script>",1e400,12345678901234567890,{"b":null}]}`
	id := r.execution("orders", hostile)
	r.refused("orders", "token_invalid", 17, `<script>alert(1)</script>`)
	r.refused("deleted-one", "rate_limited", 4, "")
	r.refused("", "workflow_not_found", 1234, "scanner")
	session := r.signIn()

	pages := map[string]int{
		"/":                          200,
		"/workflows":                 200,
		"/workflows?q=ORD":           200,
		"/workflows?account=on-free": 200,
		"/workflows?account=nobody":  200,
		"/workflows/orders":          200,
		"/workflows/orders?node=other&status=failed": 200,
		"/workflows/grown":                           200,
		"/new-workflow":                              200,
		"/executions":                                200,
		"/executions?status=queued&source=webhook&within=1h&delivery=d": 200,
		"/executions?after=nonsense":                                    200,
		"/executions/" + id:                                             200,
		"/executions/none":                                              404,
		"/fragments/execution?id=" + id:                                 200,
		"/fragments/execution?id=none":                                  404,
		"/accounts":                                                     200,
		"/accounts?after=zzz":                                           200,
		"/dead-letters":                                                 200,
		"/dead-letters?after=nonsense":                                  200,
		"/refusals":                                                     200,
		"/refusals?within=1h":                                           200,
		"/refusals?within=9y&after=nonsense":                            200,
		"/fragments/workflow?workflow=orders&node=other":                200,
		"/fragments/workflow?workflow=none":                             404,
		"/workflows/none":                                               404,
		"/none":                                                         404,
		"/workflows/":                                                   404,
		"/../etc/passwd":                                                307,
	}
	for path, want := range pages {
		a := r.get(path, session)
		if a.status != want {
			t.Errorf("%s: %d, want %d\n%.500s", path, a.status, want, a.body)
		}
		wantSecured(t, path, a)
		if found := inline.FindString(a.body); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		for _, secret := range []string{
			token, webhook.TokenPrefix, adminToken, "<script>alert", "ZgotmplZ",
		} {
			if strings.Contains(a.body, secret) {
				t.Errorf("%s has %q in it", path, secret)
			}
		}
	}
	for _, a := range []answer{
		r.get("/sign-in"), r.get("/sign-in?once=x"), r.get("/workflows"),
		r.get("/fragments/executions"), r.get("/fragments/executions", session),
		r.get("/fragments/refusals?workflow=none", session), r.get("/fragments/numbers", session),
	} {
		wantSecured(t, "outside", a)
	}
	if a := r.call(http.MethodDelete, "/workflows/orders", nil,
		session); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") == "" {
		t.Errorf("DELETE: %d", a.status)
	}

	for path, parts := range map[string][]string{
		"/":                    {"No ingress is alive", "in the last hour", `token_invalid <b>17</b>`, "refused <b>1,255</b>", `href="/refusals?within=1h"`, "deduplicated <b>3</b>", "accepted <b>1</b>"},
		"/accounts?after=zzz":  {"<noscript>", "runs no JavaScript"},
		"/fragments/numbers":   {"No ingress is alive", "17 token_invalid"},
		"/workflows":           {"orders", "1 of 1 active", "Over the limit", "Not in plan", "To activate it, deactivate another", "Deactivate others", ">Change the plan</a> to use it", `scope="col">Last 24 hours</th>`, `data-label="Last 24 hours"`},
		"/workflows?q=voic":    {"invoices"},
		"/workflows?q=nothing": {"No workflow has “nothing”"},
		"/workflows/grown": {
			"Its webhooks are refused", "Change the plan of",
			"Not in plan",
		},
		"/workflows/late": {
			"Its webhooks are refused",
			"Deactivate others until there is room", "Over the limit",
		},
		"/workflows/invoices": {"Deactivate", `href="/workflows/orders"`},
		"/workflows/orders": {
			"https://hooks.example.com/webhooks/orders?token=", "60 requests/min", "102,400 bytes",
			"X-GitHub-Delivery", "never used", "17 refused:", "give the sender the new URL",
			"body of 2 KB", "&lt;script&gt;",
		},
		"/executions/" + id: {
			"12345678901234567890", "1e400", "Recorded",
			"X-Request", "debug",
		},
		"/executions":                         {id, "delivery", "3 repeats"},
		"/fragments/refusals?workflow=orders": {"17 refused:", "token_invalid"},
		"/fragments/workflow?workflow=orders": {"1 of 1 active", `aria-checked="true"`, "never used"},
		"/refusals": {
			`href="/workflows/orders">orders</a>`, "<b>17</b>", "token_invalid", "give the sender the new URL", "body of 2 KB", "&lt;script&gt;",
			"<code>deleted-one</code>", "sender unknown", "no workflow", "<b>1,234</b>", "mistyped",
		},
		"/refusals?within=9y&after=nonsense": {"“9y” is not a span of time; “nonsense” is not a " +
			"" +
			"place in the list", "<b>17</b>"},
		"/accounts": {"When something fails: events start no workflow", "hookstart run --queue alerts --raw -- deploy/events/chat.sh", `action="/accounts/on-free/events"`, "1 of 1 active", "1 active workflow refused", "free: 1 active, 60 requests/min, 1 GB a day<", "pro: any number active, 600 requests/min per workflow, 10 GB a day<"},
		"/executions?status=broken&source=x&within=9y&after=nonsense": {"“broken” is not a " +
			"status; “x” is not a way to start an execution; “9y” is not a span of time; " +
			"“nonsense” is not a place in the list", id},
		"/executions?source=rerun":    {"Nothing matches"},
		"/executions?status=canceled": {"Nothing matches", "<option selected>canceled"},
		"/executions?source=event":    {"Nothing matches", `value="event" selected`},
	} {
		body := r.get(path, session).body
		for _, part := range parts {
			if !strings.Contains(body, part) {
				t.Errorf("%s does not say %q", path, part)
			}
		}
	}
	if body := r.get("/refusals", session).body; strings.Contains(
		body,
		`href="/workflows/deleted-one"`,
	) {
		t.Error("there is a link to a workflow that does not exist")
	}
	if body := r.get("/workflows?q=voic", session).body; strings.Contains(
		body,
		`href="/workflows/orders"`,
	) {
		t.Error("the search shows what does not match")
	}
}

// The pages of an execution and of its workflow can be rendered for every JSON text that the
// ingress accepts, as the input and as the sample payload.
func TestPagesOfExtremeInput(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	for name, input := range map[string]string{
		"a little too deep": strings.Repeat("[", 32) + strings.Repeat("]", 32),
		"as deep as can be": strings.Repeat("[", 51_200) + strings.Repeat("]", 51_200),
		"wide":              "[" + strings.Repeat("1,", 5_000) + "1]",
		"many objects":      "[" + strings.Repeat(`{"a":[{}]},`, 3_000) + "1]",
	} {
		id := r.execution("orders", input)
		a := r.get("/executions/"+id, session)
		if a.status != http.StatusOK ||
			(len(input) < 1000 && !strings.Contains(a.body, "see Raw")) {
			t.Errorf("%s: %d", name, a.status)
		}
		r.check(r.SetSamplePayload(t.Context(), "orders", "node", []byte(input)))
		if a := r.get("/workflows/orders", session); a.status != http.StatusOK ||
			len(a.body) > 1<<20 {
			t.Errorf("%s as a sample: %d, %d bytes", name, a.status, len(a.body))
		}
	}
}

// The page of an execution shows a JSON output as a tree and as raw text. If a value in the output
// is too long for the tree, the raw text still contains the whole value.
func TestPageOfALongOutput(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	id := r.execution("orders", "{}")
	long := strings.Repeat("y", 5_000)
	_, err := r.store.Apply(t.Context(), store.Batch{Progress: []execution.Progress{{
		ID: id, WorkflowID: "orders", Queue: "default", Status: execution.Succeeded, At: time.Now(), Output: []byte(`{"price":1.10,"long":"` + long + `"}`),
	}}})
	r.check(err)
	body := r.get("/executions/"+id, r.signIn()).body
	for _, part := range []string{`data-copy="output-text"`, `{&#34;price&#34;:1.10,&#34;long&#34;:&#34;` + long + `&#34;}</pre>`} {
		if !strings.Contains(body, part) {
			t.Errorf("the page has not %.80q", part)
		}
	}
}

// execution publishes a start message with a JSON input to the stream, records it, and returns the
// execution's ID.
func (r *rig) execution(workflowID, input string) string {
	r.t.Helper()
	payload, err := execution.NewPayload("application/json", []byte(input))
	r.check(err)
	return r.start(workflowID, payload, func(*execution.Start) {})
}

// start publishes a start message to the stream, records it, and returns the execution's ID. change
// can modify the message first.
func (r *rig) start(
	workflowID string, payload execution.Payload, change func(*execution.Start),
) string {
	r.t.Helper()
	now := time.Now().UTC().Truncate(time.Microsecond)
	id := fmt.Sprintf("%08d-0000-8000-8000-000000000000", now.UnixNano()%100_000_000)
	start := execution.Start{
		ID: id, WorkflowID: workflowID, NodeID: "node", AccountID: "on-free", Queue: "default",
		Source: execution.SourceWebhook, DeliveryID: "d-1",
		AcceptedAt: now, Payload: payload, Headers: execution.Values{"X-Request": {"<b>"}},
		Query: execution.Values{"debug": {"1"}},
	}
	change(&start)
	id = start.ID
	msg, err := stream.StartMessage(start)
	r.check(err)
	ack, err := r.JetStream.PublishMsg(r.t.Context(), msg)
	r.check(err)
	_, err = r.store.Apply(r.t.Context(), store.Batch{NewRecords: []store.Record{{
		ID: id, AccountID: start.AccountID, WorkflowID: workflowID, NodeID: "node",
		Queue: "default", Source: start.Source, Status: execution.Queued,
		DeliveryID: "d-1", AcceptedAt: now, RecordedAt: now, ContentType: payload.ContentType,
		BodyBytes: int64(len(payload.Body)), StreamSequence: ack.Sequence,
	}}})
	r.check(err)
	r.check(r.store.AddDuplicates(r.t.Context(), "report", now, map[string]int64{id: 3}))
	return id
}

// refused adds n refused requests with the given code to the counts of a workflow, as the recorder
// does.
func (r *rig) refused(workflowID, code string, n int64, userAgent string) {
	r.t.Helper()
	now := time.Now()
	r.check(r.store.AddRefusals(r.t.Context(), workflowID+code, now, []store.RefusalCount{{
		WorkflowID: workflowID, Code: code, Minute: now.Truncate(time.Minute), Count: n,
		Last: store.RefusedRequest{At: now, BodyBytes: 2048, UserAgent: userAgent},
	}}))
}

func TestAssets(t *testing.T) {
	t.Parallel()
	r := start(t)
	page := r.get("/sign-in").body
	found := regexp.MustCompile(`/assets/[0-9a-f]+/[a-z.]+`).FindAllString(page, -1)
	if len(found) < 3 {
		t.Fatalf("%q", found)
	}
	for _, path := range found {
		a := r.get(path)
		if a.status != http.StatusOK ||
			!strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %s", path, a.status, a.header.Get("Cache-Control"))
		}
	}
	folder := found[0][:strings.LastIndex(found[0], "/")+1]
	if a := r.get(folder); a.status != http.StatusNotFound {
		t.Errorf("the folder: %d", a.status)
	}
	if a := r.get(folder + "console.js"); !strings.HasPrefix(a.header.Get("Content-Type"),
		"text/javascript") {
		t.Errorf("a module is %s", a.header.Get("Content-Type"))
	}
}

func TestPagesOfWorkflows(t *testing.T) {
	t.Parallel()
	r := start(t)
	for i := range 30 {
		r.CreateWorkflow(t, fmt.Sprintf("orders-%02d", i), "pro", false)
	}
	session := r.signIn()
	link := regexp.MustCompile(`<a href="/workflows/(orders-\d\d)">`)
	first := r.get("/workflows?q=ORDERS&account=on-pro", session).body
	if found := link.FindAllString(first, -1); len(found) != 25 {
		t.Errorf("%d rows", len(found))
	}
	next := regexp.MustCompile(`href="(/workflows\?account=on-pro&amp;after=[^&"]+&amp;q=ORDERS)"`).
		FindStringSubmatch(first)
	if next == nil || strings.Contains(first, "orders-25") {
		t.Fatal("no link to the next page, which keeps what is looked for")
	}
	second := r.get(strings.ReplaceAll(next[1], "&amp;", "&"), session).body
	if found := link.FindAllString(second, -1); len(found) != 5 {
		t.Errorf("%d rows on the second page", len(found))
	}
	if !strings.Contains(second, `href="/workflows?account=on-pro&amp;q=ORDERS"`) {
		t.Error("no link back to the first page")
	}
}

// A search for the ID of an execution redirects to that execution. A search for any other text,
// even another UUID, lists the executions with that delivery ID.
func TestAnExecutionIsFoundByItsID(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	id := r.execution("orders", `{}`)
	session := r.signIn()
	for _, path := range []string{"/executions", "/workflows/orders"} {
		if a := r.get(path+"?delivery=+"+strings.ToUpper(id),
			session); a.status != http.StatusSeeOther ||
			a.header.Get("Location") != "/executions/"+id {
			t.Errorf("%s: %d %s", path, a.status, a.header.Get("Location"))
		}
		if a := r.get(path+"?delivery=d-1", session); a.status != http.StatusOK ||
			!strings.Contains(a.body, id) {
			t.Errorf("%s by the delivery ID: %d", path, a.status)
		}
		if a := r.get(path+"?delivery=72d3162e-cc78-11e3-81ab-4c9367dc0958",
			session); a.status != http.StatusOK || strings.Contains(a.body, id) {
			t.Errorf("%s by another UUID: %d", path, a.status)
		}
	}
}

// The pages of a list have 25 rows each. Following the links from page to page shows every row
// exactly once, newest first, and keeps the filter.
func TestPaging(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	var batch store.Batch
	began := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Hour)
	for i := range 60 {
		batch.NewRecords = append(batch.NewRecords, store.Record{
			ID: fmt.Sprintf("id-%03d", i), AccountID: "on-free", WorkflowID: "orders",
			NodeID: "node", Queue: "default", Source: execution.SourceWebhook,
			Status: execution.Queued, AcceptedAt: began.Add(time.Duration(i/2) * time.Second),
			RecordedAt: began, StreamSequence: uint64(i) + 1,
		})
	}
	_, err := r.store.Apply(t.Context(), batch)
	r.check(err)
	session := r.signIn()
	rows, older := regexp.MustCompile(
		`data-id="([^"]+)"`,
	), regexp.MustCompile(
		`href="([^"]+)" rel="next"`,
	)
	var seen []string
	for path := "/workflows/orders?status=queued"; path != ""; {
		body := r.get(path, session).body
		for _, match := range rows.FindAllStringSubmatch(body, -1) {
			seen = append(seen, match[1])
		}
		next := older.FindStringSubmatch(body)
		if path = ""; next != nil {
			path = strings.ReplaceAll(next[1], "&amp;", "&")
			if !strings.Contains(path, "status=queued") {
				t.Fatalf("the next page forgets the filter: %s", path)
			}
		}
	}
	for i, id := range seen {
		if want := fmt.Sprintf("id-%03d", 59-i); id != want {
			t.Fatalf("row %d is %s, want %s", i, id, want)
		}
	}
	if len(seen) != 60 {
		t.Errorf("%d rows", len(seen))
	}
	fragment := r.get("/fragments/executions?workflow=orders&limit=10", session).body
	if n := len(rows.FindAllString(fragment, -1)); n != 10 {
		t.Errorf("a fragment of 10 has %d rows", n)
	}
}

// The refusals in the selected time span are shown in pages of 25 rows. The links to other pages
// keep the time span.
func TestPagesOfRefusals(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.signIn()
	if a := r.get("/refusals", session); !strings.Contains(a.body, "Nothing was refused") {
		t.Error("without any, it does not say so")
	}
	now := time.Now().UTC().Truncate(time.Minute)
	var all []store.RefusalCount
	for i := range 60 {
		at := now.Add(-time.Duration(i) * time.Second)
		if i >= 30 {
			at = now.Add(-2*time.Hour - time.Duration(i)*time.Second)
		}
		all = append(all, store.RefusalCount{
			WorkflowID: fmt.Sprintf("w-%02d", i), Code: "json_invalid",
			Minute: at.Truncate(time.Minute), Count: 1, Last: store.RefusedRequest{At: at},
		})
	}
	r.check(r.store.AddRefusals(t.Context(), "report", now, all))
	rows, older := regexp.MustCompile(
		`<code>(w-\d\d)</code>`,
	), regexp.MustCompile(
		`href="([^"]+)" rel="next"`,
	)
	for asked, want := range map[string]int{"": 60, "?within=1h": 30, "?within=7d": 60} {
		var seen []string
		for path := "/refusals" + asked; path != ""; {
			body := r.get(path, session).body
			for _, match := range rows.FindAllStringSubmatch(body, -1) {
				seen = append(seen, match[1])
			}
			next := older.FindStringSubmatch(body)
			if path = ""; next != nil {
				path = strings.ReplaceAll(next[1], "&amp;", "&")
			}
		}
		if len(seen) != want {
			t.Errorf("%q: %d rows, want %d", asked, len(seen), want)
		}
		for i, id := range seen {
			if want := fmt.Sprintf("w-%02d", i); id != want {
				t.Fatalf("%q: row %d is %s, want %s", asked, i, id, want)
			}
		}
	}
}

// The dead letters page shows failed executions and messages that could not be decoded, 25 at a
// time. Each dead letter that can be requeued has a button for that.
func TestPagesOfDeadLetters(t *testing.T) {
	t.Parallel()
	r := start(t)
	token := r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	if a := r.get("/dead-letters", session); !strings.Contains(a.body,
		"None. An execution appears here when") {
		t.Error("without any, it does not say what one is")
	}
	if a := r.get("/fragments/numbers", session); strings.Contains(a.body, "dead letter") {
		t.Error("without any, the overview speaks of dead letters")
	}
	began := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Hour)
	var batch store.Batch
	add := func(i int, workflow, node, reason string) {
		batch.NewRecords = append(batch.NewRecords, store.Record{
			ID: fmt.Sprintf("id-%03d", i), AccountID: "on-free", WorkflowID: workflow, NodeID: node,
			Queue: "default", Source: execution.SourceWebhook,
			Status: execution.Queued, AcceptedAt: began.Add(time.Duration(i) * time.Second),
			RecordedAt: began, StreamSequence: uint64(i) + 1,
		})
		batch.Progress = append(batch.Progress, execution.Progress{
			ID: fmt.Sprintf("id-%03d", i), WorkflowID: workflow, Queue: "default",
			Status: execution.Failed, Error: reason,
			At: began.Add(time.Duration(i)*time.Second + 1500*time.Millisecond),
		})
	}
	for i := range 30 {
		add(i, "orders", "node", "<script>alert(1)</script>")
	}
	add(30, "orders", "dropped", "its node is gone")
	add(31, "deleted-one", "node", "its workflow is gone")
	batch.PutAside = []store.AsideMessage{{
		StreamSequence: 99, Subject: "executions.start.q.w.n",
		Reason: "not protobuf", At: began.Add(time.Hour),
	}}
	_, err := r.store.Apply(t.Context(), batch)
	r.check(err)

	first := r.get("/dead-letters", session)
	wantSecured(t, "dead letters", first)
	for part, want := range map[string]int{
		"<tr ": 26, `:retry"`: 22, "its trigger node is gone": 2,
		"the message cannot be decoded": 1, "not protobuf": 1, "executions.start.q.w.n": 1,
		`/dead-letters/id-029/requeue"`: 1, `href="/executions/id-031"`: 1, `href="/workflows/deleted-one"`: 0, "&lt;script&gt;": 22, "failed after 1.5 s": 24,
		token: 0, webhook.TokenPrefix: 0, "<script>alert": 0, `rel="next"`: 1, ">Newest<": 0,
	} {
		if got := strings.Count(first.body, part); got != want {
			t.Errorf("%q is there %d times, want %d", part, got, want)
		}
	}
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(first.body)
	second := r.get(strings.ReplaceAll(next[1], "&amp;", "&"), session).body
	for part, want := range map[string]int{"<tr ": 9, "id-007/requeue": 1, "id-000/requeue": 1, "id-008": 0, `rel="next"`: 0, ">Newest<": 1} {
		if got := strings.Count(second, part); got != want {
			t.Errorf("second page: %q is there %d times, want %d", part, got, want)
		}
	}
	if body := r.get("/", session).body; !strings.Contains(
		body,
		`<strong>33 dead letters</strong> that nobody works on any more. <a href="/dead-letters">`,
	) {
		t.Error("the overview does not lead to the dead letters")
	}
	// In the list of executions, only the dead letters that can be requeued have a button for that.
	body := r.get("/executions", session).body
	for part, want := range map[string]int{`<li class="execution"`: 25, `class="why"`: 25, `title="its node is gone"`: 1, `/requeue"`: 23, "id-029/requeue": 1, "id-030/requeue": 0, "id-031/requeue": 0} {
		if got := strings.Count(body, part); got != want {
			t.Errorf("executions: %q is there %d times, want %d", part, got, want)
		}
	}
	batch = store.Batch{}
	for i := range 70 {
		add(100+i, "orders", "node", "")
	}
	_, err = r.store.Apply(t.Context(), batch)
	r.check(err)
	const many = "<strong>More than 100 dead letters</strong>"
	if body := r.get("/", session).body; !strings.Contains(body, many) {
		t.Error("the overview counts the dead letters to the end")
	}
	if body := r.get("/dead-letters?after=nonsense", session).body; !strings.Contains(body,
		"“nonsense” is not a place in the list") || strings.Count(body, "<tr ") != 26 {
		t.Error("what is no place is not said to be none")
	}
}

// Before a change of plan stops workflows, the page asks for confirmation and lists these
// workflows. The workflows that were activated first keep working, up to the number that the new
// plan allows.
func TestPlanChange(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, id := range []string{"zeta", "beta", "eta", "alpha", "iota", "gamma", "kappa"} {
		r.CreateWorkflow(t, id, "pro", true)
	}
	r.CreateWorkflow(t, "inactive", "pro", false)
	session := r.signIn()
	code := regexp.MustCompile(`<code class="muted">([a-z]+)</code>`)
	// ask posts the form that changes the plan, and returns the dialog that asks for confirmation.
	ask := func(account, from, to string) (dialog string, status int) {
		t.Helper()
		a := r.call(http.MethodPost, "/accounts/"+account+"/plan",
			url.Values{"shown.plan": {from}, "plan": {to}}, session)
		wantSecured(t, to, a)
		_, dialog, asked := strings.Cut(a.body, `<dialog id="ask" aria-labelledby="ask-title" open>`)
		if asked != (a.status == http.StatusConflict) {
			t.Errorf("to %s: %d, whether it asks: %v", to, a.status, asked)
		}
		return dialog, a.status
	}
	for _, c := range []struct{ to, want string }{
		{"pro", "303"},
		{"ultra", "303"},
		{"nonsense", "422"},
		{"free", "beta eta alpha iota gamma and 1 more. This one stays zeta"},
		{"none", "zeta beta eta alpha iota and 2 more."},
	} {
		dialog, status := ask("on-pro", "pro", c.to)
		if status != http.StatusConflict {
			if fmt.Sprint(status) != c.want {
				t.Errorf("to %s: %d, want %s", c.to, status, c.want)
			}
			_, _, err := r.PutAccount(t.Context(), "on-pro", "On pro", "pro")
			r.check(err)
			continue
		}
		stop, stay, some := strings.Cut(dialog, "This one stays")
		ids := func(text string) (all string) {
			for _, match := range code.FindAllStringSubmatch(text, -1) {
				all += match[1] + " "
			}
			return all + strings.TrimSpace(regexp.MustCompile(`and \d more`).FindString(text))
		}
		got := ids(stop) + "."
		if some {
			got += strings.TrimRight(" This one stays "+ids(stay), " ")
		}
		if got != c.want {
			t.Errorf("to %s: %q, want %q", c.to, got, c.want)
		}
	}
	if _, status := ask("nobody", "pro", "free"); status != http.StatusNotFound {
		t.Errorf("of no account: %d", status)
	}
	// With the current plan "free", alpha's requests are already refused. The dialog about a change
	// to the plan "none" therefore does not list alpha among the workflows that the change stops.
	_, _, err := r.PutAccount(t.Context(), "on-pro", "Shrunk", "free")
	r.check(err)
	if dialog, _ := ask("on-pro", "free", "none"); !strings.Contains(dialog, "This one stops") ||
		!strings.Contains(dialog, "zeta") || strings.Contains(dialog, "alpha") {
		t.Errorf("from free to none: %s", dialog)
	}

	// A new plan with a lower rate limit stops no workflow. The page asks for confirmation only if
	// the limit applies to active workflows, which is the case if they have no rate limit of their
	// own.
	r.CreateWorkflow(t, "limited", "ultra", true)
	_, _, err = r.PutWorkflow(t.Context(), edit.WorkflowSpec{
		ID: "limited", AccountID: "on-ultra", Triggers: []edit.TriggerSpec{{NodeID: "node"}},
		RateLimit: &registry.RateLimit{Requests: 9, Window: time.Second},
	})
	r.check(err)
	if _, status := ask("on-ultra", "ultra", "pro"); status != http.StatusSeeOther {
		t.Errorf("of one with a limit of its own: %d", status)
	}
	_, _, err = r.PutAccount(t.Context(), "on-ultra", "On ultra", "ultra")
	r.check(err)
	r.CreateWorkflow(t, "fast", "ultra", true)
	r.CreateWorkflow(t, "faster", "ultra", true)
	if dialog, _ := ask("on-ultra", "ultra", "pro"); !strings.Contains(dialog,
		"Its rate limit is lower:</strong> 600 requests/min, now it is 6,000 requests/min. That "+
			"holds for 2 active workflows without") || strings.Contains(dialog, "stop") {
		t.Errorf("from ultra to pro: %s", dialog)
	}
}

// The executions of a deleted workflow are still shown, but without links to the workflow and
// without buttons that would run it again.
func TestExecutionsOfADeletedWorkflow(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "gone", "free", true)
	id := r.execution("gone", "{}")
	_, err := r.store.Apply(t.Context(), store.Batch{Progress: []execution.Progress{{
		ID: id, WorkflowID: "gone", Queue: "default", Status: execution.Succeeded, At: time.Now(),
	}}})
	r.check(err)
	session := r.signIn()
	pages := map[string]string{
		"/executions": "gone (deleted)", "/executions/" + id: "its workflow is gone",
	}
	for path := range pages {
		if body := r.get(path, session).body; !strings.Contains(body, `href="/workflows/gone`) ||
			!strings.Contains(body, `run-again"`) {
			t.Errorf("%s has no link to the workflow, or nothing that runs it again", path)
		}
	}
	r.check(r.DeleteWorkflow(t.Context(), "gone"))
	for path, says := range pages {
		if body := r.get(path, session).body; strings.Contains(body, `href="/workflows/gone`) ||
			strings.Contains(body, `run-again"`) ||
			!strings.Contains(body, says) {
			t.Errorf("%s, when the workflow is deleted: %s", path, body)
		}
	}
}

// The advice for a plan without webhooks does not suggest deactivating other workflows.
func TestAdviceOnAPlanWithoutWebhooks(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "on", "free", true)
	r.CreateWorkflow(t, "off", "free", false)
	_, _, err := r.PutAccount(t.Context(), "on-free", "Cut", "none")
	r.check(err)
	body := r.get("/workflows/off", r.signIn()).body
	if strings.Contains(body, "Deactivate ") ||
		!strings.Contains(body, "Change the plan</a> of “Cut”") {
		t.Error(body)
	}
}
