package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry"
)

func (r *rig) patch(path, body string, change ...func(*http.Request)) answer {
	r.t.Helper()
	return r.call(http.MethodPatch, path, body, change...)
}

// A patch may be nested only ten levels deep, which is deeper than any settings. Members that are
// not merged, such as a sample payload, may be nested more deeply.
func TestAPatchIsNotMergedDeeply(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	nested := func(levels int) string {
		return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	}
	const tooDeep = "has objects that are nested deeper than 10 levels"
	const node = "/workflows/wf/triggers/node"
	for _, path := range []string{"/workflows/wf", "/accounts/acme", node} {
		r.wantInvalid(r.patch(path, nested(10)), "a", "unexpected property")
		r.wantInvalid(r.patch(path, nested(11)), "body", tooDeep)
		r.wantInvalid(r.patch(path, nested(9000)), "body", tooDeep)
	}
	sample := nested(9000)
	got := decode[api.Trigger](r.patch(node, `{"samplePayload":`+sample+`}`).is(200))
	if string(got.SamplePayload) != sample {
		t.Errorf("the sample payload has %d bytes, not %d", len(got.SamplePayload), len(sample))
	}
}

// A patch leaves the members that it omits unchanged, removes a member that is null, merges
// objects, and replaces lists.
func TestAPatchChangesWhatItNames(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.account("other", "free")
	r.put("/workflows/wf",
		`{"accountId":"acme","name":"orders","queue":"fast","rateLimit":{"requests":5,"windowSeconds":10},`+
			`"triggers":[{"nodeId":"a","name":"A","samplePayload":{"kept":1}},{"nodeId":"b"}]}`).
		is(201)
	token := r.trigger("wf", "a").Token
	for _, c := range []struct{ patch, want string }{
		{`{}`, "acme orders fast 5/10 a=A b="},
		{`{"name":"more"}`, "acme more fast 5/10 a=A b="},
		{`{"rateLimit":{"requests":7}}`, "acme more fast 7/10 a=A b="},
		{`{"queue":null,"rateLimit":null}`, "acme more default - a=A b="},
		{
			`{"rateLimit":{"requests":1,"windowSeconds":2},"accountId":"other"}`,
			"other more default 1/2 a=A b=",
		},
		{
			`{"triggers":[{"nodeId":"a","name":"first"},{"nodeId":"c"}]}`,
			"other more default 1/2 a=first c=",
		},
	} {
		w := decode[api.Workflow](r.patch("/workflows/wf", c.patch).is(200))
		if got := inShort(w); got != c.want {
			t.Errorf("%s: %s, want %s", c.patch, got, c.want)
		}
	}
	node := r.trigger("wf", "a")
	if node.Token != token || string(node.SamplePayload) != `{"kept":1}` {
		t.Errorf("the node that stays has another token or payload: %+v", node)
	}
	// A sample payload is replaced as a whole, and a null in it is an ordinary value.
	for _, c := range []struct{ patch, name, sample string }{
		{`{"name":"renamed"}`, "renamed", `{"kept":1}`},
		{`{"samplePayload":{"new":null}}`, "renamed", `{"new":null}`},
		{`{"name":null,"samplePayload":[1e400]}`, "", `[1e400]`},
	} {
		got := decode[api.Trigger](r.patch("/workflows/wf/triggers/a", c.patch).is(200))
		if got.Name != c.name || string(got.SamplePayload) != c.sample || got.Token != token {
			t.Errorf("%s: %+v", c.patch, got)
		}
	}
	if w := decode[api.Workflow](r.get("/workflows/wf").is(200)); inShort(w) != "other more "+
		"default 1/2 a= c=" {
		t.Errorf("a patch of a node has changed its workflow: %s", inShort(w))
	}
	a := decode[api.Account](r.patch("/accounts/acme", `{"plan":"pro"}`).is(200))
	b := decode[api.Account](r.patch("/accounts/acme", `{"name":"Acme"}`).is(200))
	if a.Plan != "pro" || b.Plan != "pro" || b.Name != "Acme" {
		t.Errorf("%+v, %+v", a, b)
	}
}

// A patch that sets a node's samplePayload to null deletes the sample payload and keeps the node's
// token. Even if the patch is repeated, the audit log has only one entry for the deletion.
func TestAPatchRemovesASamplePayload(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	const node = "/workflows/wf/triggers/node"
	token := r.trigger("wf", "node").Token
	r.patch(node, `{"samplePayload":{"a":1}}`).is(200)
	r.post(node+"/rerun", "").is(200)
	for range 2 {
		got := decode[api.Trigger](r.patch(node, `{"name":"kept","samplePayload": null }`).is(200))
		if string(got.SamplePayload) != "null" || got.Token != token || got.Name != "kept" {
			t.Errorf("%+v", got)
		}
		r.post(node+"/rerun", "").refused(409, api.CodeSamplePayloadMissing)
	}
	r.patch(node, `{"samplePayload":2}`).is(200)
	actions := strings.Join(r.recordAudit(registry.SecretsBucket, "wf.node"), " ")
	if actions != "sample-payload.set sample-payload.delete sample-payload.set" {
		t.Errorf("the audit has %s", actions)
	}
}

// inShort summarizes the settings of a workflow in one line.
func inShort(w api.Workflow) string {
	limit := "-"
	if w.RateLimit != nil {
		limit = fmt.Sprintf("%d/%d", w.RateLimit.Requests, w.RateLimit.WindowSeconds)
	}
	text := fmt.Sprintf("%s %s %s %s", w.AccountID, w.Name, w.Queue, limit)
	for _, t := range w.Triggers {
		text += " " + t.NodeID + "=" + t.Name
	}
	return text
}

func TestABadPatchChangesNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	before := r.get("/workflows/wf").is(200)
	for _, c := range []struct{ path, patch, field, problem string }{
		{"/workflows/wf", `{"label":"x"}`, "label", "unexpected property"},
		{"/workflows/wf", `{"active":true}`, "active", "unexpected property"},
		{"/workflows/wf", `{"label":null}`, "label", "unexpected property"},
		{"/workflows/wf", `{"Queue":null}`, "Queue", "unexpected property"},
		{
			"/workflows/wf", `{"rateLimit":{"requests":1,"windowSeconds":1,"burst":null}}`,
			"rateLimit.burst", "unexpected property",
		},
		{"/workflows/wf", `{"name":null}`, "name", "is required"},
		{"/workflows/wf", `{"name":7}`, "name", "expected string"},
		{"/workflows/wf", `{"rateLimit":{"requests":1}}`, "rateLimit.windowSeconds", "is required"},
		{"/workflows/wf", `{"triggers":[]}`, "triggers", ""},
		{"/workflows/wf", `{"triggers":[{"nodeId":"a/b"}]}`, "triggers[0].nodeId", "1 to 64"},
		{"/workflows/wf", `{"accountId":"nobody"}`, "accountId", "no account"},
		{"/workflows/wf", `[]`, "body", "JSON object"},
		{"/workflows/wf", `{"name":"a"`, "body", ""},
		{"/workflows/wf", `null`, "body", "JSON object"},
		{"/workflows/wf/triggers/node", `{"unheardOf":{}}`, "unheardOf", "unexpected property"},
		{"/workflows/wf/triggers/node", `{"filterr":null}`, "filterr", "unexpected property"},
		{
			"/workflows/wf/triggers/node", `{"answer":{"waitSeconds":1,"foo":null}}`, "answer.foo",
			"unexpected property",
		},
		{
			"/workflows/wf/triggers/node", `{"name":"` + strings.Repeat("x", 201) + `"}`, "name",
			"200",
		},
		{"/accounts/acme", `{"plan":null}`, "plan", "is required"},
		{"/accounts/acme", `{"plan":"none such"}`, "plan", "no plan"},
		{"/accounts/acme", `{"id":"x"}`, "id", "unexpected property"},
		{"/accounts/acme", `{"id":null}`, "id", "unexpected property"},
	} {
		r.wantInvalid(r.patch(c.path, c.patch), c.field, c.problem)
	}
	if after := r.get("/workflows/wf").is(200); after.header.Get("ETag") !=
		before.header.Get("ETag") {
		t.Error("the workflow was changed")
	}
	for _, path := range []string{
		"/workflows/none", "/workflows/none/triggers/node", "/workflows/wf/triggers/none",
		"/accounts/none",
	} {
		r.patch(path, `{"name":"x"}`).refused(404, api.CodeNotFound)
	}
}

// With If-Match, a PUT changes an account only if nobody has changed the account since the client
// read it. With If-None-Match, a PUT does not replace an existing account.
func TestAnAccountIsChangedAsItWasRead(t *testing.T) {
	t.Parallel()
	r := start(t)
	ifNew := func(r *http.Request) { r.Header.Set("If-None-Match", "*") }
	first := r.call(http.MethodPut, "/accounts/acme", `{"name":"first","plan":"free"}`,
		ifNew).is(201).header.Get("ETag")
	r.call(http.MethodPut, "/accounts/acme", `{"name":"another","plan":"free"}`, ifNew).refused(412,
		api.CodeChangedSince)
	if got := r.get("/accounts/acme").is(200).header.Get("ETag"); got == "" || got != first {
		t.Errorf("read %s, stored %s", got, first)
	}
	second := r.patch("/accounts/acme", `{"plan":"pro"}`, ifMatch(first)).is(200).header.Get("ETag")
	r.patch("/accounts/acme", `{"name":"third"}`, ifMatch(first)).refused(412, api.CodeChangedSince)
	r.call(http.MethodPut, "/accounts/acme", `{"name":"third"}`, ifMatch(first)).refused(412,
		api.CodeChangedSince)
	r.call(http.MethodDelete, "/accounts/acme", "", ifMatch(first)).refused(412,
		api.CodeChangedSince)
	r.wantInvalid(r.patch("/accounts/acme", `{"name":"third"}`, ifMatch("x")), "If-Match", "")
	r.call(http.MethodDelete, "/accounts/acme", "", ifMatch(second)).is(204)
	third := `{"name":"third","plan":"free"}`
	r.call(http.MethodPut, "/accounts/acme", third, ifMatch("*")).refused(412,
		api.CodeChangedSince)
	r.put("/accounts/acme", third).is(201)
	r.patch("/accounts/acme", `{"name":"fourth"}`, ifMatch("*")).is(200)
}

// A patch changes only the members that it contains. The JSON texts of all other members stay the
// same, byte for byte, and the audit log shows no change of them. A sample payload in a patch is
// stored exactly as sent.
func TestAPatchKeepsTextsAsTheyAre(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	const filter, node = "{\"ptr:/a\":\"<\u2028&>\"}", "/workflows/wf/triggers/node"
	r.put("/workflows/wf", `{"accountId":"acme","name":"x","triggers":[{"nodeId":"node","filter":`+
		filter+`}]}`).is(201)
	before := r.get("/workflows/wf").is(200).header.Get("ETag")
	audited := len(r.recordAudit(registry.Bucket, "workflow.wf"))
	r.patch("/workflows/wf", `{}`).is(200)
	r.patch(node, `{}`).is(200)
	if after := r.get("/workflows/wf").is(200).header.Get("ETag"); after != before {
		t.Errorf("patches without members made version %s of %s", after, before)
	}
	if n := len(r.recordAudit(registry.Bucket, "workflow.wf")) - audited; n != 0 {
		t.Errorf("%d entries in the audit for patches without members", n)
	}
	r.patch("/workflows/wf", `{"name":"new"}`).is(200)
	const sample = "{ \"a\" : \"<\u2028&>\" }"
	r.patch(node, `{"name":"node","samplePayload":`+sample+`}`).is(200)
	got := r.trigger("wf", "node")
	if string(got.Filter) != filter {
		t.Errorf("the filter became %s", got.Filter)
	}
	if string(got.SamplePayload) != sample {
		t.Errorf("the sample payload became %s", got.SamplePayload)
	}
}
