package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/hookstart/hookstart/executor/api"
)

func ifMatch(tag string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("If-Match", tag) }
}

// With If-Match, a PUT replaces the version that its sender has read, and no other; repeated, it succeeds.
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
	put("first", `"5f5e100"`).refused(412, api.CodeChangedSince) // there is none yet
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
		return r.call(http.MethodPut, path, body(name), func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
	}
	create("/workflows/wf", "other", "*").refused(412, api.CodeChangedSince)
	create("/workflows/new", "other", "*").is(201)
	create("/workflows/new", "other", "*").is(200) // repeated
	r.wantInvalid(create("/workflows/newer", "other", first), "If-None-Match", "")
	for _, bad := range []string{"*", "5f5e100", `"x"`, `W/"5f5e100"`, `"1", "2"`, `"-1"`} {
		r.wantInvalid(put("fifth", bad), "If-Match", "")
	}
	if w := decode[api.Workflow](r.get("/workflows/wf").is(200)); w.Name != "fourth" || !w.Active {
		t.Errorf("%+v", w)
	}
}
