package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

func ifMatch(tag string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("If-Match", tag) }
}

// With If-Match, a PUT replaces a workflow only if the workflow still has the version that the
// client read. Repeating the same PUT with the same If-Match succeeds.
func TestAWorkflowIsReplacedAsItWasRead(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	body := func(name string) string {
		return `{"accountId":"acme","name":"` + name + `","triggers":[{"nodeId":"node"}]}`
	}
	put := func(name, tag string) answer {
		t.Helper()
		return r.call(http.MethodPut, "/workflows/wf", body(name), ifMatch(tag))
	}
	for _, tag := range []string{`"5f5e100"`, "*"} { // no workflow exists yet
		put("first", tag).refused(412, api.CodeChangedSince)
	}
	first := r.put("/workflows/wf", body("first")).is(201).header.Get("ETag")
	if got := r.get("/workflows/wf").is(200).header.Get("ETag"); got == "" || got != first {
		t.Errorf("read %s, stored %s", got, first)
	}
	second := put("second", first).is(200).header.Get("ETag")
	if second == first {
		t.Errorf("%s twice", second)
	}
	put("third", first).refused(412, api.CodeChangedSince)
	if again := put("second", first).is(200).header.Get("ETag"); again != second {
		t.Errorf("repeated: %s, want %s", again, second)
	}
	for _, verb := range []string{"activate", "deactivate"} {
		tag := r.post("/workflows/wf/"+verb, "").is(200).header.Get("ETag")
		put(verb, tag).is(200)
	}
	r.post("/workflows/wf/activate", "").is(200)
	put("fourth", r.get("/workflows/wf").is(200).header.Get("ETag")).is(200)
	put("second", first).refused(412, api.CodeChangedSince)
	create := func(path, name, tag string) answer {
		t.Helper()
		return r.call(http.MethodPut, path, body(name), func(r *http.Request) {
			r.Header.Set("If-None-Match", tag)
		})
	}
	create("/workflows/wf", "other", "*").refused(412, api.CodeChangedSince)
	// If-None-Match is checked before the rest of the request. This request would also move the
	// active workflow to another account, which is not allowed, but the error is still that the
	// workflow exists.
	r.account("globex", "pro")
	elsewhere := strings.Replace(body("other"), `"acme"`, `"globex"`, 1)
	r.call(http.MethodPut, "/workflows/wf", elsewhere, func(r *http.Request) {
		r.Header.Set("If-None-Match", "*")
	}).refused(412, api.CodeChangedSince)
	create("/workflows/new", "other", "*").is(201)
	create("/workflows/new", "other", "*").is(200) // the same call can be repeated
	r.wantInvalid(create("/workflows/newer", "other", first), "If-None-Match", "")
	for _, bad := range []string{"5f5e100", `"*"`, `"x"`, `W/"5f5e100"`, `"1", "2"`, `"-1"`} {
		r.wantInvalid(put("fifth", bad), "If-Match", "")
	}
	put("sixth", "*").is(200)
	if w := decode[api.Workflow](r.get("/workflows/wf").is(200)); w.Name != "sixth" || !w.Active {
		t.Errorf("%+v", w)
	}
}

// Every call that changes a workflow's version supports If-Match. The call fails if If-Match names
// an older version, and succeeds if it names the current one.
func TestEveryChangeOfAWorkflowTakesIfMatch(t *testing.T) {
	t.Parallel()
	r := sealed(t)
	tag := func() string { t.Helper(); return r.get("/workflows/acme-wf").header.Get("ETag") }
	changing := 0
	for _, e := range r.endpoints() {
		if e.method == http.MethodGet || !strings.HasPrefix(e.path, "/api/v1/workflows/{id}") {
			continue
		}
		r.account("acme", "pro")
		r.delete("/workflows/acme-wf")
		r.put("/workflows/acme-wf",
			`{"accountId":"acme","name":"orders","triggers":[{"nodeId":"node","samplePayload":1}]}`).is(201)
		stale := tag()
		sender := decode[api.Sender](r.put("/workflows/acme-wf/triggers/node/sender",
			`{"preset":"github","secrets":["a-secret-1","a-secret-2"]}`).is(201))
		if e.id == "deactivate-workflow" {
			r.post("/workflows/acme-wf/activate", "").is(200)
		}
		path := strings.NewReplacer("{id}", "acme-wf", "{nodeId}", "node", "{secretId}",
			sender.Secrets[1].ID).Replace(e.path)
		body := strings.ReplaceAll(operations[e.id].body, "ACCOUNT", "acme")
		current := tag()
		refused := r.call(e.method, path, body, ifMatch(stale))
		if tag() != current {
			t.Errorf("%s with the tag of another version: %d, and it is changed", e.id,
				refused.status)
			continue
		}
		done := r.call(e.method, path, body, ifMatch(current))
		if tag() == current && e.id != "put-sample-payload" { // not part of the version
			continue // the call does not change the version
		}
		changing++
		refused.refused(http.StatusPreconditionFailed, api.CodeChangedSince)
		r.wantInvalid(r.call(e.method, path, body, ifMatch("x")), "If-Match", "")
		if done.status/100 != 2 {
			t.Errorf("%s: %d %s", e.id, done.status, done.body)
		}
	}
	if changing != 12 {
		t.Errorf("%d calls change a workflow", changing)
	}
}

// A PUT of a sample payload with the ETag of an older version of the workflow is refused.
func TestASamplePayloadIsPutToTheVersionRead(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	const node = "/workflows/wf/triggers/node"
	stale := r.get("/workflows/wf").header.Get("ETag")
	r.post(node+"/rotate-token", "").is(200)
	current := r.get("/workflows/wf").header.Get("ETag")
	r.call(http.MethodPut, node+"/sample-payload", `{"a":1}`, ifMatch(current)).is(200)
	r.call(http.MethodPut, node+"/sample-payload", `{"a":2}`, ifMatch(stale)).
		refused(http.StatusPreconditionFailed, api.CodeChangedSince)
	if got := decode[api.Trigger](r.get(node).is(200)).SamplePayload; string(got) != `{"a":1}` {
		t.Errorf("%s", got)
	}
}

// If the response to an activation or deactivation is lost, the client can repeat the call with the
// same If-Match. The repeated call succeeds, although the first one may have changed the workflow.
func TestASwitchWithIfMatchCanBeRepeated(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "free")
	r.workflow("wf", "acme", "node")
	for _, verb := range []string{"activate", "deactivate"} {
		tag := r.get("/workflows/wf").header.Get("ETag")
		for range 2 {
			r.call(http.MethodPost, "/workflows/wf/"+verb, "", ifMatch(tag)).is(200)
		}
	}
}
