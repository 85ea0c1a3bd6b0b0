package console_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// rejected publishes the rejection of a request to the stream, records it, and returns its ID. An
// empty body means that the request's body was not kept.
func (r *rig) rejected(workflowID, body string) string {
	r.t.Helper()
	now := time.Now().UTC().Truncate(time.Microsecond)
	rejection := execution.Rejection{
		ID:         uuid.NewString(),
		WorkflowID: workflowID, NodeID: "node", AccountID: "on-free", Queue: "default", At: now,
		Code: "workflow_inactive",
	}
	if body != "" {
		rejection.Payload = execution.Payload{Kind: execution.BodyText, Body: []byte(body)}
	}
	msg, err := stream.RejectedMessage(rejection)
	r.check(err)
	ack, err := r.JetStream.PublishMsg(r.t.Context(), msg)
	r.check(err)
	_, err = r.store.Apply(r.t.Context(), store.Batch{NewRecords: []store.Record{{
		ID: rejection.ID, AccountID: "on-free", WorkflowID: workflowID, NodeID: "node",
		Queue: "default", Source: execution.SourceWebhook, Status: execution.Rejected,
		Error: rejection.Code, AcceptedAt: now, RecordedAt: now, StreamSequence: ack.Sequence,
	}}})
	r.check(err)
	return rejection.ID
}

// others creates a workflow of another account. It returns an option that adds a session to a
// request: the session of an editor who has access only to that account.
func (r *rig) others() func(*http.Request) {
	r.t.Helper()
	r.CreateWorkflow(r.t, "others", "pro", true)
	return r.signInWith(api.PutKey{
		Name: "an editor of pro", Role: api.RoleEditor, AccountID: "on-pro",
	})
}

// ask presses the button whose HTML tag contains part, after setting the given values in the
// button's form. It returns the resulting page, and reports an error unless this page asks the
// given question.
func (r *rig) ask(
	page answer, part, question string, values url.Values, session func(*http.Request),
) answer {
	r.t.Helper()
	action, posted := r.buttonIn(page.body, part)
	maps.Copy(posted, values)
	a := r.call(http.MethodPost, action, posted, session)
	wantSays(r.t, a, http.StatusConflict, `aria-labelledby="bulk-title" open>`, question)
	return a
}

const yes = `name="confirmed" value="yes"`

// Without JavaScript, an operator can retry or dismiss many dead letters: either the selected ones,
// or all that match the filters. The page asks for confirmation first. After that, it says how many
// dead letters were retried or dismissed.
func TestManyDeadLettersWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	r.CreateWorkflow(t, "invoices", "free", false)
	session, viewer, others := r.signIn(), r.signInAs(api.RoleViewer), r.others()
	failed := func(workflow string) string { return r.ended(workflow, execution.Failed) }
	first, second, third := failed("orders"), failed("orders"), failed("orders")
	invoice := failed("invoices")
	const path = "/dead-letters?workflow=orders"
	retry, dismiss := `data-bulk-do="requeue"`, `data-bulk-do="dismiss"`
	page := r.get(path, session)
	latest := failed("orders") // the page does not show it
	want := func(when string, messages uint64, left ...string) {
		t.Helper()
		body := r.get("/dead-letters", session).body
		for _, id := range []string{first, second, third, invoice, latest} {
			listed := strings.Contains(body, `value="`+id+`" form="bulk-form"`)
			if wanted := strings.Contains(strings.Join(left, " "), id); listed != wanted {
				t.Errorf("%s, whether %s is listed: %v", when, id, listed)
			}
		}
		if r.messages() != messages {
			t.Errorf("%s, the stream has %d messages, not %d", when, r.messages(), messages)
		}
	}
	messages := r.messages()

	// A viewer and an editor of another account can neither retry nor dismiss these dead letters.
	// This is also true if they post the confirmation form from a page that was rendered for an
	// operator with the permission.
	asked := r.ask(page, dismiss, "Dismiss all that match?", nil, session)
	if a := r.press(asked, yes, viewer); a.status != http.StatusForbidden {
		t.Errorf("a viewer: %d", a.status)
	}
	if said := r.done(r.press(asked, yes, others), others); said != "0 dismissed." {
		t.Errorf("another account's editor: %s", said)
	}
	selected := url.Values{"id": {first, second}}
	r.ask(page, retry, "Retry the 2 selected?", selected, others)
	values := url.Values{"id": {first}, "asked": {"1"}, "confirmed": {"yes"}}
	action, posted := r.buttonIn(page.body, retry)
	values.Set("listed-at", posted.Get("listed-at"))
	a := r.call(http.MethodPost, action, values, others)
	if said := r.done(a, others); said != "0 retried." {
		t.Errorf("another account's editor: %s", said)
	}
	want("after the others", messages, first, second, third, invoice, latest)

	// The page with the question keeps the selection. If the number of selected dead letters
	// changes, the page asks again, because an empty selection stands for all that match.
	asked = r.ask(page, retry, "Retry the 2 selected?", selected, session)
	wantSays(t, asked, http.StatusConflict, `value="`+first+`" form="bulk-form" checked`,
		`value="`+third+`" form="bulk-form" data-`, "Not done yet: confirm it.")
	asked = r.ask(asked, yes, "Retry the selected one?", url.Values{"id": {first}}, session)
	unselected := r.ask(asked, yes, "Retry all that match?", url.Values{"id": nil}, session)
	wantSays(t, unselected, http.StatusConflict, `value="`+first+`" form="bulk-form" data-`)
	want("after questions", messages, first, second, third, invoice, latest)
	a = r.press(asked, yes, session)
	if said := r.done(a, session); said != "1 retried." || a.location != path {
		t.Errorf("%s: %s", a.location, said)
	}
	want("after one was retried", messages+1, second, third, invoice, latest)

	// The message also counts the dead letters that could not be retried, by cause. Here, the input
	// of one dead letter has expired.
	record, err := r.store.Get(t.Context(), second)
	r.check(err)
	s, err := r.JetStream.Stream(t.Context(), stream.ExecutionsName)
	r.check(err)
	r.check(s.DeleteMsg(t.Context(), record.StreamSequence))
	asked = r.ask(page, retry, "Retry all that match?", nil, session)
	if said := r.done(r.press(asked, yes, session), session); said !=
		"1 retried. 1 skipped: input expired." {
		t.Error(said)
	}
	want("after the rest was retried", messages+2, second, invoice, latest)

	asked = r.ask(page, dismiss, "Dismiss all that match?", nil, session)
	wantSays(t, asked, http.StatusConflict, "An execution stays failed")
	if said := r.done(r.press(asked, yes, session), session); said != "1 dismissed." {
		t.Error(said)
	}
	want("in the end", messages+2, invoice, latest)

	// A form without the time at which its page was rendered is refused, because it might change
	// dead letters that the operator has never seen.
	values = url.Values{"asked": {"0"}, "confirmed": {"yes"}}
	a = r.call(http.MethodPost, "/dead-letters/dismiss", values, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "autofocus>The form is not complete.")
	if a = r.get("/dead-letters/dismiss?workflow=orders", session); a.location != path {
		t.Errorf("the form's address leads to %q", a.location)
	}
}

// One post dismisses a limited number of dead letters, which is 600 in this test. Its message says
// that there may be more. A script posts the form again until no dead letter is left. The message
// of its last post counts the dead letters of all its posts.
func TestMoreDeadLettersThanOneCallDismisses(t *testing.T) {
	t.Parallel()
	const number = 1_201
	r := start(t, func(c *operate.Config) { c.MaxBulkItems = 600 })
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	began := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Hour)
	var batch store.Batch
	for i := range number {
		id, at := fmt.Sprintf("id-%05d", i), began.Add(time.Duration(i)*time.Millisecond)
		batch.NewRecords = append(batch.NewRecords, store.Record{
			ID: id, AccountID: "on-free", WorkflowID: "orders", NodeID: "node", Queue: "default",
			Source: execution.SourceWebhook, Status: execution.Queued, AcceptedAt: at,
			RecordedAt: at, StreamSequence: uint64(i) + 1,
		})
		batch.Progress = append(batch.Progress, execution.Progress{
			ID: id, WorkflowID: "orders", Queue: "default", Status: execution.Failed, At: at,
		})
	}
	_, err := r.store.Apply(t.Context(), batch)
	r.check(err)

	asked := r.ask(r.get("/dead-letters", session), `data-bulk-do="dismiss"`,
		"Dismiss all that match?", nil, session)
	if said := r.done(r.press(asked, yes, session), session); said !=
		"600 dismissed. There may be more: press the button again." {
		t.Error(said)
	}
	action, values := r.buttonIn(asked.body, yes)
	post := func() (saved struct {
		Page, Done string
		Again      map[string]string
	},
	) {
		t.Helper()
		a := r.call(http.MethodPost, action, values, session, with("Accept", "application/json"))
		if err := json.Unmarshal([]byte(a.body), &saved); err != nil ||
			saved.Page != "/dead-letters" {
			t.Fatalf("%d, %v: %.500s", a.status, err, a.body)
		}
		return saved
	}
	first := post()
	if first.Done != "600 so far …" || len(first.Again) == 0 {
		t.Errorf("%+v", first)
	}
	for name, value := range first.Again {
		values.Set(name, value)
	}
	if last := post(); last.Done != "601 dismissed." || last.Again != nil {
		t.Errorf("%+v", last)
	}
}

// Without JavaScript, an operator can replay all rejected executions that match the filters of a
// list. Each of them is replayed only once.
func TestRunManyAgainWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", false)
	r.CreateWorkflow(t, "invoices", "free", false)
	session, viewer, others := r.signIn(), r.signInAs(api.RoleViewer), r.others()
	r.rejected("orders", "one")
	r.rejected("orders", "two")
	r.rejected("orders", "")
	r.rejected("invoices", "three")
	messages := r.messages()
	const question = "Run all rejected executions that match again?"
	for _, list := range []struct {
		path, done string
		started    uint64
	}{
		{
			"/workflows/orders?status=rejected&within=1h",
			"2 run again. 1 skipped: body not kept.", 2,
		},
		{"/executions?of=orders&status=rejected", "0 run again. 1 skipped: body not kept.", 0},
		{
			"/executions?account=on-free&status=rejected",
			"1 run again. 1 skipped: body not kept.", 1,
		},
	} {
		asked := r.ask(r.get(list.path, session), "data-replay-all-do", question, nil, session)
		if a := r.press(asked, yes, viewer); a.status != http.StatusForbidden {
			t.Errorf("%s, a viewer: %d", list.path, a.status)
		}
		if a := r.press(asked, yes, others); a.status != http.StatusSeeOther {
			t.Errorf("%s, another account's editor: %d", list.path, a.status)
		} else if r.messages() != messages {
			t.Errorf("%s: another account's editor has started executions", list.path)
		}
		a := r.press(asked, yes, session)
		if said := r.done(a, session); said != list.done || a.location != list.path {
			t.Errorf("%s: %s", a.location, said)
		}
		if messages += list.started; r.messages() != messages {
			t.Errorf("%s: the stream has %d messages, not %d", list.path, r.messages(), messages)
		}
	}
	// The filters are in the address to which the form is posted. If a list with these filters does
	// not offer the form, the post is refused, because it could change more executions than the
	// filters select.
	values := url.Values{
		"listed-at": {time.Now().Format(time.RFC3339)}, "asked": {"0"}, "confirmed": {"yes"},
	}
	for _, path := range []string{
		"/matching-executions/replay", "/matching-executions/replay?status=queued",
		"/matching-executions/replay?status=rejected&delivery=d",
		"/matching-executions/cancel?status=queued", "/workflows/orders/matching-executions/cancel",
	} {
		wantSays(t, r.call(http.MethodPost, path, values, session), http.StatusNotFound,
			"A list with these filters has no such form.")
	}
}

// Without JavaScript, an operator can cancel all executions that match the filters of a list.
// Executions that were accepted after the list was shown are not canceled.
func TestCancelManyWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	r.CreateWorkflow(t, "invoices", "free", false)
	session, viewer, others := r.signIn(), r.signInAs(api.RoleViewer), r.others()
	r.check(stream.EnsureCancellationsBucket(t.Context(), r.JetStream, stream.DefaultSettings))
	status := func(id string) execution.Status {
		t.Helper()
		e, err := r.store.Get(t.Context(), id)
		r.check(err)
		return e.Status
	}
	other := r.execution("invoices", "{}")
	for _, path := range []string{
		"/workflows/orders?node=node&status=queued", "/executions?of=orders&status=queued",
	} {
		first, second := r.execution("orders", "{}"), r.execution("orders", "{}")
		page := r.get(path, session)
		later := r.execution("orders", "{}")
		asked := r.ask(page, "data-cancel-all-do", "Cancel all queued executions of "+
			"<code>orders</code> that match?", nil, session)
		if a := r.press(asked, yes, viewer); a.status != http.StatusForbidden {
			t.Errorf("%s, a viewer: %d", path, a.status)
		}
		if a := r.press(asked, yes, others); a.status != http.StatusSeeOther {
			t.Errorf("%s, another account's editor: %d", path, a.status)
		}
		if is := status(first); is != execution.Queued {
			t.Errorf("%s: after those who may not, it is %s", path, is)
		}
		a := r.press(asked, yes, session)
		if said := r.done(a, session); said != "2 canceled." || a.location != path {
			t.Errorf("%s: %s", a.location, said)
		}
		if a, b, c, d := status(first), status(second), status(later), status(other); a !=
			execution.Canceled || b != execution.Canceled || c != execution.Queued ||
			d != execution.Queued {
			t.Errorf("%s: they are %s, %s, %s and %s", path, a, b, c, d)
		}
		r.press(r.get("/executions/"+later, session), `id="cancel"`, session)
	}
}
