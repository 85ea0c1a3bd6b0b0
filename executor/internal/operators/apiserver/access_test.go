package apiserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// about is the kind of object that an operation concerns.
type about string

const (
	nothing     about = "nothing"      // nothing that belongs to an account
	everything  about = "all accounts" // a key for one account is refused
	anAccount   about = "an account"
	aWorkflow   about = "a workflow"
	anExecution about = "an execution"
	aKey        about = "a key"
)

// operation says how the test calls one operation of the API, and which result the test expects. In
// body, ACCOUNT stands for the account's ID and SOON for a time in the future.
type operation struct {
	about about
	body  string
	// otherError is an error code that a caller with permission may get instead of a success,
	// because of this test's data. "" means that the call must succeed.
	otherError string
}

// operations holds the expected behavior of every operation of the OpenAPI document, by ID. A new
// operation needs an entry.
var operations = map[string]operation{
	"get-whoami": {nothing, "", ""},
	"list-keys":  {everything, "", ""},
	"create-key": {everything, `{"name":"another","role":"viewer"}`, ""},
	"revoke-key": {aKey, "", ""},

	"list-audit":   {everything, "", ""},
	"list-members": {everything, "", ""},
	"get-size":     {everything, "", ""},

	"list-plans":       {nothing, "", ""},
	"list-accounts":    {nothing, "", ""},
	"get-account":      {anAccount, "", ""},
	"put-account":      {anAccount, `{"name":"ACCOUNT Inc.","plan":"pro"}`, ""},
	"get-events":       {anAccount, "", api.CodeNotFound},
	"put-events":       {anAccount, `{"workflowId":"ACCOUNT-wf"}`, ""},
	"delete-events":    {anAccount, "", api.CodeNotFound},
	"patch-account":    {anAccount, `{"name":"ACCOUNT Ltd."}`, ""},
	"patch-workflow":   {aWorkflow, `{"name":"ACCOUNT's own"}`, ""},
	"patch-trigger":    {aWorkflow, `{"name":"ACCOUNT's node"}`, ""},
	"check-public-url": {nothing, "", ""},

	"list-workflows": {nothing, "", ""},
	"get-workflow":   {aWorkflow, "", ""},
	"put-workflow": {
		aWorkflow,
		`{"accountId":"ACCOUNT","name":"ACCOUNT's","triggers":[{"nodeId":"node","samplePayload":1}]}`,
		"",
	},
	"delete-workflow":     {aWorkflow, "", ""},
	"activate-workflow":   {aWorkflow, "", ""},
	"deactivate-workflow": {aWorkflow, "", ""},
	"list-refusals":       {aWorkflow, "", ""},
	"list-all-refusals":   {nothing, "", ""},

	"get-trigger":        {aWorkflow, "", ""},
	"try-order-key":      {aWorkflow, "", api.CodeInvalid}, // the node has no order key
	"put-sample-payload": {aWorkflow, `{"a":1}`, ""},
	"rotate-token":       {aWorkflow, `{}`, ""},
	"rerun-trigger":      {aWorkflow, "", ""},
	"send-test": {
		aWorkflow, `{"body":"1","headers":{"Host":["elsewhere"]}}`, api.CodeInvalid,
	},

	"list-executions":   {nothing, "", ""},
	"get-execution":     {anExecution, "", ""},
	"rerun-execution":   {anExecution, "", ""},
	"cancel-execution":  {anExecution, "", api.CodeAlreadyEnded},
	"cancel-executions": {nothing, `{"ids":[]}`, ""},
	"requeue-execution": {anExecution, "", ""},
	"stream-executions": {nothing, "", ""},
	"list-dead-letters": {nothing, "", ""},

	"list-senders":         {nothing, "", ""},
	"get-sender":           {aWorkflow, "", api.CodeNotFound},
	"put-sender":           {aWorkflow, `{"preset":"plain"}`, ""},
	"delete-sender":        {aWorkflow, "", api.CodeNotFound},
	"add-sender-secret":    {aWorkflow, `{"secret":"a secret"}`, api.CodeNotFound},
	"delete-sender-secret": {aWorkflow, "", api.CodeNotFound},

	"delete-account": {anAccount, "", "account_not_empty"},
	"list-queues":    {nothing, "", ""},
	// Both accounts have workflows in this queue, so a key of one account must not change it.
	"pause-queue":          {nothing, `{}`, api.CodeForbidden},
	"resume-queue":         {nothing, "", api.CodeForbidden},
	"put-queue-stream":     {nothing, `{}`, ""},
	"delete-queue-stream":  {nothing, "", ""},
	"put-queue-group":      {nothing, `{"maxInFlight":null}`, api.CodeForbidden},
	"replay-execution":     {anExecution, "", ""},
	"replay-rejected":      {nothing, `{"status":"rejected"}`, ""},
	"requeue-dead-letters": {nothing, `{}`, ""},
	"dismiss-dead-letters": {nothing, `{"ids":[]}`, ""},

	"back-up-records": {everything, "", ""},
	"back-up-audit":   {everything, "", api.CodeInvalid},
	"restore-records": {everything, `{}`, api.CodeNotEmpty},
}

// endpoint is an operation of the OpenAPI document. least is the lowest role that may call it.
type endpoint struct {
	id, method, path string
	least            operate.Role
}

func (r *rig) endpoints() (all []endpoint) {
	r.t.Helper()
	var document struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	r.check(json.Unmarshal(r.get("/openapi.json").is(200).body, &document))
	for path, methods := range document.Paths {
		for method, op := range methods {
			least, ok := operate.RoleOfRoute(op.OperationID)
			if !ok && op.OperationID != "get-openapi" {
				r.t.Errorf("%s %s: operate does not say who may call %s", method, path,
					op.OperationID)
			}
			all = append(all, endpoint{op.OperationID, strings.ToUpper(method), path, least})
		}
	}
	slices.SortFunc(all, func(a, b endpoint) int { return strings.Compare(a.id, b.id) })
	return all
}

// at returns the path of a call about an object of the given account, with all parameters filled
// in. what is the kind of the object. If it is a key, the argument key is its ID.
func (e endpoint) at(what about, account, key string) string {
	subject := map[about]string{
		anAccount:   account,
		aWorkflow:   account + "-wf",
		anExecution: executionOf(account),
		aKey:        key,
	}[what]
	return strings.NewReplacer("{id}", subject, "{nodeId}", "node", "{secretId}", "1", "{queue}",
		"default", "{group}", "main").Replace(e.path)
}

// executionOf returns the ID of an account's failed execution.
func executionOf(account string) string {
	return map[string]string{"acme": id(1), "globex": id(2), "nobody": id(3)}[account]
}

// ask makes a call with an API key and returns the status and the body of the response. If the
// response is an event stream, ask reads only the status.
func (r *rig) ask(e endpoint, path, body, key string) (status int, answer string) {
	r.t.Helper()
	if e.id != "stream-executions" {
		a := r.call(e.method, path, body, with(key))
		return a.status, string(a.body)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, e.method, r.server.URL+path, nil)
	r.check(err)
	with(key)(request)
	response, err := r.server.Client().Do(request)
	r.check(err)
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode, ""
}

// twoAccounts creates two accounts, each with a workflow and a failed execution. Each object has
// the name of its account in its ID.
func (r *rig) twoAccounts() {
	r.t.Helper()
	for i, account := range []string{"acme", "globex"} {
		r.put("/accounts/"+account, `{"name":"`+account+` Inc.","plan":"pro"}`)
		r.put("/workflows/"+account+"-wf",
			`{"accountId":"`+account+`","name":"`+account+
				` orders","triggers":[{"nodeId":"node","name":"`+account+`","samplePayload":"`+
				account+`"}]}`)
		payload, err := execution.NewPayload("application/json", []byte(`"`+account+`"`))
		r.check(err)
		started := execution.Start{
			Payload:    payload,
			ID:         executionOf(account),
			AccountID:  account,
			WorkflowID: account + "-wf",
			NodeID:     "node",
			Queue:      execution.DefaultQueue,
			Source:     execution.SourceWebhook,
			AcceptedAt: epoch,
			Headers:    execution.Values{"Stripe-Signature": {"t=1"}},
		}
		sequence := r.message(stream.StartMessage(started))
		r.records(store.Batch{NewRecords: []store.Record{record(executionOf(account), func(
			rec *store.Record,
		) {
			rec.AccountID, rec.WorkflowID, rec.DeliveryID, rec.StreamSequence = account,
				account+"-wf", account+"-delivery", sequence
			rec.AcceptedAt = epoch.Add(time.Duration(i) * time.Second)
		})}, Progress: []execution.Progress{
			{
				ID:         executionOf(account),
				Queue:      execution.DefaultQueue,
				WorkflowID: account + "-wf",
				Status:     execution.Failed,
				At:         epoch,
				Error:      account + " broke",
			},
		}})
		r.check(r.store.AddRefusals(r.t.Context(), account, time.Now(), []store.RefusalCount{{
			WorkflowID: account + "-wf",
			Code:       "token_invalid",
			Minute:     time.Now().Truncate(time.Minute),
			Count:      1,
			Last:       store.RefusedRequest{At: time.Now(), UserAgent: account},
		}}))
	}
}

// restore recreates the workflows of twoAccounts, which a call may have changed or deleted.
func (r *rig) restore() {
	r.t.Helper()
	for _, account := range []string{"acme", "globex"} {
		r.put("/workflows/"+account+"-wf",
			`{"accountId":"`+account+`","name":"`+account+
				` orders","triggers":[{"nodeId":"node","name":"`+account+`","samplePayload":"`+
				account+`"}]}`)
	}
}

// TestWhoMayDoWhat calls every operation of the OpenAPI document as every kind of caller, and
// checks which callers are refused.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.twoAccounts()
	revoked := r.key("admin", "")
	r.delete("/keys/" + revoked.ID).is(204)
	soon := time.Now().Add(2 * time.Second)
	expired := decode[api.NewKey](r.post("/keys",
		`{"name":"short","role":"admin","expiresAt":"`+soon.UTC().Format(time.RFC3339Nano)+
			`"}`).is(201))
	eventually(t, func() bool { return time.Now().After(soon) })
	strangers := map[string]string{
		"no token":     "",
		"garbage":      "garbage",
		"a forged key": operate.APIKeyPrefix + strings.Repeat("A", 43),
		"a key's ID":   revoked.ID,
		"revoked":      revoked.Secret,
		"expired":      expired.Secret,
	}
	callers := []struct {
		what, key string
		role      operate.Role
		account   string
	}{
		{"admin token", adminToken, operate.RoleAdmin, ""},
		{"admin", r.key("admin", "").Secret, operate.RoleAdmin, ""},
		{"editor", r.key("editor", "").Secret, operate.RoleEditor, ""},
		{"viewer", r.key("viewer", "").Secret, operate.RoleViewer, ""},
		{"editor of acme", r.key("editor", "acme").Secret, operate.RoleEditor, "acme"},
		{"viewer of acme", r.key("viewer", "acme").Secret, operate.RoleViewer, "acme"},
	}
	for _, e := range r.endpoints() {
		expected, listed := operations[e.id]
		if !listed {
			t.Errorf("%s (%s %s): the table operations does not say what it is about", e.id,
				e.method, e.path)
			continue
		}
		for who, key := range strangers {
			if status, answer := r.ask(e, e.at(expected.about, "acme", "key_x"), expected.body,
				key); status != 401 ||
				!strings.Contains(answer+api.CodeUnauthorized, api.CodeUnauthorized) {
				t.Errorf("%s by %s: %d %s", e.id, who, status, answer)
			}
		}
		for _, c := range callers {
			for _, account := range []string{"acme", "globex"} {
				r.restore()
				spare := ""
				if expected.about == aKey {
					spare = r.key("viewer", "").ID
				}
				body := strings.ReplaceAll(expected.body, "ACCOUNT", account)
				status, answer := r.ask(e, e.at(expected.about, account, spare), body, c.key)
				foreign := c.account != "" && c.account != account
				switch {
				case !c.role.Includes(e.least):
					if status != 403 || !strings.Contains(answer, `"forbidden"`) {
						t.Errorf("%s of %s by %s: %d %s, want 403 forbidden", e.id, account, c.what,
							status, answer)
					}
				case foreign && expected.about != nothing:
					r.asIfNotThere(e, expected, c.what, c.key, status, answer)
				case status/100 != 2 &&
					(expected.otherError == "" ||
						!strings.Contains(answer, `"`+expected.otherError+`"`)):
					t.Errorf("%s of %s by %s: %d %s", e.id, account, c.what, status, answer)
				}
				if expected.about == nothing || expected.about == everything {
					break // the other account would make no difference
				}
			}
		}
	}
}

// A caller whose role is too low gets the error about the role, even if the request is invalid as
// well.
func TestTheRoleIsAskedBeforeTheRequestIsRead(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.twoAccounts()
	for _, role := range []operate.Role{operate.RoleViewer, operate.RoleEditor} {
		key := r.key(string(role), "").Secret
		for _, e := range r.endpoints() {
			if role.Includes(e.least) {
				continue
			}
			for _, path := range []string{
				e.at(operations[e.id].about, "acme", "key_x"),
				e.at(operations[e.id].about, "acme", "key_x") + "?no=parameter",
			} {
				if status, answer := r.ask(e, path, `{"no":"field"}`, key); status != 403 ||
					!strings.Contains(answer, `"forbidden"`) {
					t.Errorf("%s %s by %s: %d %s, want 403 forbidden", e.method, path, role, status,
						answer)
				}
			}
		}
	}
}

// The handler of each route calls the operation that has the route's ID. If it called another
// operation, the route could check the wrong role. In addition, every operation with an ID has a
// route.
func TestRoutesCallTheirOperation(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	source := ""
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			source += string(text)
		}
	}
	// In the source, a route's ID is followed by a function that calls the operation, or by the
	// name of a method that calls it.
	called := regexp.MustCompile(`\.Operate\.(\w+)\(`)
	named := regexp.MustCompile(`\n\t\}, s\.(\w+)\)`)
	routes := map[string]string{}
	for _, part := range regexp.MustCompile(`\bid:\s+"`).Split(source, -1)[1:] {
		id, handler, _ := strings.Cut(part, `"`)
		if method := named.FindStringSubmatchIndex(handler); method != nil {
			if call := called.FindStringIndex(handler); call == nil || call[0] > method[0] {
				_, handler, _ = strings.Cut(source,
					"func (s *server) "+handler[method[2]:method[3]]+"(")
			}
		}
		if call := called.FindStringSubmatch(handler); call != nil {
			routes[id] = call[1]
		}
	}
	for _, o := range operate.Operations() {
		if o.RouteID != "" && routes[o.RouteID] != o.Name {
			t.Errorf(
				"the route %s calls %q, and requires the role of %s",
				o.RouteID,
				routes[o.RouteID],
				o.Name,
			)
		}
		delete(routes, o.RouteID)
	}
	for id, name := range routes {
		t.Errorf("the route %s calls %s, but no operation has that ID", id, name)
	}
}

// asIfNotThere checks that a caller cannot distinguish an object of the account globex from an
// object that does not exist. status and answer are the response to a call about the object of
// globex. The status must be 404. Apart from IDs, the response must equal the response to the same
// call about an object of "nobody", an account that does not exist. who names the caller in failure
// messages.
func (r *rig) asIfNotThere(
	e endpoint, expected operation, who, key string, status int, answer string,
) {
	r.t.Helper()
	ofNobody, said := r.ask(e, e.at(expected.about, "nobody", ""),
		strings.ReplaceAll(expected.body, "ACCOUNT", "nobody"), key)
	alike := strings.NewReplacer("globex", "nobody", executionOf("globex"),
		executionOf("nobody")).Replace(answer) == said
	if e.id == "put-workflow" {
		// The responses to a PUT may differ: a PUT with an unused ID creates a workflow, so any
		// refusal reveals that the ID is in use. Check only that the PUT for the account "nobody"
		// fails with 422, because this account does not exist.
		alike = ofNobody == 422
	}
	if status != 404 || !alike {
		r.t.Errorf("%s of globex by %s: %d %s; of nobody: %s", e.id, who, status, answer, said)
	}
}

// An account gets a workflow whose ID belonged to a workflow of another account before, and
// requests to the old workflow are still stored. A caller who may see only the new account finds no
// trace of these requests.
func TestReusedWorkflowIDsDoNotLeak(t *testing.T) {
	t.Parallel()
	for name, takeOver := range map[string]func(r *rig, editor func(*http.Request)){
		"deleted and created": func(r *rig, editor func(*http.Request)) {
			r.delete("/workflows/acme-wf").is(204)
			r.call("PUT", "/workflows/acme-wf",
				`{"accountId":"globex","name":"orders","triggers":[{"nodeId":"node"}]}`, editor).is(201)
		},
		"moved by PATCH": func(r *rig, _ func(*http.Request)) {
			r.patch("/workflows/acme-wf", `{"accountId":"globex"}`).is(200)
		},
		"moved by PUT": func(r *rig, _ func(*http.Request)) {
			r.put("/workflows/acme-wf",
				`{"accountId":"globex","name":"orders","triggers":[{"nodeId":"node"}]}`).is(200)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			r.twoAccounts()
			ctx := t.Context()
			r.check(r.store.AddFilteredRequests(ctx, "filtered", time.Now(),
				[]store.FilteredSummary{{
					WorkflowID: "acme-wf", NodeID: "node", Count: 1,
					Last: []store.FilteredRequest{{At: time.Now(), DeliveryID: "acme-filtered"}},
				}}))
			r.check(r.store.AddSenderActivity(ctx, "senders", time.Now(), []store.SenderActivity{{
				WorkflowID: "acme-wf", NodeID: "node",
				RefusedAt: time.Now(), RefusedCode: "signature_invalid", RefusedReason: "acme",
				Refused: 1,
			}}))
			key := r.key("editor", "globex")
			editor := with(key.Secret)
			takeOver(r, editor)
			refused, err := r.store.Refusals(ctx, "acme-wf", time.Now().Add(-time.Hour))
			if err != nil || len(refused) > 0 {
				t.Errorf("refusals: %+v, %v", refused, err)
			}
			seen, err := r.store.SenderActivity(ctx, "acme-wf", "node")
			if err != nil || seen.Refused > 0 {
				t.Errorf("sender: %+v, %v", seen, err)
			}
			rejected, err := r.store.FilteredSummary(ctx, "acme-wf", "node")
			if err != nil || rejected.Count > 0 {
				t.Errorf("filtered: %+v, %v", rejected, err)
			}
			trial := decode[api.OrderKeyTrial](r.call("GET",
				"/workflows/acme-wf/triggers/node/order-key-trial?orderKey=ptr:/a", "",
				editor).is(200))
			if trial.Requests+trial.Expired != 0 {
				t.Errorf("order key: %+v", trial)
			}
			caller := operate.Caller{
				Kind: operate.CallerKindKey, ID: key.ID, Name: key.Name, Role: operate.RoleEditor,
				AccountID: "globex",
			}
			tried, err := r.operate.TryFilter(ctx, caller, "acme-wf", "node", nil)
			if err != nil || tried.Expired > 0 || slices.ContainsFunc(tried.Requests,
				func(r operate.TriedRequest) bool { return r.ExecutionID != "" }) {
				t.Errorf("filter: %+v, %v", tried, err)
			}
			known, err := r.operate.ProviderOfLastRequest(ctx, caller, "acme-wf", "node")
			if err != nil || known != (operate.RecognizedProvider{}) {
				t.Errorf("provider: %+v, %v", known, err)
			}
		})
	}
}

// forgetfulStore is a store in which one call of ForgetWorkflowReports fails.
type forgetfulStore struct {
	store.Store

	calls, failing int // number of calls so far, and number of the call that fails, from 1
}

func (s *forgetfulStore) ForgetWorkflowReports(ctx context.Context, id string) error {
	if s.calls++; s.calls == s.failing {
		return errors.New("the database is away")
	}
	return s.Store.ForgetWorkflowReports(ctx, id)
}

// If moving a workflow to another account fails midway, the call can be repeated. After that,
// callers for the new account cannot see anything of the requests that the workflow received in the
// old account.
func TestRepeatedMoveToAnotherAccountDoesNotLeak(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"PATCH", "PUT"} {
		for failing := 1; failing <= 2; failing++ {
			t.Run(fmt.Sprint(method, " ", failing), func(t *testing.T) {
				t.Parallel()
				forgetful := &forgetfulStore{}
				r := start(t, func(c *config, _ *http.Server) {
					forgetful.Store, c.Store = c.Store, forgetful
				})
				r.twoAccounts()
				forgetful.calls, forgetful.failing = 0, failing
				body := `{"accountId":"globex","name":"orders","triggers":[{"nodeId":"node"}]}`
				r.call(method, "/workflows/acme-wf", body).is(500)
				r.call(method, "/workflows/acme-wf", body).is(200)
				refused, err := r.store.Refusals(t.Context(), "acme-wf", time.Now().Add(-time.Hour))
				if err != nil || len(refused) > 0 {
					t.Errorf("refusals: %+v, %v", refused, err)
				}
			})
		}
	}
}

// If a move to another account is refused, the workflow's stored requests are kept.
func TestRefusedMoveToAnotherAccountForgetsNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.twoAccounts()
	r.patch("/workflows/acme-wf", `{"accountId":"none"}`).is(422)
	refused, err := r.store.Refusals(t.Context(), "acme-wf", time.Now().Add(-time.Hour))
	if err != nil || len(refused) == 0 {
		t.Errorf("refusals: %+v, %v", refused, err)
	}
}

// A caller for one account finds no trace of other accounts in any list, filter, page or event.
func TestScopesDoNotLeak(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.twoAccounts()
	viewer, editor := r.key("viewer", "acme").Secret, r.key("editor", "acme").Secret
	trace := func(what string, answer string) {
		t.Helper()
		if strings.Contains(answer, "globex") || strings.Contains(answer, executionOf("globex")) {
			t.Errorf("%s shows another account: %.2000s", what, answer)
		}
	}
	foreign := []string{
		"", "?accountId=globex", "?workflowId=globex-wf", "?deliveryId=globex-delivery",
		"?accountId=acme&accountId=globex", "?accountId=globex&accountId=acme",
		"?accountId=", "?status=failed", "?limit=200", "?accountId=%2F", "?accountId=*",
		"?workflowId=acme-wf&deliveryId=globex-delivery",
	}
	for _, e := range r.endpoints() {
		if e.method != http.MethodGet || strings.Contains(e.path, "{") ||
			e.id == "stream-executions" {
			continue
		}
		for _, query := range foreign {
			for _, key := range []string{viewer, editor} {
				a := r.call("GET", e.path+query, "", with(key))
				if a.status == 200 {
					trace(e.id+query, string(a.body))
				}
			}
		}
		// A cursor from the admin's list gives the viewer no additional access.
		for _, of := range []string{"", "?accountId=globex"} {
			sep := "?"
			if of != "" {
				sep = "&"
			}
			page := r.get(e.path + of + sep + "limit=1")
			var list struct{ NextCursor string }
			if page.status != 200 || json.Unmarshal(page.body, &list) != nil ||
				list.NextCursor == "" {
				continue
			}
			a := r.call("GET", e.path+"?cursor="+list.NextCursor, "", with(viewer))
			trace(e.id+" after a cursor", string(a.body))
		}
	}
	if own := decode[api.List[api.Execution]](r.call("GET", "/executions", "",
		with(viewer)).is(200)).Items; len(own) != 1 || own[0].AccountID != "acme" {
		t.Errorf("its own: %+v", own)
	}
	if own := decode[api.List[api.DeadLetter]](r.call("GET", "/dead-letters", "",
		with(viewer)).is(200)).Items; len(own) != 1 {
		t.Errorf("its own dead letters: %+v", own)
	}
	if own := decode[api.List[api.WorkflowRefusal]](r.call("GET", "/refusals", "",
		with(viewer)).is(200)).Items; len(own) != 1 || own[0].WorkflowID != "acme-wf" {
		t.Errorf("its own refusals: %+v", own)
	}

	// A caller for one account receives only events of that account. This also applies when it
	// resumes a stream, which then delivers earlier events as well.
	begin := r.open("", with(viewer))
	again := r.open("?accountId=globex", with(viewer))
	r.records(store.Batch{NewRecords: []store.Record{
		record(id(10), func(rec *store.Record) {
			rec.AccountID, rec.WorkflowID = "globex", "globex-wf"
		}),
		record(id(11), func(rec *store.Record) { rec.AcceptedAt = epoch.Add(time.Minute) }),
	}})
	if got := begin.next(); got.ExecutionID != id(11) {
		t.Errorf("an event of %s", got.AccountID)
	}
	resumed := r.open("", with(viewer), func(q *http.Request) {
		q.Header.Set("Last-Event-ID", fmt.Sprint(time.Now().Add(-time.Minute).UnixMicro()))
	})
	for block := resumed.block(); ; block = resumed.block() {
		trace("a resumed stream", block)
		if strings.Contains(block, id(11)) {
			break
		}
	}
	again.close()

	// A bulk call of a caller for one account changes only objects of that account, even if its
	// selection includes others.
	for _, c := range []struct{ path, body, want string }{
		{
			"/dead-letters/requeue", `{"ids":["` + executionOf("globex") + `","message-1"]}`,
			`{"requeued":0}`,
		},
		{"/dead-letters/requeue", `{"accountId":"globex"}`, `{"requeued":0}`},
		{"/dead-letters/requeue", `{"workflowId":"globex-wf"}`, `{"requeued":0}`},
		{
			"/dead-letters/dismiss", `{"ids":["` + executionOf("globex") + `","message-1"]}`,
			`{"dismissed":0}`,
		},
		{"/dead-letters/dismiss", `{"workflowId":"globex-wf"}`, `{"dismissed":0}`},
		{"/dead-letters/dismiss", `{}`, `{"dismissed":1}`},
	} {
		if a := r.call("POST", c.path, c.body,
			with(editor)).is(200); strings.TrimSpace(string(a.body)) != c.want {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, a.body, c.want)
		}
	}
	if left := decode[api.List[api.DeadLetter]](r.get("/dead-letters").is(200)).Items; len(left) !=
		1 || left[0].WorkflowID != "globex-wf" {
		t.Errorf("left: %+v", left)
	}
	queues := decode[api.List[api.Queue]](r.call("GET", "/queues", "", with(viewer)).is(200)).Items
	if len(queues) != 1 || !queues[0].Shared || queues[0].Waiting != 0 ||
		!queues[0].OldestAcceptedAt.IsZero() {
		t.Errorf("a queue that it shares: %+v", queues)
	}
	if queues := decode[api.List[api.Queue]](r.get("/queues").is(200)).Items; len(queues) != 1 ||
		queues[0].Shared || queues[0].Waiting == 0 {
		t.Errorf("the same queue for an admin: %+v", queues)
	}

	// An editor can neither take a workflow from another account nor give one to it.
	r.call("PUT", "/workflows/globex-wf",
		`{"accountId":"acme","name":"n","triggers":[{"nodeId":"node"}]}`,
		with(editor)).refused(404, api.CodeNotFound)
	r.call("PUT", "/workflows/acme-wf",
		`{"accountId":"globex","name":"n","triggers":[{"nodeId":"node"}]}`,
		with(editor)).refused(422, api.CodeInvalid)
	r.call("PUT", "/workflows/new",
		`{"accountId":"globex","name":"n","triggers":[{"nodeId":"node"}]}`,
		with(editor)).refused(422, api.CodeInvalid)
	// After a workflow has moved to another account, the records of its old executions stay in the
	// first account. An editor of the first account cannot run these executions again, because that
	// would start executions in the other account.
	r.put("/workflows/acme-wf",
		`{"accountId":"globex","name":"globex took it","triggers":[{"nodeId":"node"}]}`).is(200)
	r.call("GET", "/workflows/acme-wf", "", with(viewer)).refused(404, api.CodeNotFound)
	for _, again := range []string{"/rerun", "/requeue", "/replay"} {
		trace(again,
			r.call("POST", "/executions/"+executionOf("acme")+again, "", with(editor)).refused(404,
				api.CodeNotFound).Detail)
	}
}

// Viewers see no tokens, and no URLs that contain one.
func TestViewersSeeNoTokens(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.twoAccounts()
	for _, account := range []string{"", "acme"} {
		viewer, editor := r.key("viewer", account).Secret, r.key("editor", account).Secret
		for _, e := range r.endpoints() {
			if e.method == http.MethodGet && e.id != "stream-executions" {
				if a := r.call("GET", e.at(operations[e.id].about, "acme", ""), "",
					with(viewer)); strings.Contains(string(a.body), "hst_") &&
					e.id != "get-openapi" {
					t.Errorf("%s shows a token to a viewer: %s", e.id, a.body)
				}
			}
		}
		hidden := decode[api.Trigger](r.call("GET", "/workflows/acme-wf/triggers/node", "",
			with(viewer)).is(200))
		if len(hidden.Tokens) != 1 || hidden.Tokens[0].CreatedAt.IsZero() || hidden.URL != "" ||
			hidden.Token != "" {
			t.Errorf("a viewer sees %+v", hidden)
		}
		if shown := decode[api.Trigger](r.call("GET", "/workflows/acme-wf/triggers/node", "",
			with(editor)).is(200)); !strings.HasPrefix(shown.Token, "hst_") {
			t.Errorf("an editor sees %+v", shown)
		}
	}
}

// The holder of an API key can choose some strings, such as idempotency keys. None of them gives
// access to another account, and a string that merely resembles an API key is not accepted as one.
func TestScopesOfChosenTexts(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.twoAccounts()
	acme, globex := r.key("editor", "acme").Secret, r.key("editor", "globex").Secret
	foreign, own := "/executions/"+executionOf("globex")+"/replay",
		"/executions/"+executionOf("acme")+"/replay"
	r.call("POST", foreign, "", with(globex), withKey("k"))
	for _, key := range []string{"k", "all", executionOf("globex")} {
		r.call("POST", foreign, "", with(acme), withKey(key)).refused(404, api.CodeNotFound)
	}
	if a := r.call("POST", own, "", with(acme), withKey("k")); strings.Contains(string(a.body),
		"globex") {
		t.Errorf("%s", a.body)
	}
	for _, position := range []string{"-1", "0", "x", "9223372036854775808", "1;2"} {
		r.call("GET", "/executions/stream", "", with(acme), func(q *http.Request) {
			q.Header.Set("Last-Event-ID", position)
		}).refused(422, api.CodeInvalid)
	}
	// Only the complete key is accepted. Its ID, its hash, the key in a different case, and a
	// longer or shorter text are refused.
	made := r.key("viewer", "acme")
	hash := sha256.Sum256([]byte(made.Secret))
	for what, forged := range map[string]string{
		"its ID":                  made.ID,
		"its hash":                hex.EncodeToString(hash[:]),
		"the prefix and its hash": operate.APIKeyPrefix + hex.EncodeToString(hash[:]),
		"upper case":              strings.ToUpper(made.Secret),
		"one less":                made.Secret[:len(made.Secret)-1],
		"one more":                made.Secret + "A",
		"without its prefix":      made.Secret[len(operate.APIKeyPrefix):],
		"twice":                   made.Secret + " " + made.Secret,
		"two":                     made.Secret + "," + adminToken,
		"the prefix alone":        operate.APIKeyPrefix,
	} {
		if a := r.call("GET", "/whoami", "", with(forged)); a.status != 401 {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
}
