package console_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/console"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

var (
	attribute = regexp.MustCompile(`([a-z-]+)="([^"]*)"`)
	control   = regexp.MustCompile(`(?s)<(input)\b[^>]*>|<(textarea)\b[^>]*>([^<]*)<|` +
		`<(select)\b[^>]*>(.*?)</select>`)
	selected = regexp.MustCompile(`<option value="([^"]*)" selected>`)
)

func attributesOf(tag string) map[string]string {
	all := map[string]string{}
	for _, found := range attribute.FindAllStringSubmatch(tag, -1) {
		all[found[1]] = html.UnescapeString(found[2])
	}
	return all
}

// formIn finds the form element with the given ID in a page. It returns the address to which the
// form is posted, and the values that a browser without JavaScript posts.
func (r *rig) formIn(page, id string) (action string, values url.Values) {
	r.t.Helper()
	form := regexp.MustCompile(`(?s)(<form [^>]*id="` + id + `"[^>]*>)(.*?)</form>`).
		FindStringSubmatch(page)
	if form == nil {
		r.t.Fatalf("the page has no form %q:\n%.2000s", id, page)
	}
	of := attributesOf(form[1])
	if of["method"] != "post" {
		r.t.Fatalf("the form %q is not posted: %s", id, form[1])
	}
	values = url.Values{}
	within := form[2]
	for _, outside := range regexp.MustCompile(`<input [^>]*form="`+id+`"[^>]*>`).
		FindAllString(page, -1) {
		within += outside
	}
	for _, found := range control.FindAllStringSubmatch(within, -1) {
		of := attributesOf(strings.SplitAfter(found[0], ">")[0])
		value := of["value"]
		if of["type"] == "checkbox" {
			if !strings.Contains(found[0], " checked") {
				continue
			}
			value = cmp.Or(value, "on")
		}
		switch {
		case found[2] != "":
			value = html.UnescapeString(found[3])
		case found[4] != "":
			value = ""
			if option := selected.FindStringSubmatch(found[5]); option != nil {
				value = html.UnescapeString(option[1])
			}
		}
		values.Add(of["name"], value)
	}
	return of["action"], values
}

// post loads a page and posts one of its forms like a browser without JavaScript, after changing
// some values.
func (r *rig) post(
	path, id string, changes map[string]string, session func(*http.Request),
) answer {
	r.t.Helper()
	return r.postAgain(r.get(path, session), id, changes, session)
}

// postAgain is like post, but it uses a page that was loaded before instead of loading one.
func (r *rig) postAgain(
	page answer, id string, changes map[string]string, session func(*http.Request),
) answer {
	r.t.Helper()
	action, values := r.formIn(page.body, id)
	for name, value := range changes {
		values.Set(name, value)
	}
	return r.call(http.MethodPost, action, values, session)
}

// press presses a button of a page, as a browser without JavaScript does. part is text that the
// button's tag contains, such as an attribute.
func (r *rig) press(page answer, part string, session ...func(*http.Request)) answer {
	r.t.Helper()
	action, values := r.buttonIn(page.body, part)
	return r.call(http.MethodPost, action, values, session...)
}

// buttonIn returns the address to which a button posts its form, and the values that a browser
// without JavaScript posts.
func (r *rig) buttonIn(page, part string) (action string, values url.Values) {
	r.t.Helper()
	tag := regexp.MustCompile(`<button [^>]*` + part + `[^>]*>`).FindString(page)
	if tag == "" {
		r.t.Fatalf("the page has no button with %s:\n%.2000s", part, page)
	}
	of := attributesOf(tag)
	form := of["form"]
	if form == "" { // the button is inside its form
		before := page[:strings.Index(page, tag)]
		form = attributesOf(before[strings.LastIndex(before, "<form "):])["id"]
	}
	action, values = r.formIn(page, form)
	if of["name"] != "" {
		values.Set(of["name"], of["value"])
	}
	return cmp.Or(of["formaction"], action), values
}

// done follows the redirect after a form was saved, and returns the message on the page. It fails
// the test if the form was not saved, or if the page shows a message whose signature is invalid.
func (r *rig) done(a answer, session func(*http.Request)) string {
	r.t.Helper()
	if a.status != http.StatusSeeOther || len(a.cookies) != 1 {
		r.t.Fatalf("not saved: %d, %v\n%s", a.status, a.cookies, a.body)
	}
	notice := a.cookies[0]
	if !notice.HttpOnly || notice.SameSite != http.SameSiteStrictMode {
		r.t.Errorf("the cookie of the notice is %v", notice)
	}
	said := func(cookie string) string {
		page := r.get(a.location, func(request *http.Request) {
			session(request)
			request.Header.Set("Cookie", request.Header.Get("Cookie")+"; "+cookie)
		})
		found := regexp.MustCompile(`data-done( hidden)?>([^<]*)<`).FindStringSubmatch(page.body)
		if page.status != http.StatusOK || found == nil || (found[1] == "") != (found[2] != "") {
			r.t.Fatalf("%s: %d, %q", a.location, page.status, found)
		}
		if found[2] != "" && (len(page.cookies) != 1 || page.cookies[0].MaxAge >= 0) {
			r.t.Errorf("the notice is not removed: %v", page.cookies)
		}
		return html.UnescapeString(found[2])
	}
	if text := said(notice.Name + "=" + notice.Value[1:]); text != "" {
		r.t.Errorf("a notice that nobody has signed says %q", text)
	}
	return said(notice.Name + "=" + notice.Value)
}

// workflow returns a workflow from the registry.
func (r *rig) workflow(id string) *registry.Workflow {
	r.t.Helper()
	have, ok := r.RegistryIndex.Workflow(id)
	if !ok {
		r.t.Fatalf("there is no workflow %q", id)
	}
	return have.Record
}

// account returns an account from the registry.
func (r *rig) account(id string) *registry.Account {
	r.t.Helper()
	have, ok := r.RegistryIndex.Account(id)
	if !ok {
		r.t.Fatalf("there is no account %q", id)
	}
	return have.Record
}

// change changes a workflow in the registry, as if another operator had changed it.
func (r *rig) change(id string, change func(*edit.WorkflowSpec)) {
	r.t.Helper()
	_, err := r.ChangeWorkflow(r.t.Context(), id, func(spec *edit.WorkflowSpec) error {
		change(spec)
		return nil
	})
	r.check(err)
}

// signInAs signs in with a new key that has the given role. It returns an option that adds the
// session to a request.
func (r *rig) signInAs(role string) func(*http.Request) {
	r.t.Helper()
	return r.signInWith(api.PutKey{Name: "a " + role, Role: role})
}

// signInWith creates a key and signs in with it. It returns an option that adds the session to a
// request.
func (r *rig) signInWith(create api.PutKey) func(*http.Request) {
	r.t.Helper()
	body, err := json.Marshal(create)
	r.check(err)
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost,
		r.server.URL+"/api/v1/keys", bytes.NewReader(body))
	r.check(err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := http.DefaultTransport.RoundTrip(request)
	r.check(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	r.check(err)
	var key api.NewKey
	r.check(json.Unmarshal(text, &key))
	a := r.call(http.MethodPost, "/sign-in", url.Values{"token": {key.Secret}})
	if len(a.cookies) != 1 {
		r.t.Fatalf("sign in as %s: %d", create.Role, a.status)
	}
	return with("Cookie", a.cookies[0].Name+"="+a.cookies[0].Value)
}

// wantSays reports an error if the answer does not have the given status, or if its page lacks one
// of the given parts.
func wantSays(t *testing.T, a answer, status int, parts ...string) {
	t.Helper()
	if a.status != status {
		t.Errorf("the status is %d, not %d", a.status, status)
	}
	for _, part := range parts {
		if !strings.Contains(html.UnescapeString(a.body), part) {
			t.Errorf("the page does not say %q", part)
		}
	}
}

// The settings of a workflow can be changed without JavaScript. A refused form says what is wrong
// beside the field, and keeps what was typed.
func TestSettingsWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const page, form = "/workflows/orders?node=node", "settings-form"
	a := r.post(page, form, map[string]string{
		"name": "Orders & more", "queue": "quick", "requests": "7", "seconds": "10",
	}, session)
	if said := r.done(a, session); said != "The settings are saved." || a.location != page {
		t.Errorf("%s says %q", a.location, said)
	}
	w := r.workflow("orders")
	if w.Name != "Orders & more" || w.Queue != "quick" || w.RateLimit.Requests != 7 ||
		w.RateLimit.Window.Seconds() != 10 || !w.Active {
		t.Errorf("it is %+v", w)
	}

	a = r.post(page, form, map[string]string{"name": "Kept", "seconds": ""}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "A rate limit needs both numbers.",
		`name="name" value="Kept"`, `aria-invalid="true" autofocus`,
		"Not saved: see what is marked.")
	a = r.postAgain(a, form, map[string]string{"seconds": "0"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `the seconds must be 1 to 86400, not 0`)
	a = r.postAgain(a, form, map[string]string{"seconds": "1e3"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "must be a whole number", `value="1e3"`)
	a = r.postAgain(a, form, map[string]string{"seconds": "10", "queue": "a b"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "must be 1 to 64 of the characters",
		`name="queue" value="a b"`, `name="name" value="Kept"`)
	a = r.postAgain(a, form, map[string]string{"queue": "quick", "name": " "}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "is required")
	if now := r.workflow("orders"); !now.UpdatedAt.Equal(w.UpdatedAt) || now.Name != w.Name {
		t.Errorf("a refused form has made it %+v", now)
	}
	a = r.postAgain(a, form, map[string]string{"name": "Kept", "requests": "", "seconds": ""},
		session)
	r.done(a, session)
	if w = r.workflow("orders"); w.Name != "Kept" || w.RateLimit != (registry.RateLimit{}) {
		t.Errorf("it is %+v", w)
	}

	// A form without the values that the page showed is refused, because it might overwrite a
	// change that the operator has not seen.
	a = r.call(http.MethodPost, "/workflows/orders/settings", url.Values{"name": {"x"}}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "The form is not complete.")
	a = r.call(http.MethodPost, "/workflows/orders/settings",
		url.Values{"name": {strings.Repeat("x", 20<<10)}}, session)
	wantSays(t, a, http.StatusRequestEntityTooLarge, "It may have ")
	_, values := r.formIn(r.get(page, session).body, form)
	a = r.call(http.MethodPost, "/workflows/none/settings", values, session)
	wantSays(t, a, http.StatusNotFound, "There is no workflow")
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		a = r.call(method, "/workflows/orders/settings", nil, session)
		if wantSays(t, a, http.StatusMethodNotAllowed); a.header.Get("Allow") !=
			"GET, HEAD, POST" {
			t.Errorf("%s: allowed is %q", method, a.header.Get("Allow"))
		}
	}
	if a = r.get("/workflows/orders/settings?node=node", session); a.location != page {
		t.Errorf("the form's address leads to %q", a.location)
	}
}

// A form does not overwrite a change that somebody else has made since the page was loaded, unless
// the page has already reported that change.
func TestSettingsThatSomebodyElseHasChanged(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const path, form = "/workflows/orders", "settings-form"
	page := r.get(path, session)
	r.change("orders", func(spec *edit.WorkflowSpec) { spec.Queue = "theirs" })
	// Saving changes only the fields that the operator edited. The queue was not edited, so it
	// keeps the value that somebody else has set since the page was loaded.
	a := r.postAgain(page, form, map[string]string{"name": "Mine"}, session)
	r.done(a, session)
	if w := r.workflow("orders"); w.Name != "Mine" || w.Queue != "theirs" {
		t.Errorf("it is %+v", w)
	}

	page = r.get(path, session)
	r.change("orders", func(spec *edit.WorkflowSpec) { spec.Queue, spec.Name = "again", "Theirs" })
	a = r.postAgain(page, form, map[string]string{
		"queue": "mine", "requests": "5", "seconds": "60",
	}, session)
	wantSays(t, a, http.StatusConflict, "somebody else has changed the queue to “again”",
		`name="queue" value="mine"`, `name="shown.queue" value="again"`,
		`name="requests" min="1" max="1000000" value="5"`, `name="name" value="Theirs"`)
	if w := r.workflow("orders"); w.Queue != "again" || w.RateLimit != (registry.RateLimit{}) {
		t.Errorf("after a conflict, it is %+v", w)
	}
	// This attempt fails because the rate limit is incomplete, and not because of the conflict over
	// the queue. The form in the response therefore keeps the hidden queue of the page that was
	// loaded first, so that the next attempt still detects the conflict.
	bad := r.postAgain(page, form, map[string]string{"queue": "mine", "requests": "5"}, session)
	wantSays(t, bad, http.StatusUnprocessableEntity, `name="shown.queue" value="theirs"`)
	// After the page has reported a conflict, the form may overwrite the reported change, but not a
	// later one.
	r.change("orders", func(spec *edit.WorkflowSpec) { spec.Queue = "third" })
	a = r.postAgain(a, form, nil, session)
	wantSays(t, a, http.StatusConflict, "changed the queue to “third”")
	r.done(r.postAgain(a, form, nil, session), session)
	if w := r.workflow("orders"); w.Queue != "mine" || w.Name != "Theirs" ||
		w.RateLimit.Requests != 5 {
		t.Errorf("in the end, it is %+v", w)
	}
}

// The switch that activates a workflow works without JavaScript. If the plan does not allow the
// activation, the page says what to do.
func TestSwitchWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	r.CreateWorkflow(t, "invoices", "free", false)
	session := r.signIn()
	a := r.post("/workflows/invoices", "switch-form", map[string]string{"active": "true"}, session)
	wantSays(t, a, http.StatusConflict, "The account's plan allows no further active workflow.",
		`id="switch-form-said" role="alert">`, "<p data-plan>", `aria-checked="false"`)
	a = r.post("/workflows/orders", "switch-form", map[string]string{"active": "false"}, session)
	if said := r.done(a, session); said != "“orders” is inactive." || r.workflow("orders").Active {
		t.Errorf("it says %q", said)
	}
	a = r.post("/workflows/invoices", "switch-form", map[string]string{"active": "true"}, session)
	if said := r.done(a, session); said != "“invoices” is active." ||
		!r.workflow("invoices").Active {
		t.Errorf("it says %q", said)
	}
	a = r.post("/workflows/invoices", "switch-form", nil, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "The form is not complete.")
}

// Forms are protected like pages and the API: a request that posts a form needs a session with a
// sufficient role, and must come from a page of this site.
func TestFormsAreProtected(t *testing.T) {
	t.Parallel()
	r := start(t)
	token := r.CreateWorkflow(t, "orders", "free", true)
	session, viewer := r.signIn(), r.signInAs(api.RoleViewer)
	const workflow, accounts = "/workflows/orders", "/accounts"
	group := stream.RunnerGroup{Queue: "default", Group: "main"}
	_, err := stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.ConsumerConfig(time.Minute))
	r.check(err)
	editor := r.signInAs(api.RoleEditor)
	forAdmins := regexp.MustCompile(`^/accounts/.*/(plan|delete|events)$|^/new-(account|key)$|` +
		`^/keys/|^/queues/.*stream$`)
	keys := r.RegistryIndex.APIKeys("", 10)
	if len(keys) != 2 {
		t.Fatalf("there are %d keys", len(keys))
	}
	const stripe = "/workflows/stripe"
	r.CreateWorkflow(t, "stripe", "free", false)
	secret := r.setStripe("stripe")
	sender := r.workflow("stripe").Trigger("node").Sender
	queued, failed := r.execution("orders", "{}"), r.ended("orders", execution.Failed)
	r.rejected("orders", "kept")
	messages := r.messages()
	protected := map[string]bool{}
	for _, form := range [][4]string{
		{workflow, "settings-form", "name", "Changed"},
		{workflow, "switch-form", "active", "false"},
		{workflow, "delete-form", "confirmed", "yes"},
		{workflow, "filter-form", "filter", `{"ptr:/a": 1}`},
		{workflow, "order-form", "place", "ptr:/a"},
		{workflow, "answer-form", "wait", "5"},
		{workflow, "rotate-form", "grace", "0"},
		{stripe, `data-send-test`},
		{stripe, `data-run-past`},
		{stripe, `data-save-sample`},
		{stripe, "sender-form", "settings.toleranceSeconds", "600"},
		{stripe, "new-secret-form", "secret", "whsec_a-third-secret"},
		{stripe, `id="remove-sender"`},
		{stripe, `id="` + secret + `:end"`},
		{"/new-workflow", "new-workflow", "id", "made"},
		{accounts, "on-free:plan", "plan", "pro"},
		{accounts, "on-free:delete", "confirmed", "yes"},
		{accounts, "on-free:events", "workflow", "orders"},
		{accounts, "new-account", "id", "made"},
		{"/keys", "new-key", "name", "made"},
		{"/keys", keys[0].ID + ":revoke", "confirmed", "yes"},
		{"/queues", "default:pause-form", "do", "pause"},
		{"/queues", "default:own-form", "do", "default"},
		{"/queues", "default:stream-form", "bytes", "1000"},
		{"/queues", "default:drop-form", "do", "drop"},
		{"/queues", "default:main:limit-form", "limit", "5"},
		{"/executions/" + queued, `id="cancel"`},
		{"/executions/" + failed, `id="retry"`},
		{"/executions/" + failed, `id="run-again"`},
		{"/executions/" + failed, `id="run-again"`, "", "rerun"},
		{"/executions", `id="` + failed + `:retry"`},
		{"/dead-letters", `id="` + failed + `:retry"`},
		{"/dead-letters", `data-bulk-do="requeue"`, "", "confirmed"},
		{"/dead-letters", `data-bulk-do="dismiss"`, "", "confirmed"},
		{"/executions?status=rejected", "bulk-form", "asked", "0"},
		{"/executions?of=orders&status=queued", "bulk-form", "asked", "0"},
		{workflow + "?status=rejected", "bulk-form", "asked", "0"},
		{workflow + "?status=queued", "bulk-form", "asked", "0"},
	} {
		page := r.get(form[0], session).body
		var action string
		var values url.Values
		if form[2] != "" {
			action, values = r.formIn(page, form[1])
			values.Set(form[2], form[3])
		} else if action, values = r.buttonIn(page, form[1]); form[3] == "rerun" {
			action = strings.Replace(action, "replay", "rerun", 1)
		}
		if form[2] == "asked" || form[3] == "confirmed" {
			values.Set("asked", "0")
			values.Set("confirmed", "yes")
		}
		path, _, _ := strings.Cut(action, "?")
		protected[path] = true
		if forAdmins.MatchString(path) {
			a := r.call(http.MethodPost, action, values, editor)
			if a.status != http.StatusForbidden {
				t.Errorf("%s from an editor: %d", action, a.status)
			}
		}
		for what, c := range map[string]struct {
			status int
			change []func(*http.Request)
		}{
			"no session": {http.StatusUnauthorized, nil},
			"a viewer":   {http.StatusForbidden, []func(*http.Request){viewer}},
			"another site": {http.StatusForbidden, []func(*http.Request){
				session, with("Sec-Fetch-Site", "cross-site"),
			}},
			"another host of this site": {http.StatusForbidden, []func(*http.Request){
				session, with("Sec-Fetch-Site", "same-site"),
			}},
			"another site, in an old browser": {http.StatusForbidden, []func(*http.Request){
				session, with("Origin", "https://evil.example"),
			}},
		} {
			a := r.call(http.MethodPost, action, values, c.change...)
			if a.status != c.status || len(a.cookies) > 0 {
				t.Errorf("%s from %s: %d, want %d", action, what, a.status, c.status)
			}
			wantSecured(t, what, a)
		}
	}
	ids := strings.NewReplacer("/workflows/{id}/sender", stripe+"/sender",
		"/workflows/{id}/sample", stripe+"/sample", "/workflows/{id}/rerun", stripe+"/rerun",
		"/workflows/{id}/send-test", stripe+"/send-test",
		"/workflows/{id}/new-secret", stripe+"/new-secret",
		"/workflows/{id}/remove-sender", stripe+"/remove-sender",
		"/workflows/{id}/secrets/{secret}", stripe+"/secrets/"+secret,
		"/executions/{id}/cancel", "/executions/"+queued+"/cancel",
		"/executions/{id}", "/executions/"+failed, "/dead-letters/{id}", "/dead-letters/"+failed,
		"/workflows/{id}", workflow, "/accounts/{id}", "/accounts/on-free",
		"/keys/{id}", "/keys/"+keys[0].ID, "{queue}", "default", "{group}", "main")
	for path := range console.FormOperations() {
		if !protected[ids.Replace(path)] {
			t.Errorf("this test does not post to %s", path)
		}
	}
	if w := r.workflow("orders"); w.Name == "Changed" || !w.Active ||
		w.Triggers[0].OrderKey != "" || r.Token(t, "orders", "node") != token {
		t.Errorf("it is %+v", w)
	}
	if now := r.workflow("stripe").Trigger("node").Sender; !now.Equal(sender) {
		t.Errorf("the sender is %+v", now)
	}
	if e, err := r.store.Get(t.Context(), queued); err != nil || !e.CancelRequestedAt.IsZero() ||
		r.messages() != messages {
		t.Errorf("an execution was started or canceled: %+v, %v", e, err)
	}
	if e, err := r.store.Get(t.Context(), failed); err != nil || !e.DismissedAt.IsZero() {
		t.Errorf("a dead letter was dismissed: %+v, %v", e, err)
	}
	if _, changed := r.RegistryIndex.Queue("default"); changed {
		t.Error("the queue was changed")
	}
	if a := r.account("on-free"); a.Plan != "free" || a.Events != nil {
		t.Errorf("the account is %+v", a)
	}
	_, account := r.RegistryIndex.Account("made")
	if _, workflow := r.RegistryIndex.Workflow("made"); account || workflow ||
		len(r.RegistryIndex.APIKeys("", 10)) != 2 {
		t.Error("something was made")
	}
}

// Every form names an operation, which determines the role that its callers need.
func TestFormsNameTheirOperations(t *testing.T) {
	t.Parallel()
	for path, operation := range console.FormOperations() {
		if _, ok := operate.RoleOfOperation(operation); !ok {
			t.Errorf("%s: there is no operation %q", path, operation)
		}
	}
}

// An operator can create and delete workflows without JavaScript. The page asks for confirmation
// before it deletes one.
func TestMakeAndDeleteAWorkflowWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	put := map[string]string{"name": "Invoices", "id": "orders", "account": "on-free"}
	a := r.post("/new-workflow", "new-workflow", put, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "There is a workflow “orders” already.",
		`value="Invoices"`)
	a = r.postAgain(a, "new-workflow", map[string]string{"id": "a b", "node": "?"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `id="id-problem" data-problem>must be 1 to 64`,
		`id="node-problem" data-problem>must be 1 to 64`, "<details open>")
	a = r.postAgain(a, "new-workflow", map[string]string{"id": "invoices", "node": "n"}, session)
	if said := r.done(a, session); a.location != "/workflows/invoices" ||
		!strings.Contains(said, "“Invoices” is created.") {
		t.Errorf("%s: %s", a.location, said)
	}
	if w := r.workflow("invoices"); w.AccountID != "on-free" || w.Name != "Invoices" || w.Active ||
		w.Triggers[0].NodeID != "n" {
		t.Errorf("it is %+v", w)
	}

	a = r.post("/workflows/invoices", "delete-form", nil, session)
	wantSays(t, a, http.StatusConflict, `aria-labelledby="ask-title" open>`, "Delete “Invoices”",
		`<button class="danger" form="delete-form" name="confirmed" value="yes">`)
	r.workflow("invoices")
	a = r.postAgain(a, "delete-form", map[string]string{"confirmed": "yes"}, session)
	if said := r.done(a, session); a.location != "/workflows" || said != "“Invoices” is deleted." {
		t.Errorf("%s: %s", a.location, said)
	}
	if _, ok := r.RegistryIndex.Workflow("invoices"); ok {
		t.Error("it is still there")
	}
}

// An operator can create, change and delete accounts without JavaScript.
func TestAccountsWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "pro", true)
	r.CreateWorkflow(t, "invoices", "pro", true)
	session := r.signIn()
	put := map[string]string{"name": "Acme & Sons", "id": "on-pro", "plan": "free"}
	a := r.post("/accounts", "new-account", put, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "There is an account “on-pro” already.",
		`value="Acme & Sons"`, `<option value="free" selected>`)
	a = r.postAgain(a, "new-account", map[string]string{"id": "acme"}, session)
	if said := r.done(a, session); said != "“Acme & Sons” is created." ||
		r.account("acme").Plan != "free" {
		t.Errorf("%s: %s", a.location, said)
	}

	// The page asks for confirmation before a new plan stops webhooks.
	page := r.get("/accounts", session)
	a = r.postAgain(page, "on-pro:plan", map[string]string{"plan": "free"}, session)
	wantSays(t, a, http.StatusConflict, `aria-labelledby="ask-title" open>`, "This one stops",
		`form="on-pro:plan" name="confirmed" value="yes">`)
	if plan := r.account("on-pro").Plan; plan != "pro" {
		t.Errorf("the plan is %s before it was confirmed", plan)
	}
	a = r.postAgain(a, "on-pro:plan", map[string]string{"confirmed": "yes"}, session)
	if said := r.done(a, session); !strings.HasSuffix(said, "is on the plan free now.") ||
		r.account("on-pro").Plan != "free" {
		t.Errorf("%s: %s", a.location, said)
	}
	// Post the form again from the page that was loaded before the change. This page still shows
	// the old plan, so the post is refused as a conflict.
	a = r.postAgain(page, "on-pro:plan", map[string]string{"plan": "ultra"}, session)
	wantSays(t, a, http.StatusConflict, "somebody else has changed the plan to “free”")
	if plan := r.account("on-pro").Plan; plan != "free" {
		t.Errorf("the plan is %s after a conflict", plan)
	}
	a = r.postAgain(a, "on-pro:plan", nil, session)
	if r.done(a, session); r.account("on-pro").Plan != "ultra" {
		t.Error("it was not saved by who was told")
	}

	// Test the form of the account's operator events. The first attempt names a workflow that does
	// not exist, so it fails, and the form keeps the other values.
	page = r.get("/accounts", session)
	_, _, err := r.PutAccount(t.Context(), "on-pro", "Renamed", "ultra") // the events do not change
	r.check(err)
	a = r.postAgain(page, "on-pro:events", map[string]string{
		"workflow": "none", "silent": "60", "kind": "execution.failed",
	}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `has no workflow "none"`, `value="60"`,
		`<details class="events" open>`, `value="execution.failed" checked>`)
	a = r.postAgain(a, "on-pro:events", map[string]string{"workflow": "orders"}, session)
	r.done(a, session)
	events := r.account("on-pro").Events
	if events == nil || events.WorkflowID != "orders" || len(events.Kinds) != 1 ||
		events.SilentAfter.Seconds() != 60 {
		t.Errorf("the events are %+v", events)
	}
	a = r.postAgain(page, "on-pro:events", map[string]string{"workflow": "invoices"}, session)
	wantSays(t, a, http.StatusConflict, "somebody else has changed the events to "+
		"“orders, execution.failed, silent after 60 seconds”")
	if r.account("on-pro").Events.WorkflowID != "orders" {
		t.Error("a conflict was overwritten")
	}
	a = r.postAgain(a, "on-pro:events", map[string]string{"start": "none"}, session)
	if said := r.done(a, session); r.account("on-pro").Events != nil {
		t.Errorf("there are events after it said %q", said)
	}

	a = r.post("/accounts", "on-pro:delete", nil, session)
	wantSays(t, a, http.StatusConflict, "Delete “")
	a = r.postAgain(a, "on-pro:delete", map[string]string{"confirmed": "yes"}, session)
	wantSays(t, a, http.StatusConflict, "The account has workflows or keys.")
	a = r.post("/accounts", "acme:delete", map[string]string{"confirmed": "yes"}, session)
	if said := r.done(a, session); said != "“Acme & Sons” is deleted." {
		t.Errorf("it says %q", said)
	}
}

// Without JavaScript, an operator can set and remove a trigger node's filter, order key and answer,
// and rotate its token.
func TestHandlingWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const path = "/workflows/orders?node=node"
	node := func() *registry.Trigger { return r.workflow("orders").Trigger("node") }
	wanted := map[string]string{"filter": "{\r\n \"ptr:/a\": 12345678901234567890}"}
	a := r.post(path, "filter-form", map[string]string{"filter": `{"ptr:/a": {"$is": 1}}`}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `there is no operator "$is"`,
		`{"ptr:/a": {"$is": 1}}</textarea>`, "data-filter-details open>", `aria-invalid="true"`)
	a = r.postAgain(a, "filter-form", map[string]string{"filter": "{"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "{</textarea>")
	a = r.postAgain(a, "filter-form", wanted, session)
	if said := r.done(a, session); a.location != path ||
		!strings.HasPrefix(said, "The filter is") ||
		node().Filter != `{"ptr:/a":12345678901234567890}` {
		t.Errorf("%s: %s: %s", a.location, said, node().Filter)
	}
	page := r.get(path, session)
	r.done(r.post(path, "order-form", map[string]string{"place": "ptr:/a"}, session), session)
	a = r.post(path, "answer-form", map[string]string{"wait": "26", "raw": "on"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "must be 1 to 25, not 26", `value="26"`,
		`name="raw" checked>`)
	r.done(r.postAgain(a, "answer-form", map[string]string{"wait": "5"}, session), session)
	if n := node(); n.OrderKey != "ptr:/a" || n.SyncResponse == nil ||
		n.SyncResponse.WaitSeconds != 5 || !n.SyncResponse.Raw {
		t.Errorf("it is %+v", n)
	}
	// Post the forms of the page that was loaded first. It does not show the new settings, so its
	// forms must not replace them.
	a = r.postAgain(page, "order-form", map[string]string{"place": "ptr:/b"}, session)
	wantSays(t, a, http.StatusConflict, "somebody else has changed the order key to “ptr:/a”")
	a = r.postAgain(page, "answer-form", map[string]string{"wait": "7"}, session)
	wantSays(t, a, http.StatusConflict, "changed the answer to “5 seconds, raw”")
	if n := node(); n.OrderKey != "ptr:/a" || n.SyncResponse.WaitSeconds != 5 {
		t.Errorf("a conflict has made it %+v", n)
	}
	for _, form := range []string{"filter-form", "order-form", "answer-form"} {
		r.done(r.post(path, form, map[string]string{"do": "take-away"}, session), session)
	}
	if n := node(); len(n.Filter) > 0 || n.OrderKey != "" || n.SyncResponse != nil {
		t.Errorf("it is %+v", n)
	}

	for range edit.MaxTokensPerNode - 1 {
		r.done(r.post(path, "rotate-form", nil, session), session)
	}
	a = r.post(path, "rotate-form", map[string]string{"grace": "604800"}, session)
	wantSays(t, a, http.StatusConflict, "or choose “ends at once”, which ends them all.",
		`<option value="604800" selected>`)
	r.done(r.post(path, "rotate-form", map[string]string{"grace": "0"}, session), session)
	before := r.Token(t, "orders", "node")
	a = r.post(path, "rotate-form", map[string]string{"grace": "86400"}, session)
	said := r.done(a, session)
	if said != "There is a new URL. The old one works for 1 day more." ||
		r.Token(t, "orders", "node") == before {
		t.Errorf("it says %q", said)
	}
}

// An operator can create and revoke a key without JavaScript. Only the response that creates the
// key shows its secret.
func TestKeysWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	a := r.post("/keys", "new-key", map[string]string{
		"name": "CI of A", "role": "editor", "account": "none",
	}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, `value="CI of A"`,
		`<option value="editor" selected>`, `<option value="7776000" selected>`)
	a = r.postAgain(a, "new-key", map[string]string{"account": "on-free", "role": "admin"},
		session)
	wantSays(t, a, http.StatusUnprocessableEntity,
		`id="account-problem" data-problem>an admin has access to all accounts`)
	if made := r.RegistryIndex.APIKeys("", 10); len(made) > 0 {
		t.Fatalf("an admin of one account was made: %+v", made)
	}
	a = r.postAgain(a, "new-key", map[string]string{"account": "on-free", "role": "editor"},
		session)
	wantSays(t, a, http.StatusOK, "The key of “CI of A”", "data-shown-once")
	secret := regexp.MustCompile(`id="made-key" data-copy-text>(\w[^<]+)<`).FindStringSubmatch(a.body)
	keys := r.RegistryIndex.APIKeys("", 10)
	if secret == nil || len(keys) != 1 || keys[0].Role != "editor" ||
		keys[0].AccountID != "on-free" {
		t.Fatalf("%q, %+v", secret, keys)
	}
	page := r.get("/keys", session)
	if strings.Contains(page.body, secret[1]) {
		t.Error("the key is shown again")
	}
	form := keys[0].ID + ":revoke"
	a = r.postAgain(page, form, map[string]string{"name": "Another"}, session)
	wantSays(t, a, http.StatusConflict, "Revoke “CI of A”?")
	a = r.postAgain(a, form, map[string]string{"confirmed": "yes"}, session)
	if said := r.done(a, session); said != "“CI of A” is revoked." ||
		len(r.RegistryIndex.APIKeys("", 10)) > 0 {
		t.Errorf("it says %q", said)
	}
	a = r.postAgain(page, form, nil, session) // the form of a key that no longer exists
	wantSays(t, a, http.StatusNotFound, "There is no key")
}

// A new key is shown even if the other keys cannot be listed because the database is unavailable.
func TestNewKeyWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	page := r.get("/keys", session)
	r.uses.gone.Store(true)
	a := r.postAgain(page, "new-key", map[string]string{"name": "CI", "role": "viewer"}, session)
	wantSays(t, a, http.StatusOK, "The key of “CI”", operate.APIKeyPrefix,
		"The keys cannot be listed now.")
	if keys := r.RegistryIndex.APIKeys("", 10); len(keys) != 1 {
		t.Errorf("the keys are %+v", keys)
	}
	wantSays(t, r.get("/keys", session), http.StatusServiceUnavailable)
}

// An operator can pause and resume a queue, and limit a group of runners, without JavaScript.
func TestQueuesWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	queue := func() *registry.Queue {
		have, ok := r.RegistryIndex.Queue("default")
		if !ok {
			t.Fatal("the queue has no settings")
		}
		return have.Record
	}
	const form = "default:pause-form"
	a := r.post("/queues", form, map[string]string{"do": "pause", "seconds": "3600"}, session)
	if said := r.done(a, session); said != "default is paused." || a.location != "/queues" ||
		queue().PausedSince.IsZero() || queue().PausedUntil.IsZero() {
		t.Errorf("%s: %+v", said, queue())
	}
	a = r.post("/queues", form, map[string]string{"do": "resume"}, session)
	if said := r.done(a, session); said != "default is resumed." || !queue().PausedSince.IsZero() {
		t.Errorf("%s: %+v", said, queue())
	}
	a = r.post("/queues", form, map[string]string{"do": "?", "seconds": "28800"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "autofocus>default: The form is not complete.",
		`<option value="28800" selected>`)

	limit := func(shown, wanted string) answer {
		return r.call(http.MethodPost, "/queues/default/groups/main",
			url.Values{"shown.limit": {shown}, "limit": {wanted}}, session)
	}
	r.done(limit("", "2"), session)
	if groups := queue().Groups; len(groups) != 1 || groups[0].MaxInFlight != 2 {
		t.Errorf("the groups are %+v", groups)
	}
	wantSays(t, limit("", "3"), http.StatusConflict, "changed the limit to 2")
	wantSays(t, limit("2", "1000001"), http.StatusUnprocessableEntity, "must be from 1 to 1000000")
	wantSays(t, limit("2", "x"), http.StatusUnprocessableEntity, "must be a whole number")
	if n := queue().Groups[0].MaxInFlight; n != 2 {
		t.Errorf("the limit is %d", n)
	}
	r.done(limit("2", ""), session)
	if n := queue().Groups[0].MaxInFlight; n != 0 {
		t.Errorf("the limit is %d", n)
	}
}

// After a form on the second page of the list of queues was posted, the browser shows that page
// again. It reloads the page even with JavaScript, because scripts update only the first page.
func TestLaterPageOfQueues(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", false)
	for i := range 30 {
		id := fmt.Sprintf("w-%02d", i)
		r.CreateWorkflow(t, id, "free", false)
		r.change(id, func(spec *edit.WorkflowSpec) { spec.Queue = "q-" + id })
	}
	session := r.signIn()
	first := r.get("/queues", session)
	next := regexp.MustCompile(`href="(/queues\?[^"]+)" rel="next"`).FindStringSubmatch(first.body)
	if next == nil {
		t.Fatal("there is no second page")
	}
	path, form := html.UnescapeString(next[1]), "q-w-29:pause-form"
	page := r.get(path, session)
	a := r.postAgain(page, form, map[string]string{"do": "pause"}, session)
	if said := r.done(a, session); a.location != path || said != "q-w-29 is paused." {
		t.Errorf("%s: %s", a.location, said)
	}
	for i, page := range []string{first.body, page.body} {
		forms := regexp.MustCompile(`<form [^>]*data-said="queue-said"[^>]*>`).
			FindAllString(page, -1)
		if len(forms) == 0 {
			t.Errorf("page %d has no forms", i+1)
		}
		for _, form := range forms {
			if again := attributesOf(form)["data-in-place"] == "page"; again != (i == 1) {
				t.Errorf("page %d: %s", i+1, form)
			}
		}
	}
}

// The response to a form that a script has posted is JSON that contains the message and the path of
// the page to show. If the change was refused, the response is the page with the form, as without a
// script.
func TestFormPostedByAScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session, script := r.signIn(), with("Accept", "application/json")
	page := r.get("/workflows/orders?node=node", session)
	action, values := r.formIn(page.body, "settings-form")
	values.Set("queue", "quick")
	a := r.call(http.MethodPost, action, values, session, script)
	wantSays(t, a, http.StatusOK,
		`{"page":"/workflows/orders?node=node","done":"The settings are saved."}`)
	if a.header.Get("Content-Type") != "application/json" || len(a.cookies) > 0 ||
		r.workflow("orders").Queue != "quick" {
		t.Errorf("%v, cookies %v", a.header, a.cookies)
	}
	values.Set("queue", "another")
	a = r.call(http.MethodPost, action, values, session, script)
	wantSays(t, a, http.StatusConflict, "changed the queue to “quick”", "<form ")
}

// An executor's copy of the registry may lag. If a change conflicts with this copy, the executor
// checks again with a current copy. Here, the current copy shows no conflict, so the change
// succeeds.
func TestConflictWithALaggingCopy(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	admin := operate.Caller{Kind: operate.CallerKindAdminToken, Role: operate.RoleAdmin}
	asked, conflict := 0, console.NewConflict()
	_, err := r.calls.PatchWorkflow(t.Context(), admin, "orders", func(*api.PutWorkflow) error {
		if asked++; asked == 1 {
			return conflict.Check("theirs")
		}
		return conflict.Check("shown")
	})
	if err != nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

// Browsers remove or convert the line breaks in a name. This does not count as an edit of the name.
func TestNameWithLineBreaks(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const name = "two\r\nlines "
	r.change("orders", func(spec *edit.WorkflowSpec) { spec.Name = name })
	page := r.get("/workflows/orders", session)
	a := r.postAgain(page, "settings-form", map[string]string{
		"shown.name": "two\r\nlines ", "name": "twolines ", "queue": "quick",
	}, session)
	r.done(a, session)
	if w := r.workflow("orders"); w.Name != name || w.Queue != "quick" {
		t.Errorf("it is %+v", w)
	}
	// The stored name contains a CRLF, but the form posts a line feed as the value that the page
	// showed, because the browser's HTML parser has converted the CRLF. This does not count as a
	// change by somebody else.
	a = r.post("/workflows/orders", "settings-form", map[string]string{
		"shown.name": "two\nlines ", "name": "one line",
	}, session)
	if r.done(a, session); r.workflow("orders").Name != "one line" {
		t.Errorf("it is %+v", r.workflow("orders"))
	}
}

// If a form was not edited, but its setting has changed since the page was loaded, the form reports
// a conflict instead of success.
func TestUneditedFormOfAStalePage(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	limit := func(shown, wanted string) answer {
		return r.call(http.MethodPost, "/queues/default/groups/main",
			url.Values{"shown.limit": {shown}, "limit": {wanted}}, session)
	}
	r.done(limit("", "5"), session)
	r.done(limit("5", "10"), session)
	wantSays(t, limit("5", "5"), http.StatusConflict, "changed the limit to 10")
	r.done(limit("10", "10"), session)

	const path = "/workflows/orders?node=node"
	page := r.get(path, session)
	for form, theirs := range map[string]map[string]string{
		"filter-form": {"filter": `{"ptr:/a": 1}`},
		"order-form":  {"place": "ptr:/a"},
		"answer-form": {"wait": "5"},
	} {
		r.done(r.post(path, form, theirs, session), session)
		wantSays(t, r.postAgain(page, form, nil, session), http.StatusConflict,
			"somebody else has changed the ")
		r.done(r.post(path, form, nil, session), session)
	}
	if n := r.workflow("orders").Trigger("node"); n.Filter != `{"ptr:/a":1}` ||
		n.OrderKey != "ptr:/a" || n.SyncResponse.WaitSeconds != 5 {
		t.Errorf("it is %+v", n)
	}
}

// An executor that has just started may not have heard from the runners yet. The queues page then
// says that the runners are unknown, and not that there are none.
func TestQueuesBeforeRunnersCanBeHeard(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", false)
	group := stream.RunnerGroup{Queue: "default", Group: "main"}
	_, err := stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.ConsumerConfig(time.Minute))
	r.check(err)
	page := r.get("/queues", r.signIn())
	wantSays(t, page, http.StatusOK, "not known yet who is there")
	for _, wrong := range []string{"Nobody takes it", "nobody there", "Start one"} {
		if strings.Contains(page.body, wrong) {
			t.Errorf("the page says %q", wrong)
		}
	}
}

// Every element of a page has a unique ID, even if the IDs of accounts, queues and groups resemble
// IDs of elements, such as "x-said".
func TestIDsOfElements(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.signIn()
	for _, id := range []string{"x", "x-said", "form-x", "a", "a-b-c"} {
		_, _, err := r.PutAccount(t.Context(), id, id, "free")
		r.check(err)
		r.CreateWorkflow(t, id, "free", false)
		r.change(id, func(spec *edit.WorkflowSpec) { spec.Queue = id })
	}
	group := stream.RunnerGroup{Queue: "a", Group: "b-c"}
	_, err := stream.EnsureRunnerConsumer(t.Context(), r.JetStream, group,
		group.ConsumerConfig(time.Minute))
	r.check(err)
	for _, path := range []string{"/accounts", "/queues"} {
		seen := map[string]bool{}
		for _, found := range regexp.MustCompile(`\bid="([^"]*)"`).
			FindAllStringSubmatch(r.get(path, session).body, -1) {
			if seen[found[1]] {
				t.Errorf("%s has two elements %q", path, found[1])
			}
			seen[found[1]] = true
		}
	}
	a := r.post("/queues", "a:b-c:limit-form", map[string]string{"limit": "-1"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "must be a whole number")
	if n := strings.Count(a.body, `value="-1"`); n != 1 {
		t.Errorf("%d forms show what was typed in one", n)
	}
}

// Without JavaScript, an operator can give a queue its own stream and change the stream's settings.
// The form does not overwrite changes that it has not shown. If a post is refused because the queue
// is moving to another stream, the form keeps what was typed.
func TestQueueStreamWithoutJavaScript(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	const form = "default:stream-form"
	settings := func() *registry.QueueStream {
		have, ok := r.RegistryIndex.Queue("default")
		if !ok || have.Record.Stream == nil {
			t.Fatalf("the queue has no stream: %+v", have.Record)
		}
		return have.Record.Stream
	}
	before := r.get("/queues", session)
	a := r.postAgain(before, form, map[string]string{"age": "1"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity,
		"Seconds that messages are kept: must be at least ", `name="age" min="1" placeholder="as `+
			`the shared stream" value="1" aria-invalid="true"`)
	a = r.postAgain(before, form, map[string]string{"bytes": "1000000", "age": "100000"}, session)
	if said := r.done(a, session); said != "default has a stream of its own." ||
		settings().MaxBytes != 1_000_000 || settings().MaxAge.Seconds() != 100_000 {
		t.Errorf("%s: %+v", said, settings())
	}
	a = r.postAgain(before, form, map[string]string{"bytes": "2000000"}, session)
	wantSays(t, a, http.StatusConflict,
		"changed the settings of its stream to bytes: 1000000, seconds: 100000")
	if settings().MaxBytes != 1_000_000 {
		t.Errorf("a conflict has made it %+v", settings())
	}
	a = r.postAgain(a, form, nil, session)
	if r.done(a, session); settings().MaxBytes != 2_000_000 || settings().MaxAge != 0 {
		t.Errorf("it is %+v", settings())
	}

	// Begin to move the queue back to the shared stream, but do not complete the move, so that the
	// queue is still moving when the form is posted.
	_, err := r.BeginMoveToSharedStream(t.Context(), "default")
	r.check(err)
	a = r.postAgain(before, form, map[string]string{"age": "200000"}, session)
	wantSays(t, a, http.StatusConflict, "Is moving to another stream", `value="200000"`)

	a = r.post("/queues", "default:drop-form", nil, session)
	if said := r.done(a, session); said != "default is in the shared stream." {
		t.Errorf("it says %q", said)
	}
	// The queue's own stream still exists until it has drained, but the form no longer shows its
	// settings. Giving the queue its own stream again is not a conflict with somebody else's
	// change.
	left := r.get("/queues", session)
	for _, value := range []string{"shown.bytes", "bytes"} {
		if _, values := r.formIn(left.body, form); values.Get(value) != "" {
			t.Errorf("%s is %q", value, values.Get(value))
		}
	}
	a = r.postAgain(left, form, map[string]string{"bytes": "3000000", "tags": ""}, session)
	if r.done(a, session); settings().MaxBytes != 3_000_000 {
		t.Errorf("it is %+v", settings())
	}
	a = r.postAgain(r.get("/queues", session), form, map[string]string{
		"tags": strings.Repeat("t", 1000),
	}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "Tags of its servers: must be 1 to ", `spellcheck="false" placeholder="any server" value="t`)
}

// The queues page shows the settings of a queue's own stream in words.
func TestQueueStreamInWords(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	a := r.post("/queues", "default:stream-form", map[string]string{
		"bytes": "30000000", "replicas": "1",
	}, session)
	r.done(a, session)
	wantSays(t, r.get("/queues", session), http.StatusOK,
		"Has a stream of its own, 1 replica, at most 30 MB<")
}

// A form may overwrite somebody else's change only after the page has reported that change. If
// there is a conflict but saving fails for another reason, the page reports only that reason. The
// form then keeps the old hidden value, so that the next attempt detects the conflict again.
func TestConflictOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		api.CodeChangedSince: "theirs", api.CodeUnavailable: "shown",
	} {
		conflict := console.NewConflict()
		if err := conflict.Check("theirs"); !api.IsCode(err, api.CodeChangedSince) {
			t.Fatalf("the error is %v", err)
		}
		values := conflict.Fail(&operate.Error{Code: code})
		if values["shown.name"] != want || values["name"] != "mine" {
			t.Errorf("%s: the values are %v", code, values)
		}
	}
}

// The page may be out of date when an account's form is posted. Removing operator event settings
// that somebody else has already removed succeeds. Selecting a plan that no longer exists is
// refused, with a message that says so.
func TestAccountFormsOfAStalePage(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "orders", "free", true)
	session := r.signIn()
	a := r.post("/accounts", "on-free:events", map[string]string{
		"workflow": "orders", "start": "none",
	}, session)
	if said := r.done(a, session); said != "The account's events start no workflow." {
		t.Errorf("it says %q", said)
	}
	a = r.post("/accounts", "on-free:plan", map[string]string{"plan": "gone"}, session)
	wantSays(t, a, http.StatusUnprocessableEntity, "There is no plan “gone” any more.")
}
