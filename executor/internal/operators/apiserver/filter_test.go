package apiserver_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

// A node's filter is set by a PUT of the workflow, and returned with the node. If the filter is
// invalid, the response names the field. A PUT that omits the filter removes it.
func TestFilter(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "wf", "free", true)
	const at, node = "/workflows/wf", "/workflows/wf/triggers/node"
	body := func(filter string) string {
		return fmt.Sprintf(
			`{"accountId":"on-free","name":"wf","triggers":[{"nodeId":"node","name":""%s}]}`,
			filter,
		)
	}
	if trigger := decode[api.Trigger](r.get(node).is(200)); trigger.Filter != nil ||
		trigger.Filtered != nil {
		t.Errorf("without a filter: %s, %+v", trigger.Filter, trigger.Filtered)
	}
	const filter = `{"query:b":"1","ptr:/action":["opened"]}`
	put := decode[api.Workflow](r.put(at,
		body(`,"filter": {"query:b": "1", "ptr:/action": ["opened"]}`)).is(200))
	if got := string(put.Triggers[0].Filter); got != filter || !put.Active {
		t.Errorf("the workflow has %s", got)
	}
	trigger := decode[api.Trigger](r.get(node).is(200))
	if string(trigger.Filter) != filter || trigger.Filtered == nil || trigger.Filtered.Count != 0 ||
		trigger.Filtered.Last == nil {
		t.Errorf("%s, %+v", trigger.Filter, trigger.Filtered)
	}

	when := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.check(r.store.AddFilteredRequests(t.Context(), "report", when, []store.FilteredSummary{{
		WorkflowID: "wf",
		NodeID:     "node",
		Count:      3,
		Last: []store.FilteredRequest{
			{At: when, DeliveryID: "d", Place: "query:b"}, {
				At:    when.Add(-time.Second),
				Place: "ptr:/action",
			},
		},
	}}))
	filtered := decode[api.Trigger](r.get(node).is(200)).Filtered
	if filtered == nil || filtered.Count != 3 || len(filtered.Last) != 2 ||
		filtered.Last[0] != (api.FilteredRequest{At: when, DeliveryID: "d", Place: "query:b"}) ||
		filtered.Last[1].DeliveryID != "" {
		t.Errorf("%+v", filtered)
	}

	for _, bad := range []string{
		`{"ptr:/a":{"$eq":1}}`, `{"ptr:/a":[]}`, `{"nowhere":1}`, `[]`, `"text"`,
		`{"header:Authorization":"Bearer x"}`,
	} {
		problem := r.put(at, body(`,"filter":`+bad)).refused(422, api.CodeInvalid)
		if len(problem.Errors) != 1 || problem.Errors[0].Field != "triggers[0].filter" {
			t.Errorf("%s: %+v", bad, problem)
		}
	}
	if got := string(decode[api.Trigger](r.get(node).is(200)).Filter); got != filter {
		t.Errorf("a refused filter changed it to %s", got)
	}
	const other = `{"ptr:/x":{"$exists":true}}`
	patched := decode[api.Trigger](r.call(http.MethodPatch, node, `{"filter":`+other+`}`).is(200))
	if string(patched.Filter) != other {
		t.Errorf("a patch replaces it as a whole: %s", patched.Filter)
	}
	if kept := decode[api.Workflow](r.call(http.MethodPatch, at,
		`{"name":"new"}`).is(200)); string(kept.Triggers[0].Filter) != other {
		t.Errorf("a patch of the workflow that does not name it: %s", kept.Triggers[0].Filter)
	}
	if kept := decode[api.Trigger](r.call(http.MethodPatch, node,
		`{"name":"new"}`).is(200)); string(kept.Filter) != other {
		t.Errorf("a patch that does not name it: %s", kept.Filter)
	}
	r.call(http.MethodPatch, node, `{"filter":{"ptr:/a":[]}}`).refused(422, api.CodeInvalid)
	if gone := decode[api.Trigger](r.call(http.MethodPatch, node,
		`{"filter":null}`).is(200)); gone.Filter != nil {
		t.Errorf("null takes it away: %s", gone.Filter)
	}
	for _, none := range []string{"", `,"filter":null`} {
		r.put(at, body(`,"filter":`+filter)).is(200)
		r.put(at, body(none)).is(200)
		if trigger := decode[api.Trigger](r.get(node).is(200)); trigger.Filter != nil ||
			trigger.Filtered == nil {
			t.Errorf("taken away by %q: %s, %+v", none, trigger.Filter, trigger.Filtered)
		}
	}
}
