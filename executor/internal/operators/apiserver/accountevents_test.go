package apiserver_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
)

// An operator can set, show and remove the workflow that an account's operator events start. These
// calls change nothing else about the account.
func TestOperatorEvents(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.CreateWorkflow(t, "wf", "pro", true)
	r.CreateWorkflow(t, "other", "free", true)
	const account, path = "/accounts/on-pro", "/accounts/on-pro/events"
	r.get(path).refused(404, api.CodeNotFound)
	r.delete(path).refused(404, api.CodeNotFound)
	r.put("/accounts/nobody/events", `{"workflowId":"wf"}`).refused(404, api.CodeNotFound)

	first := decode[api.Events](r.put(
		path,
		`{"workflowId":"wf","kinds":["storage.low","execution.failed","storage.low"],"silentAfterSeconds":60}`,
	).is(201))
	if first.WorkflowID != "wf" ||
		!slices.Equal(first.Kinds, []string{"execution.failed", "storage.low"}) ||
		first.SilentAfterSeconds != 60 ||
		time.Since(first.Since) > time.Minute || first.Conditions == nil {
		t.Errorf("%+v", first)
	}
	before := r.get(account).is(200)
	if events := decode[api.Account](before).Events; events == nil || events.WorkflowID != "wf" {
		t.Errorf("the account has %+v", events)
	}
	for body, field := range map[string]string{
		// This workflow belongs to another account.
		`{"workflowId":"other"}`:                                       "workflowId",
		`{"workflowId":"gone"}`:                                        "workflowId",
		`{"workflowId":"wf","kinds":["storage.low","all"]}`:            "kinds[1]",
		`{"workflowId":"wf","silentAfterSeconds":9}`:                   "silentAfterSeconds",
		`{"workflowId":"wf","silentAfterSeconds":-1}`:                  "silentAfterSeconds",
		`{"workflowId":"wf","silentAfterSeconds":9223372036854775807}`: "silentAfterSeconds",
	} {
		problem := r.put(path, body).refused(422, api.CodeInvalid)
		if len(problem.Errors) != 1 || problem.Errors[0].Field != field {
			t.Errorf("%s: %+v", body, problem.Errors)
		}
	}

	// Changing the account preserves its operator event settings. Changing these settings changes
	// the version that If-Match refers to.
	r.put(account, `{"name":"New name","plan":"pro"}`).is(200)
	if got := decode[api.Events](r.get(path).is(200)); got.SilentAfterSeconds != 60 {
		t.Errorf("after a change of the account: %+v", got)
	}
	second := decode[api.Events](r.put(path, `{"workflowId":"wf"}`).is(200))
	if second.Kinds != nil || second.SilentAfterSeconds != 0 || !second.Since.Equal(first.Since) {
		t.Errorf("%+v", second)
	}
	r.call(http.MethodDelete, path, "", func(request *http.Request) {
		request.Header.Set("If-Match", before.header.Get("ETag"))
	}).refused(412, api.CodeChangedSince)

	now := time.Now().UTC().Truncate(time.Microsecond)
	r.check(r.store.ChangeOngoingConditions(t.Context(), []store.OngoingConditionChange{
		{
			OngoingCondition: store.OngoingCondition{
				AccountID: "on-pro",
				Kind:      registry.EventQueueUnattended,
				Subject:   "default",
				Since:     now,
			},
		},
		{
			OngoingCondition: store.OngoingCondition{
				AccountID: "on-pro",
				Kind:      registry.EventSenderSilent,
				Subject:   "wf/node",
				Since:     now,
			},
		},
		{
			OngoingCondition: store.OngoingCondition{
				AccountID: "on-free",
				Kind:      registry.EventStorageLow,
				Since:     now,
			},
		},
	}))
	want := []api.EventCondition{
		{Kind: registry.EventQueueUnattended, Since: now, Queue: "default"}, {
			Kind:       registry.EventSenderSilent,
			Since:      now,
			WorkflowID: "wf",
			NodeID:     "node",
		},
	}
	if got := decode[api.Events](r.get(path).is(200)).Conditions; !slices.Equal(got, want) {
		t.Errorf("conditions: %+v", got)
	}
	r.delete(path).is(204)
	r.get(path).refused(404, api.CodeNotFound)
	if events := decode[api.Account](r.get(account).is(200)).Events; events != nil {
		t.Errorf("the account has %+v", events)
	}
}
