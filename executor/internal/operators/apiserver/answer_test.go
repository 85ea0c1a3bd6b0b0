package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

// A node's answer settings say whether and how long its webhook responses wait for the execution.
// They are set by a PUT of the workflow, and returned with the node and with the workflow. If they
// are invalid, the response names the field. A PUT that omits them removes them.
func TestAnswer(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "wf", "free", true)
	const at, node = "/workflows/wf", "/workflows/wf/triggers/node"
	body := func(answer string) string {
		return `{"accountId":"on-free","name":"wf","triggers":[{"nodeId":"node","name":""` +
			answer + `}]}`
	}
	shown := func() api.Answer {
		t.Helper()
		a := decode[api.Trigger](r.get(node).is(200)).Answer
		w := decode[api.Workflow](r.get(at).is(200)).Triggers[0].Answer
		if (a == nil) != (w == nil) || a != nil && *a != *w {
			t.Errorf("the node has %+v, the workflow %+v", a, w)
		}
		if a == nil {
			return api.Answer{}
		}
		return *a
	}
	expect := func(what string, want api.Answer) {
		t.Helper()
		if got := shown(); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	expect("a new node", api.Answer{})
	put := decode[api.Workflow](r.put(at, body(`,"answer":{"waitSeconds":5}`)).is(200))
	if !put.Active {
		t.Error("the workflow is no longer active")
	}
	expect("set", api.Answer{WaitSeconds: 5})
	for _, bad := range []string{
		`{"waitSeconds":0}`, `{"waitSeconds":26}`, `{"waitSeconds":-1}`, `{"waitSeconds":1.5}`,
		`{"raw":true}`, `{"waitSeconds":5,"other":1}`, `5`,
	} {
		r.put(at, body(`,"answer":`+bad)).refused(422, api.CodeInvalid)
		r.call(http.MethodPatch, node, `{"answer":`+bad+`}`).refused(422, api.CodeInvalid)
	}
	expect("refused", api.Answer{WaitSeconds: 5})

	r.call(http.MethodPatch, node, `{"answer":{"waitSeconds":25,"raw":true}}`).is(200)
	expect("patched", api.Answer{WaitSeconds: 25, Raw: true})
	r.call(http.MethodPatch, node, `{"answer":{"waitSeconds":10}}`).is(200)
	expect("a patch replaces it as a whole", api.Answer{WaitSeconds: 10})
	r.call(http.MethodPatch, node, `{"name":"new"}`).is(200)
	r.call(http.MethodPatch, at, `{"name":"new"}`).is(200)
	expect("patches that do not name it", api.Answer{WaitSeconds: 10})
	r.call(http.MethodPatch, node, `{"answer":null}`).is(200)
	expect("null takes it away", api.Answer{})
	r.put(at, body(`,"answer":{"waitSeconds":5}`)).is(200)
	r.put(at, body("")).is(200)
	expect("a PUT that does not name it", api.Answer{})
}
