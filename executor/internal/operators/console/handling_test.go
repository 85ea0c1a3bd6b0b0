package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// An operator can try a filter on the last requests and on the sample payload before saving it. The
// same requests provide suggestions for fields and values, but not for fields that hold secrets.
func TestAFilterIsTried(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	r.CreateWorkflow(t, "others", "pro", true)
	r.execution("orders", `{"action":"opened","n":12345678901234567890,"pull":{"draft":false,"title":"<b>&"},"list":[{"id":1}],"long":"`+strings.Repeat("y", 100)+`"}`)
	closed := r.execution("orders", `{"action":"closed","n":5}`)
	r.execution("others", `{"action":"of another workflow"}`)
	r.check(r.SetSamplePayload(t.Context(), "orders", "node", []byte(`{"action":"opened"}`)))
	session := r.signIn()
	try := func(filter string) answer {
		t.Helper()
		return r.call(http.MethodPost, "/fragments/filter",
			url.Values{"workflow": {"orders"}, "node": {"node"}, "filter": {filter}}, session)
	}
	a := try(`{"ptr:/action": "opened", "header:X-Request": {"$not": "x"}}`)
	wantSecured(t, "the trial", a)
	for _, part := range []string{
		"2 of the last 3 requests", `<a href="/executions/` + closed + `">`, "<code>ptr:/action</code> is <code>closed</code>", "sample payload",
		`data-place="ptr:/action" data-value="&#34;opened&#34;"`, `data-place="ptr:/n" data-value="12345678901234567890"`, `data-place="ptr:/pull/draft" data-value="false"`,
		`data-place="ptr:/pull/title" data-value="&#34;&lt;b&gt;&amp;&#34;"`, `data-place="query:debug" data-value="&#34;1&#34;"`, "<code>ptr:/long</code>",
	} {
		if a.status != http.StatusOK || !strings.Contains(a.body, part) {
			t.Errorf("%d: it does not say %s:\n%s", a.status, part, a.body)
		}
	}
	for _, part := range []string{"of another workflow", "yyy", "ptr:/list"} {
		if strings.Contains(a.body, part) {
			t.Errorf("it has %s", part)
		}
	}
	if first, other := strings.Index(a.body, `data-place="ptr:/action"`), strings.Index(a.body, `data-place="ptr:/n"`); first > other {
		t.Error("what says what happened is not proposed first")
	}
	if a := try(""); !strings.Contains(a.body, "3 of the last 3 requests") {
		t.Errorf("without a filter: %s", a.body)
	}
	for filter, problem := range map[string]string{
		`{"ptr:/action": {"$is": 1}}`: `ptr:/action: there is no operator "$is"`,
		`{"header:Cookie": "x"}`:      "the header Cookie holds a secret",
		`[]`:                          "must be a JSON object",
	} {
		if a := try(filter); a.status != http.StatusUnprocessableEntity ||
			!strings.Contains(a.body, problem) {
			t.Errorf("%s: %d %s", filter, a.status, a.body)
		}
	}
	form := url.Values{"workflow": {"none"}, "node": {"node"}}
	if a := r.call(http.MethodPost, "/fragments/filter", form,
		session); a.status != http.StatusNotFound {
		t.Errorf("of no workflow: %d", a.status)
	}
	form.Set("workflow", "orders")
	if a := r.call(http.MethodPost, "/fragments/filter", form); a.status == http.StatusOK {
		t.Error("without a session it is answered")
	}
}

// The console shows why a request did not match a filter. It shows at most 60 bytes of the value
// that did not match, and never cuts a character in half.
func TestALongValueIsCut(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	for _, c := range []struct{ value, shown string }{
		{strings.Repeat("x", 60), strings.Repeat("x", 60)},
		{strings.Repeat("x", 61), strings.Repeat("x", 60) + "…"},
		{"x" + strings.Repeat("ä", 40), "x" + strings.Repeat("ä", 29) + "…"},
	} {
		r.execution("orders", fmt.Sprintf(`{"action":%q}`, c.value))
		a := r.call(http.MethodPost, "/fragments/filter", url.Values{
			"workflow": {"orders"}, "node": {"node"}, "filter": {`{"ptr:/action": "opened"}`},
		}, session)
		if want := "<code>ptr:/action</code> is <code>" + c.shown +
			"</code>"; !strings.Contains(a.body, want) {
			t.Errorf("it does not say %s: %s", want, a.body)
		}
	}
}

// The console tries a filter on the last 20 requests to the node, and on no older ones.
func TestAFilterIsTriedOnTheLastRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	var ids []string
	for n := range 22 {
		payload, err := execution.NewPayload("application/json", fmt.Appendf(nil, `{"n":%d}`, n))
		r.check(err)
		ids = append(ids, r.start("orders", payload, func(s *execution.Start) {
			s.ID = fmt.Sprintf("%08d-0000-8000-8000-000000000000", n)
		}))
	}
	form := url.Values{
		"workflow": {"orders"}, "node": {"node"}, "filter": {`{"ptr:/n": {"$lt": 5}}`},
	}
	body := r.call(http.MethodPost, "/fragments/filter", form, r.signIn()).body
	if !strings.Contains(body, "3 of the last 20 requests") {
		t.Errorf("it does not say how many start: %s", body)
	}
	for n, id := range ids {
		if tried := strings.Contains(body, "/executions/"+id); tried != (n >= 2) {
			t.Errorf("whether request %d is tried: %v", n, tried)
		}
	}
}

// The page of a workflow describes in words how a node handles requests, both without and with a
// filter and an order key.
func TestPageOfWhatANodeDoes(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	body := r.get("/workflows/orders", session).body
	for _, part := range []string{
		"None: every request starts an execution",
		"executions may run at the same time", "At once, when the start is stored",
	} {
		if !strings.Contains(body, part) {
			t.Errorf("without settings, it does not say %q", part)
		}
	}
	_, err := r.ChangeWorkflow(t.Context(), "orders", func(spec *edit.WorkflowSpec) error {
		spec.Triggers[0].Filter = []byte(`{"ptr:/action":["opened","reopened"],"ptr:/n":{"$gte":3,"$not":[4,5]},"header:X-A":{"$exists":false},"form:b":{"$not":{"$prefix":"x"}},"ptr:/x":null}`)
		spec.Triggers[0].OrderKey = "ptr:/order/id"
		return nil
	})
	r.check(err)
	for path, fragment := range map[string]bool{
		"/workflows/orders":                             false,
		"/fragments/workflow?workflow=orders&node=node": true,
	} {
		body := r.get(path, session).body
		for _, part := range []string{
			"<code>ptr:/action</code> is &#34;opened&#34; or &#34;reopened&#34;",
			"<code>ptr:/n</code> is at least 3 and is not 4 or 5",
			"<code>header:X-A</code> is not there",
			"<code>form:b</code> $not {&#34;$prefix&#34;:&#34;x&#34;}",
			"<code>ptr:/x</code> is null", "each value of <code>ptr:/order/id</code>",
			"No request was filtered yet",
		} {
			if !strings.Contains(body, part) {
				t.Errorf("%s does not say %s", path, part)
			}
		}
		if has := strings.Contains(body, "data-handling"); has == fragment {
			t.Errorf("%s: whether it has the forms: %v", path, has)
		}
	}
}

// A node without a sender receives a request that looks like Slack's check of the URL. The pages of
// the workflow and of the execution say so, and advise the operator to choose the sender.
func TestARequestIsRecognised(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	if strings.Contains(r.get("/workflows/orders", session).body, "check of the URL") {
		t.Error("without a request it recognises one")
	}
	id := r.execution("orders", `{"type":"url_verification","challenge":"abc","token":"t"}`)
	for _, path := range []string{"/workflows/orders", "/executions/" + id} {
		if body := r.get(path, session).body; !strings.Contains(body,
			"choose the sender (Slack checks so)") {
			t.Errorf("%s does not say what to do", path)
		}
	}
	r.execution("orders", `{"type":"event_callback"}`)
	if strings.Contains(r.get("/workflows/orders", session).body, "check of the URL") {
		t.Error("an ordinary request is taken for a check")
	}
}

// If GitHub sends a form instead of JSON, the pages of the execution and of the workflow say what
// to change at GitHub.
func TestAFormOfGitHubIsRecognised(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const form, payload = "application/x-www-form-urlencoded", "payload=%7B%7D"
	from := func(preset string) func(*execution.Start) {
		return func(s *execution.Start) { s.Sender = preset }
	}
	withHeader := func(s *execution.Start) {
		s.Headers = execution.Values{"X-Github-Delivery": {"1"}}
	}
	for name, c := range map[string]struct {
		contentType, body string
		change            func(*execution.Start)
		want              bool
	}{
		"with GitHub's headers":              {form + "; charset=utf-8", payload, withHeader, true},
		"verified":                           {form, payload, from("github"), true},
		"JSON":                               {"application/json", `{"payload":1}`, from("github"), false},
		"another form":                       {form, "a=b", from("github"), false},
		"of Slack, which sends nothing else": {form, payload, from("slack"), false},
		"of nobody":                          {form, payload, from(""), false},
	} {
		body, err := execution.NewPayload(c.contentType, []byte(c.body))
		r.check(err)
		id := r.start("orders", body, c.change)
		for _, path := range []string{"/workflows/orders", "/executions/" + id} {
			said := strings.Contains(r.get(path, session).body, "Sent as a form:")
			if said != c.want {
				t.Errorf("%s: whether %s says so: %v", name, path, said)
			}
		}
	}
}
