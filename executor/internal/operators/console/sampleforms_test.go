package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/webhook"
)

// An operator can save and test the sample payload without JavaScript. A form that is posted twice
// starts only one execution. A form does not overwrite a payload that somebody else has set since
// the page was loaded.
func TestSampleWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", false)
	session := r.signIn()
	const path, form = "/workflows/orders?node=node", "sample-form"
	sample := func() string {
		t.Helper()
		info, err := r.Trigger(t.Context(), "orders", "node")
		r.check(err)
		return string(info.SamplePayload)
	}
	press := func(page answer, button, text string) answer {
		t.Helper()
		action, values := r.buttonIn(page.body, button)
		if text != "" {
			values.Set("sample", text)
		}
		return r.call(http.MethodPost, action, values, session)
	}
	page := r.get(path, session)
	a := press(page, "data-send-test", "")
	wantSays(t, a, http.StatusConflict, `class="said sample bad" id="sample-said"`)
	a = press(page, "data-save-sample", `{"n": `)
	wantSays(t, a, http.StatusUnprocessableEntity, "The sample payload: must be one JSON text",
		`{"n": </textarea>`)
	a = press(a, "data-save-sample", "{\"n\":\r\n1234567890123456789012}")
	if said := r.done(a, session); said != "Saved." || a.location != path ||
		sample() != "{\"n\":\n1234567890123456789012}" {
		t.Errorf("%s: %s: %s", a.location, said, sample())
	}

	// If the operator edits the payload and presses the button that sends a test, the payload is
	// saved before the test is sent.
	old, messages := page, r.messages()
	page = r.get(path, session)
	first := r.startedBy(press(page, "data-send-test", `{"n":2}`))
	if sample() != `{"n":2}` || r.messages() != messages+1 {
		t.Errorf("after a test, it is %s", sample())
	}
	page = r.get(path, session)
	second := r.startedBy(press(page, "data-send-test", ""))
	if again := r.startedBy(press(page, "data-send-test", "")); again != second ||
		second == first || r.messages() != messages+2 {
		t.Errorf("started %s, %s and %s", first, second, again)
	}

	a = press(old, "data-send-test", `{"n":3}`)
	wantSays(t, a, http.StatusConflict,
		"somebody else has changed the sample payload to another one", `{"n":3}</textarea>`)
	if sample() != `{"n":2}` || r.messages() != messages+2 {
		t.Errorf("a conflict has made it %s", sample())
	}
	if r.done(press(a, "data-save-sample", ""), session); sample() != `{"n":3}` {
		t.Errorf("it was not saved by who was told: %s", sample())
	}
	// If the operator has not edited the payload, but somebody else has changed it since the page
	// was loaded, the form neither saves a payload nor starts an execution.
	for _, button := range []string{"data-save-sample", "data-send-test"} {
		a = press(page, button, "")
		wantSays(t, a, http.StatusConflict,
			"Not done: somebody else has changed the sample payload", "\"n\": 3\n}</textarea>")
		if sample() != `{"n":3}` || r.messages() != messages+2 {
			t.Errorf("a page that was not edited has made it %s", sample())
		}
	}

	// The page that reports the conflict shows the changed payload, but its form still has the
	// idempotency key of the second test. Posting it starts another execution, because the payload
	// differs.
	third := r.startedBy(press(a, "data-send-test", ""))
	if third == second || r.messages() != messages+3 {
		t.Errorf("the changed payload was not run, but %s was returned", third)
	}
}

// If a script saves the sample payload without leaving the page, the response contains the field
// values that the script needs to save the payload again.
func TestSampleSavedByAScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", false)
	session, script := r.signIn(), with("Accept", "application/json")
	action, values := r.formIn(r.get("/workflows/orders", session).body, "sample-form")
	values.Set("sample", `{"n":1}`)
	a := r.call(http.MethodPost, action, values, session, script)
	wantSays(t, a, http.StatusOK, `"done":"Saved.","fields":{"display":"`)
	_, digest, _ := strings.Cut(a.body, `"display":"`)
	digest, _, _ = strings.Cut(digest, `"`)
	for _, sample := range []string{`{"n":1}`, `{"n":2}`} {
		values.Set("display", digest)
		values.Set("shown.digest", digest)
		values.Set("sample", sample)
		a = r.call(http.MethodPost, action, values, session, script)
		wantSays(t, a, http.StatusOK, `"done":"Saved."`)
		if strings.Contains(a.body, `"key":`) {
			t.Errorf("what has started nothing has changed the key: %s", a.body)
		}
	}
	a = r.call(http.MethodPost, "/workflows/orders/rerun?node=node", values, session, script)
	wantSays(t, a, http.StatusOK, `"started":"`, `"key":"`)
}

// If the endpoint refuses a test, or the test cannot be sent, the typed payload is still saved, and
// the page says why nothing was started.
func TestRefusedTestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", false)
	r.setStripe("orders")
	session := r.signIn()
	const path = "/workflows/orders?node=node"
	action, values := r.buttonIn(r.get(path, session).body, "data-send-test")
	values.Set("sample", `{"n":1}`)
	a := r.call(http.MethodPost, action, values, session)
	wantSays(t, a, http.StatusConflict, "The webhook endpoint at ", ` data-stored>{"n":1}</textarea>`,
		`name="key" value="`+values.Get("key")+`"`)
	a = r.press(a, "data-run-past", session)
	r.startedBy(a)
}

// TestAnswersToATestWithoutJavaScript checks the page that follows when an operator sends a test
// request to a workflow. If the outcome is unknown, pressing the button again sends the same
// delivery again. A test with another payload is a new delivery. A test counts as accepted even if
// the execution itself answers with an error.
func TestAnswersToATestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	const id = "0190a6a2-7d3c-7000-8000-000000000001"
	var status int
	var code, executionID string
	var deliveries []string
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		deliveries = append(deliveries, q.Header.Get("X-GitHub-Delivery"))
		w.Header().Set("Content-Type", "application/problem+json")
		if executionID != "" {
			w.Header().Set(webhook.HeaderExecutionID, executionID)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"code":%q,"detail":"Because."}`, code)
	}))
	t.Cleanup(endpoint.Close)
	r := startAt(t, endpoint.URL)
	r.CreateWorkflow(t, "orders", "free", true)
	_, _, err := r.PutSender(t.Context(), "orders", "node", edit.SenderSpec{
		Preset: "github", Secrets: []string{"a-secret-of-github"},
	})
	r.check(err)
	r.check(r.SetSamplePayload(t.Context(), "orders", "node", []byte(`{"n":1}`)))
	session := r.signIn()
	page := r.get("/workflows/orders?node=node", session)
	press := func(page answer) answer { return r.press(page, "data-send-test", session) }
	last := func() string { return deliveries[len(deliveries)-1] }

	status, code = http.StatusServiceUnavailable, string(webhook.CodeUnavailable)
	a := press(page)
	wantSays(t, a, http.StatusConflict, "503 unavailable. It may have started an execution.")
	first := last()
	if press(a); last() != first {
		t.Errorf("after an unknown outcome, %s is repeated as %s", first, last())
	}
	status, code = http.StatusForbidden, string(webhook.CodeWorkflowInactive)
	executionID = id
	a = press(a)
	wantSays(t, a, http.StatusConflict, "the test was recorded as rejected")
	if press(a); last() == first {
		t.Error("another test of an inactive workflow is the same delivery")
	}
	for _, c := range []struct {
		status     int
		code, says string
	}{
		{502, string(webhook.CodeRunFailed), "and accepted. It was answered with 502. Because."},
		{404, "mine", "and accepted. It was answered with 404."},
		{200, "", "and accepted."},
	} {
		status, code = c.status, c.code
		a = r.press(page, "data-send-test", session, with("Accept", "application/json"))
		wantSays(t, a, http.StatusOK, c.says, `"started":"`+id+`"`)
	}
	_, values := r.buttonIn(page.body, "data-send-test")
	values.Set("sample", `{"n":2}`)
	r.startedBy(r.call(http.MethodPost, "/workflows/orders/send-test?node=node", values, session))
	if last() == first {
		t.Error("another payload is the same delivery")
	}
}
