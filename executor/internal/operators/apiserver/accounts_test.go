package apiserver_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	r := start(t)
	want := `{"items":[` +
		`{"id":"none","webhookTriggers":false,"maxActiveWebhookWorkflows":0,"rateLimit":{"requests":1,"windowSeconds":60},"bytesPerDay":1000000000},` +
		`{"id":"free","webhookTriggers":true,"maxActiveWebhookWorkflows":1,"rateLimit":{"requests":60,"windowSeconds":60},"bytesPerDay":1000000000},` +
		`{"id":"pro","webhookTriggers":true,"maxActiveWebhookWorkflows":null,"rateLimit":{"requests":600,"windowSeconds":60},"bytesPerDay":10000000000},` +
		`{"id":"ultra","webhookTriggers":true,"maxActiveWebhookWorkflows":null,"rateLimit":{"requests":6000,"windowSeconds":60},"bytesPerDay":100000000000}` +
		`],"nextCursor":""}`
	if got := string(r.get("/plans").is(200).body); got != want {
		t.Errorf("plans\n got %s\nwant %s", got, want)
	}
	r.wantPages("/plans?limit=1", []string{"none", "free", "pro", "ultra"}, 1, planID)
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	r := start(t)
	created := decode[api.Account](r.put("/accounts/acme",
		`{"name":"Acme <&> \u00e9","plan":"free"}`).is(201))
	if created.ID != "acme" || created.Name != "Acme <&> é" || created.Plan != "free" ||
		created.CreatedAt.IsZero() {
		t.Errorf("created %+v", created)
	}
	again := r.put("/accounts/acme", `{"name":"Acme <&> é","plan":"free"}`).is(200)
	if decode[api.Account](again) != created || !strings.Contains(string(again.body), "<&>") {
		t.Errorf("put again: %s", again.body)
	}
	changed := decode[api.Account](r.put("/accounts/acme", `{"name":"Acme","plan":"pro"}`).is(200))
	if changed.Plan != "pro" || !changed.CreatedAt.Equal(created.CreatedAt) {
		t.Errorf("changed %+v", changed)
	}
	if got := decode[api.Account](r.get("/accounts/acme").is(200)); got != changed {
		t.Errorf("got %+v", got)
	}
	for _, unknown := range []string{
		"other", "a%20b", "%F0%9F%98%80", strings.Repeat("x", 65), "a%2Fb", "a%2fevents",
	} {
		r.get("/accounts/"+unknown).refused(404, api.CodeNotFound)
	}
}

func TestAccountsAreListed(t *testing.T) {
	t.Parallel()
	r := start(t)
	if got := string(r.get("/accounts").is(200).body); got != `{"items":[],"nextCursor":""}` {
		t.Errorf("no accounts: %s", got)
	}
	var ids []string
	for i := range 7 {
		ids = append(ids, fmt.Sprintf("account-%d", i))
		r.account(ids[i], "none")
	}
	for _, limit := range []int{1, 3, 6, 7, 200} {
		r.wantPages(fmt.Sprintf("/accounts?limit=%d", limit), ids, limit, accountID)
	}
	r.wantPages("/accounts", ids, 50, accountID)
}

func TestAccountsThatAreInvalid(t *testing.T) {
	t.Parallel()
	r := start(t)
	const valid = `{"name":"n","plan":"free"}`
	for _, c := range []struct{ path, body, field, problem string }{
		{"/accounts/a%20b", valid, "id", "must be 1 to 64"},
		{"/accounts/" + strings.Repeat("x", 65), valid, "id", "must be 1 to 64"},
		{"/accounts/a", ``, "body", "required"},
		{"/accounts/a", `{"name":`, "body", "unexpected end"},
		{"/accounts/a", `hello`, "body", "invalid character"},
		{"/accounts/a", valid + "x", "body", "after top-level value"},
		{"/accounts/a", "{\"name\":\"caf\xe9\",\"plan\":\"free\"}", "body", "UTF-8"},
		{"/accounts/a", `null`, "body", "object"},
		{"/accounts/a", `[]`, "body", "object"},
		{"/accounts/a", `{"name":"n"}`, "plan", "there is no default plan"},
		{"/accounts/a", `{"plan":"free"}`, "name", "required"},
		{"/accounts/a", `{"name":null,"plan":"free"}`, "name", "string"},
		{"/accounts/a", `{"name":7,"plan":"free"}`, "name", "string"},
		{"/accounts/a", `{"name":"n","plan":"gold"}`, "plan", `no plan "gold"`},
		{"/accounts/a", `{"name":"n","plan":"free","paln":1}`, "paln", "unexpected"},
		{"/accounts/a", `{"name":"` + strings.Repeat("é", 201) + `","plan":"free"}`, "name", "200"},
	} {
		r.wantInvalid(r.put(c.path, c.body), c.field, c.problem)
	}
	r.put("/accounts/a", `{"name":"`+strings.Repeat("é", 200)+`","plan":"free"}`).is(201)
	// All problems are reported, not only the first.
	p := r.put("/accounts/a", `{"name":7,"plan":8}`).refused(422, api.CodeInvalid)
	if len(p.Errors) != 2 {
		t.Errorf("errors %+v", p.Errors)
	}
}

func TestPagesThatAreInvalid(t *testing.T) {
	t.Parallel()
	r := start(t)
	for i := range 3 {
		r.account(fmt.Sprint("a", i), "none")
	}
	foreign := decode[api.List[api.Account]](r.get("/accounts?limit=1").is(200)).NextCursor
	for _, list := range []string{"/plans", "/accounts", "/workflows", "/executions", "/senders"} {
		for _, limit := range []string{"0", "-1", "201", "x", "1.5", "99999999999999999999"} {
			r.wantInvalid(r.get(list+"?limit="+limit), "limit", "")
		}
		for _, cursor := range []string{
			"x", "!", "%00", "YQ", "YWNjb3VudHM6", foreign + "=", url.QueryEscape("é"),
		} {
			r.wantInvalid(r.get(list+"?cursor="+cursor), "cursor", "nextCursor")
		}
		if list != "/accounts" {
			r.wantInvalid(r.get(list+"?cursor="+foreign), "cursor", "nextCursor")
		}
		r.get(list + "?limit=200").is(200)
		r.get(list + "?limit=1").is(200)
	}
}

// wantInvalid checks that the response reports the field as invalid, with a description that
// contains problem.
func (r *rig) wantInvalid(a answer, field, problem string) {
	r.t.Helper()
	a.t = r.t
	p := a.refused(422, api.CodeInvalid)
	if !slices.ContainsFunc(p.Errors, func(e api.FieldError) bool {
		return e.Field == field && strings.Contains(e.Problem, problem) && e.Problem != ""
	}) {
		r.t.Errorf("%s: no error %q about %q\n%s", a.call, problem, field, a.body)
	}
	if len(p.Errors) > 0 && !strings.Contains(p.Detail, p.Errors[0].Field) {
		r.t.Errorf("%s: detail %q", a.call, p.Detail)
	}
}

// wantPages reads the list at path page by page. It checks that all items together are exactly
// want, in order, and that no page has more than limit items. page requests one page, and returns
// its items and the cursor of the next page.
func (r *rig) wantPages(
	path string, want []string, limit int, page func(*rig, string) ([]string, string),
) {
	r.t.Helper()
	var got []string
	next := ""
	for range len(want) + 2 {
		at := path
		if next != "" {
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			at += separator + "cursor=" + next
		}
		var items []string
		items, next = page(r, at)
		if len(items) > limit {
			r.t.Errorf("%s: %d items", at, len(items))
		}
		got = append(got, items...)
		if next == "" {
			break
		}
	}
	if !slices.Equal(got, want) || next != "" {
		r.t.Errorf("%s: %q, want %q", path, got, want)
	}
}

func pageOf[T any](id func(T) string) func(*rig, string) ([]string, string) {
	return func(r *rig, path string) ([]string, string) {
		r.t.Helper()
		list := decode[api.List[T]](r.get(path).is(200))
		ids := make([]string, len(list.Items))
		for i, item := range list.Items {
			ids[i] = id(item)
		}
		return ids, list.NextCursor
	}
}

var (
	planID       = pageOf(func(p api.Plan) string { return p.ID })
	accountID    = pageOf(func(a api.Account) string { return a.ID })
	workflowID   = pageOf(func(w api.Workflow) string { return w.ID })
	executionIDs = pageOf(func(e api.Execution) string { return e.ExecutionID })
)

func TestDeleteAccount(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.delete("/accounts/acme").refused(404, api.CodeNotFound)
	r.account("acme", "free")
	r.account("other", "free")
	r.workflow("wf", "acme", "node")
	r.delete("/accounts/acme").refused(409, api.CodeAccountNotEmpty)
	r.workflow("wf", "other", "node") // the workflow moves
	key := decode[api.NewKey](r.post("/keys",
		`{"name":"k","role":"viewer","accountId":"acme"}`).is(201))
	r.delete("/accounts/acme").refused(409, api.CodeAccountNotEmpty)
	r.delete("/keys/" + key.ID).is(204)
	r.delete("/accounts/acme").is(204)
	r.get("/accounts/acme").refused(404, api.CodeNotFound)
	r.delete("/accounts/acme").refused(404, api.CodeNotFound)
	r.wantInvalid(r.put("/workflows/new",
		`{"accountId":"acme","name":"n","triggers":[{"nodeId":"node"}]}`), "accountId", "")
	r.account("acme", "free")
	r.get("/accounts/acme").is(200)
}

// A workflow is created while its account is being deleted. Only one of the two calls takes effect
// in the end, so the workflow never exists without its account.
func TestDeleteAccountDuringACreation(t *testing.T) {
	t.Parallel()
	r := start(t)
	for n := range 12 {
		account, workflow := fmt.Sprint("a", n), fmt.Sprint("wf", n)
		r.account(account, "free")
		var both sync.WaitGroup
		both.Go(func() { r.delete("/accounts/" + account) })
		both.Go(func() {
			r.put("/workflows/"+workflow,
				`{"accountId":"`+account+`","name":"n","triggers":[{"nodeId":"node"}]}`)
		})
		both.Wait()
		created, exists := r.get("/workflows/"+workflow).status == 200,
			r.get("/accounts/"+account).status == 200
		if created && !exists {
			t.Errorf("%s is there, and its account is not", workflow)
		}
	}
}

// A PUT without a plan leaves the account's plan unchanged.
func TestAnAccountKeepsItsPlan(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.put("/accounts/a", `{"name":"n","plan":"pro"}`).is(201)
	if a := r.put("/accounts/a", `{"name":"other"}`).is(200); !strings.Contains(string(a.body),
		`"plan":"pro"`) {
		t.Errorf("%s", a.body)
	}
}
