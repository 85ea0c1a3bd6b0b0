package console_test

import (
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

// A list of one workflow's queued or running executions has a button that cancels all of them,
// unless the list is empty or has a filter that a bulk cancellation does not support. The button's
// form is posted to an address that contains the filters of the list.
func TestCancelAllIsOffered(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	r.execution("orders", "{}")
	session := r.signIn()
	for path, want := range map[string]string{
		"/executions?of=orders&status=queued": "/matching-executions/cancel?of=orders&" +
			"status=queued",
		"/workflows/orders?status=queued&within=1h": "/workflows/orders/matching-executions/" +
			"cancel?status=queued&within=1h",
		"/workflows/orders":                                   "",
		"/workflows/orders?status=running":                    "", // no execution is running
		"/workflows/orders?status=rejected":                   "",
		"/executions?status=queued":                           "",
		"/workflows/orders?status=queued&source=webhook":      "",
		"/workflows/orders?status=queued&delivery=d-1":        "",
		"/executions?of=orders&status=queued&account=on-free": "",
	} {
		body := html.UnescapeString(r.get(path, session).body)
		if offered := strings.Contains(body, "data-cancel-all"); offered != (want != "") ||
			offered && !strings.Contains(body, `action="`+want+`"`) {
			t.Errorf("%s: offered: %v, not at %s", path, offered, want)
		}
	}
}

// If an inactive workflow has queued executions, its page links to the list of them. Otherwise, the
// page has no such link.
func TestAWorkflowThatIsOffLeadsToWhatWaits(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const link = `href="/workflows/orders?status=queued#executions"`
	says := func(want bool, when string) {
		t.Helper()
		for _, path := range []string{"/workflows/orders", "/fragments/workflow?workflow=orders"} {
			if is := strings.Contains(r.get(path, session).body, link); is != want {
				t.Errorf("%s, whether %s leads there: %v", when, path, is)
			}
		}
	}
	id := r.execution("orders", "{}")
	says(false, "active")
	_, err := r.Deactivate(t.Context(), "orders")
	r.check(err)
	says(true, "inactive, and one waits")
	_, err = r.store.Apply(t.Context(), store.Batch{Progress: []execution.Progress{{
		ID: id, WorkflowID: "orders", Queue: "default", Status: execution.Succeeded, At: time.Now(),
	}}})
	r.check(err)
	says(false, "inactive, and none waits")
}

// The page of an execution shows the execution's queue and, if it is known, the number of its last
// attempt.
func TestQueueAndAttemptsOfAnExecution(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	id := r.execution("orders", "{}")
	session := r.signIn()
	body := r.get("/executions/"+id, session).body
	if !strings.Contains(body, "<dt>Queue</dt><dd><code>default</code></dd>") ||
		strings.Contains(body, "<dt>Attempts</dt>") {
		t.Errorf("before an attempt: %s", body)
	}
	_, err := r.store.Apply(t.Context(), store.Batch{Progress: []execution.Progress{{
		ID: id, WorkflowID: "orders", Queue: "default", Status: execution.Running, At: time.Now(),
		Attempt: 3,
	}}})
	r.check(err)
	if body := r.get("/executions/"+id, session).body; !strings.Contains(body,
		"<dt>Attempts</dt><dd>3</dd>") {
		t.Errorf("after three attempts: %s", body)
	}
}

// The overview's chart of requests includes the requests that did not match a node's filter.
func TestFilteredRequestsAreInTheChart(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	r.check(r.store.AddFilteredRequests(t.Context(), "report", time.Now(), []store.FilteredSummary{
		{WorkflowID: "orders", NodeID: "node", Count: 5},
		{WorkflowID: "others", NodeID: "node", Count: 2},
	}))
	a := r.get("/", r.signIn())
	for _, part := range []string{
		`<li class="key filtered">filtered <b>7</b></li>`, `data-value="7 filtered"`, "; 7 filtered",
	} {
		if a.status != http.StatusOK || !strings.Contains(a.body, part) {
			t.Errorf("%d: it does not say %s", a.status, part)
		}
	}
}
