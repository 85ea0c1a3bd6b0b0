package apiserver_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/webhook"
)

func TestWorkflows(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	const body = `{"accountId":"acme","name":"Orders","queue":"q1","rateLimit":{"requests":5,"windowSeconds":10},` +
		`"triggers":[{"nodeId":"b","name":"B"},{"nodeId":"a","samplePayload":{"x": [1,  2]}}]}`
	a := r.put("/workflows/orders", body).is(201)
	created := decode[api.Workflow](a)
	if created.ID != "orders" || created.AccountID != "acme" || created.Name != "Orders" ||
		created.Queue != "q1" || created.Active ||
		*created.RateLimit != (api.RateLimit{Requests: 5, WindowSeconds: 10}) ||
		created.CreatedAt.IsZero() || created.UpdatedAt.IsZero() ||
		!reflect.DeepEqual(created.Triggers, []api.WorkflowTrigger{
			{NodeID: "b", Name: "B"}, {NodeID: "a"},
		}) {
		t.Errorf("created %s", a.body)
	}
	if strings.Contains(string(a.body), "activatedAt") {
		t.Errorf("an inactive one says activatedAt: %s", a.body)
	}
	// Repeating the same PUT changes nothing in the workflow, not even updatedAt.
	for range 2 {
		if again := r.put("/workflows/orders", body).is(200); string(again.body) != string(a.body) {
			t.Errorf("put again\n got %s\nwant %s", again.body, a.body)
		}
	}
	if got := r.get("/workflows/orders").is(200); string(got.body) != string(a.body) {
		t.Errorf("get: %s", got.body)
	}

	changed := decode[api.Workflow](r.put("/workflows/orders",
		`{"accountId":"acme","name":"New","triggers":[{"nodeId":"a"}],"rateLimit":null}`).is(200))
	if changed.Name != "New" || changed.Queue != "default" || changed.RateLimit != nil ||
		!changed.CreatedAt.Equal(created.CreatedAt) ||
		!changed.UpdatedAt.After(created.UpdatedAt) || len(changed.Triggers) != 1 {
		t.Errorf("changed %+v", changed)
	}
	if got := r.trigger("orders", "a").SamplePayload; string(got) != `{"x": [1,  2]}` {
		t.Errorf("the sample payload became %s", got)
	}

	r.delete("/workflows/orders").is(204)
	for _, a := range []answer{
		r.get("/workflows/orders"), r.delete("/workflows/orders"),
		r.post("/workflows/orders/activate", ""),
		r.get("/workflows/orders/triggers/a"),
	} {
		p := a.refused(404, api.CodeNotFound)
		if p.Detail != `There is no workflow "orders".` {
			t.Errorf("detail %q", p.Detail)
		}
	}
	// A workflow that is recreated after its deletion is a new workflow.
	back := decode[api.Workflow](r.put("/workflows/orders", body).is(201))
	if back.Active || back.CreatedAt.Equal(created.CreatedAt) {
		t.Errorf("it came back as %+v", back)
	}
}

func TestPutLeavesActiveAsItIs(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "a")
	r.post("/workflows/wf/activate", "").is(200)
	w := decode[api.Workflow](r.put("/workflows/wf",
		`{"accountId":"acme","name":"renamed","triggers":[{"nodeId":"a"}]}`).is(200))
	if !w.Active || w.ActivatedAt.IsZero() {
		t.Errorf("it became %+v", w)
	}
	// If a PUT that would move a workflow to another account is refused, the workflow stays
	// unchanged.
	r.account("other", "free")
	r.wantInvalid(r.put("/workflows/wf",
		`{"accountId":"other","name":"n","triggers":[{"nodeId":"a"}]}`), "accountId", "deactivate")
	r.post("/workflows/wf/deactivate", "").is(200)
	r.put("/workflows/wf", `{"accountId":"other","name":"n","triggers":[{"nodeId":"a"}]}`).is(200)
}

func TestNodesThatStayKeepTheirTokens(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "a", "b")
	a, b := r.trigger("wf", "a").Token, r.trigger("wf", "b").Token
	if a == b || !strings.HasPrefix(a, webhook.TokenPrefix) {
		t.Errorf("tokens %q, %q", a, b)
	}
	r.workflow("wf", "acme", "c", "b")
	if got := r.trigger("wf", "b").Token; got != b {
		t.Errorf("b's token became %q", got)
	}
	p := r.get("/workflows/wf/triggers/a").refused(404, api.CodeNotFound)
	if p.Detail != `There is no trigger node "a" of workflow "wf".` {
		t.Errorf("detail %q", p.Detail)
	}
	r.workflow("wf", "acme", "a", "b", "c")
	if got := r.trigger("wf", "a").Token; got == a {
		t.Error("a node that came back has its old token")
	}
}

func TestWorkflowsAreListed(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("one", "free")
	r.account("two", "free")
	var all, ofTwo []string
	for i := range 6 {
		id, account := fmt.Sprint("wf-", i), "one"
		if i%2 == 1 {
			account = "two"
			ofTwo = append(ofTwo, id)
		}
		all = append(all, id)
		r.workflow(id, account, "n")
	}
	for _, limit := range []int{1, 2, 3, 50} {
		r.wantPages(fmt.Sprintf("/workflows?limit=%d", limit), all, limit, workflowID)
		r.wantPages(fmt.Sprintf("/workflows?accountId=two&limit=%d", limit), ofTwo, limit,
			workflowID)
	}
	r.wantPages("/workflows?accountId=nobody", nil, 50, workflowID)
	r.wantPages("/workflows?accountId=tw", nil, 50, workflowID)
}

func TestWorkflowsThatAreInvalid(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	with := func(members string) string { return `{"accountId":"acme","name":"n",` + members + `}` }
	node := func(n int) string {
		nodes := make([]string, n)
		for i := range nodes {
			nodes[i] = fmt.Sprintf(`{"nodeId":"n%d"}`, i)
		}
		return `"triggers":[` + strings.Join(nodes, ",") + `]`
	}
	for _, c := range []struct{ id, body, field, problem string }{
		{"a%20b", with(node(1)), "id", "must be 1 to 64"},
		{"wf", `{"accountId":"nobody","name":"n",` + node(1) + `}`, "accountId", "no account"},
		{"wf", `{"accountId":"a b","name":"n",` + node(1) + `}`, "accountId", "A-Z"},
		{"wf", `{"name":"n",` + node(1) + `}`, "accountId", "required"},
		{"wf", `{"accountId":"acme",` + node(1) + `}`, "name", "required"},
		{"wf", with(`"active":true,` + node(1)), "active", "unexpected"},
		{"wf", with(`"queue":"a.b",` + node(1)), "queue", "A-Z"},
		{"wf", with(`"triggers":null`), "triggers", "array"},
		{"wf", with(`"triggers":{}`), "triggers", "array"},
		{"wf", with(node(0)), "triggers", "1"},
		{"wf", with(node(101)), "triggers", "100"},
		{"wf", with(`"triggers":[{}]`), "triggers[0].nodeId", "required"},
		{"wf", with(`"triggers":[{"nodeId":""}]`), "triggers[0].nodeId", "A-Z"},
		{"wf", with(`"triggers":[{"nodeId":"a"},{"nodeId":"é"}]`), "triggers[1].nodeId", "A-Z"},
		{"wf", with(`"triggers":[{"nodeId":"a"},{"nodeId":"a"}]`), "triggers[1].nodeId", "twice"},
		{"wf", with(`"triggers":[{"nodeId":"a","title":""}]`), "triggers[0].title", "unexpected"},
		{
			"wf", with(`"triggers":[{"nodeId":"a","samplePayload":` + long(512<<10+1) + `}]`),
			"triggers[0].samplePayload", "at most",
		},
		{
			"wf", with("\"triggers\":[{\"nodeId\":\"a\",\"samplePayload\":\"\xff\"}]"), "body",
			"UTF-8",
		},
		{
			"wf", with(`"rateLimit":{"requests":0,"windowSeconds":60},` + node(1)),
			"rateLimit.requests", "1",
		},
		{
			"wf", with(`"rateLimit":{"requests":1,"windowSeconds":36028797018963968},` + node(1)),
			"rateLimit.windowSeconds", "86400",
		},
		{
			"wf", with(`"rateLimit":{"requests":1.5,"windowSeconds":60},` + node(1)),
			"rateLimit.requests", "integer",
		},
		{
			"wf", with(`"rateLimit":{"requests":1.0,"windowSeconds":60},` + node(1)), "body",
			"rateLimit.requests: write the number 1.0 without a fraction",
		},
		{
			"wf", with(`"rateLimit":{"requests":60,"windowSeconds":1e2},` + node(1)), "body",
			"rateLimit.windowSeconds: write the number 1e2 without a fraction",
		},
		{
			"wf", with(`"rateLimit":{"requests":1E400,"windowSeconds":60},` + node(1)),
			"rateLimit.requests", "1000000",
		},
		{"wf", with(node(1)) + "{}", "body", "after"},
		{
			"wf", with(`"rateLimit":{"requests":1},` + node(1)), "rateLimit.windowSeconds",
			"required",
		},
		{"wf", with(`"rateLimit":7,` + node(1)), "rateLimit", "object"},
	} {
		r.wantInvalid(r.put("/workflows/"+c.id, c.body), c.field, c.problem)
	}
	r.get("/workflows/wf").refused(404, api.CodeNotFound)
	r.put("/workflows/wf", with(node(100))).is(201)
}

func TestNullSampleIsNoSample(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	put := func(sample string) {
		r.put("/workflows/wf",
			`{"accountId":"acme","name":"n","triggers":[{"nodeId":"a"`+sample+`}]}`)
	}
	put(`,"samplePayload":7`)
	put(`,"samplePayload":null`)
	put(``)
	if got := r.trigger("wf", "a").SamplePayload; string(got) != `7` {
		t.Errorf("the sample payload became %s", got)
	}
}

// A sample payload that is part of a PUT of its workflow is stored exactly as sent.
func TestSampleOfAWorkflowIsKeptAsSent(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	for _, sample := range []string{
		`12345678901234567890.10`, `{"a":[1E400,-1e-400,-0, 1.0],"a":"\ud800\/<"}`, `-1E999999`,
	} {
		r.put("/workflows/wf",
			`{"accountId":"acme","name":"n","triggers":[{"nodeId":"a","samplePayload":`+sample+
				`}]}`)
		if got := r.trigger("wf", "a").SamplePayload; string(got) != sample {
			t.Errorf("%s became %s", sample, got)
		}
	}
}

// long returns a JSON string of n bytes.
func long(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

func TestUnknownWorkflows(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, id := range []string{
		"nothing", "a%20b", "a.b", "*", "%3E", "%00", strings.Repeat("x", 65),
		strings.Repeat("x", 4000),
	} {
		at := "/workflows/" + id
		for _, a := range []answer{
			r.get(at), r.delete(at), r.post(at+"/activate", ""), r.post(at+"/deactivate", ""),
			r.get(at + "/triggers/n"),
			r.put(at+"/triggers/n/sample-payload", "{}"), r.post(at+"/triggers/n/rotate-token", ""),
			r.post(at+"/triggers/n/rerun", ""),
		} {
			if p := a.refused(404, api.CodeNotFound); !json.Valid(a.body) || p.Detail == "" {
				t.Errorf("%s: %s", a.call, a.body)
			}
		}
	}
}
