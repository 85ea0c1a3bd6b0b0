package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// ended starts an execution of a workflow, records that it has ended with the given status, and
// returns its ID.
func (r *rig) ended(workflowID string, status execution.Status) string {
	r.t.Helper()
	id := r.execution(workflowID, `{"n":1}`)
	_, err := r.store.Apply(r.t.Context(), store.Batch{Progress: []execution.Progress{{
		ID: id, WorkflowID: workflowID, Queue: "default", Status: status, At: time.Now(),
	}}})
	r.check(err)
	return id
}

// messages returns the number of messages that the stream has ever stored.
func (r *rig) messages() uint64 {
	r.t.Helper()
	s, err := r.JetStream.Stream(r.t.Context(), stream.ExecutionsName)
	r.check(err)
	return s.CachedInfo().State.LastSeq
}

// startedBy returns the ID of the execution that a form has started. a is the response to the form,
// which redirects to the execution's page; the ID comes from that address.
func (r *rig) startedBy(a answer) string {
	r.t.Helper()
	id, ok := strings.CutPrefix(a.location, "/executions/")
	if a.status != http.StatusSeeOther || !ok || len(a.cookies) != 1 {
		r.t.Fatalf("nothing was started: %d, %q\n%.2000s", a.status, a.location, a.body)
	}
	return id
}

// An operator can cancel an execution without JavaScript. If the execution has already ended, the
// page says why it cannot be canceled.
func TestCancelWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	r.check(stream.EnsureCancellationsBucket(t.Context(), r.JetStream, stream.DefaultSettings))
	id := r.execution("orders", "{}")
	page := r.get("/executions/"+id, session)
	a := r.press(page, `id="cancel"`, session)
	if said := r.done(a, session); said != "It is canceled." || a.location != "/executions/"+id {
		t.Errorf("%s: %s", a.location, said)
	}
	a = r.press(page, `id="cancel"`, session)
	wantSays(t, a, http.StatusConflict, `role="status" tabindex="-1" autofocus>The execution is `+
		`canceled: it has ended.`)
	wantSays(t, r.call(http.MethodPost, "/executions/none/cancel", nil, session),
		http.StatusNotFound, "There is no execution")
}

// Without JavaScript, an operator can retry an execution or run it again, both from the execution's
// page and from the lists. A form that is posted twice starts only one execution.
func TestRunAgainWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	failed, succeeded := r.ended("orders", execution.Failed), r.ended("orders", execution.Succeeded)
	messages := r.messages()
	wantStarted := func(n uint64) {
		t.Helper()
		if messages += n; r.messages() != messages {
			t.Errorf("the stream has %d messages, not %d", r.messages(), messages)
		}
	}
	// twice presses a button twice, and returns the execution that was started.
	twice := func(page answer, part string) string {
		t.Helper()
		id := r.startedBy(r.press(page, part, session))
		if again := r.startedBy(r.press(page, part, session)); again != id {
			t.Errorf("pressed twice, %s has started %s and %s", part, id, again)
		}
		wantStarted(1)
		return id
	}
	list := r.get("/executions", session)
	as := twice(list, `id="`+failed+`:retry"`)
	if as != execution.IDForRequeue(failed) {
		t.Errorf("it is retried as %s", as)
	}
	page := r.get("/executions/"+succeeded, session)
	first := twice(page, `id="run-again"`)
	page = r.get("/executions/"+succeeded, session)
	if second := twice(page, `id="run-again"`); second == first {
		t.Error("the page that was loaded again has started nothing")
	}
	_, err := r.store.Apply(t.Context(), store.Batch{NewRecords: []store.Record{{
		ID: as, AccountID: "on-free", WorkflowID: "orders", NodeID: "node", Queue: "default",
		Source: execution.SourceRerun, Status: execution.Queued, AcceptedAt: time.Now(),
		RecordedAt: time.Now(), RerunOf: failed, StreamSequence: 3,
	}}})
	r.check(err)
	if said := r.done(r.press(list, `id="`+failed+`:retry"`, session), session); said == "" {
		t.Error("it does not say what was done")
	}

	// If the node has a sample payload, the page first asks whether to use it or the execution's
	// own request.
	r.check(r.SetSamplePayload(t.Context(), "orders", "node", []byte(`{"sample":true}`)))
	a := r.press(list, `id="`+succeeded+`:run-again"`, session)
	wantSays(t, a, http.StatusConflict, `aria-labelledby="again-title" open>`, "Run again on what?")
	wantStarted(0)
	sample := `formaction="/executions/` + succeeded + `/rerun"`
	onSample, onRequest := twice(a, sample), twice(a, `name="confirmed" value="yes"`)
	if onSample == onRequest || onRequest == first {
		t.Errorf("%s, %s", onSample, onRequest)
	}
	r.check(r.SetSamplePayload(t.Context(), "orders", "node", []byte(`{"sample":false}`)))
	if onOther := twice(a, sample); onOther == onSample {
		t.Errorf("%s has run on the payload from before", onOther)
	}
	a = r.press(list, `id="`+succeeded+`:run-again"`, session)
	again := r.press(a, `name="confirmed" value="yes"`, session)
	if id := r.startedBy(again); id != onRequest {
		t.Errorf("the same list has started %s and %s", onRequest, id)
	}

	// A form without an idempotency key is refused, because it would start another execution each
	// time it is posted.
	for _, path := range []string{"/replay", "/rerun"} {
		a = r.call(http.MethodPost, "/executions/"+succeeded+path, nil, session)
		wantSays(t, a, http.StatusUnprocessableEntity, "The form is not complete.")
	}
	wantStarted(0)
	queued := r.execution("orders", "{}")
	_, values := r.formIn(page.body, "again-form")
	a = r.call(http.MethodPost, "/executions/"+queued+"/requeue", values, session)
	wantSays(t, a, http.StatusConflict, "Only one that has failed", `autofocus>`)
	values.Set("confirmed", "yes")
	a = r.call(http.MethodPost, "/executions/"+queued+"/replay", values, session)
	wantSays(t, a, http.StatusConflict, "It can be replayed when it has ended.",
		`name="key" value="`+values.Get("key")+`"`)
}

// If a script has posted a form, the response names the execution that the form has started.
func TestStartedExecutionForAScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	id := r.ended("orders", execution.Failed)
	a := r.press(r.get("/executions", session), `id="`+id+`:retry"`, session,
		with("Accept", "application/json"))
	as := execution.IDForRequeue(id)
	wantSays(t, a, http.StatusOK, `{"page":"/executions/`+as+
		`","done":"Started on the same request.","started":"`+as+`"}`)
}

// An operator can retry a dead letter without JavaScript. If an execution cannot be retried, the
// page of dead letters says why, and keeps its filters.
func TestRetryADeadLetterWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	id := r.ended("orders", execution.Failed)
	const path = "/dead-letters?within=1h&workflow=orders"
	page := r.get(path, session)
	button := `id="` + id + `:retry"`
	if as := r.startedBy(r.press(page, button, session)); as != execution.IDForRequeue(id) {
		t.Errorf("it is retried as %s", as)
	}
	queued := r.execution("orders", "{}")
	action, values := r.buttonIn(page.body, button)
	action = strings.Replace(action, id, queued, 1)
	a := r.call(http.MethodPost, action, values, session)
	wantSays(t, a, http.StatusConflict, "autofocus><code>"+queued+"</code>: <span data-text>The "+
		"execution is queued.", `name="workflow" value="orders"`)
	if a = r.get(action, session); a.location != path {
		t.Errorf("the form's address leads to %q", a.location)
	}
}
