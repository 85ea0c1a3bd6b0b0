package apiserver_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/executor/client/api"
)

func TestActivation(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "none")
	r.workflow("a", "acme", "n")
	r.workflow("b", "acme", "n")
	r.post("/workflows/a/activate", "").refused(403, api.CodeWebhooksNotInPlan)
	r.account("acme", "free")

	first := r.post("/workflows/a/activate", "").is(200)
	w := decode[api.Workflow](first)
	if !w.Active || w.ActivatedAt.IsZero() || !w.UpdatedAt.Equal(w.ActivatedAt) {
		t.Errorf("activated: %s", first.body)
	}
	if again := r.post("/workflows/a/activate",
		"").is(200); string(again.body) != string(first.body) {
		t.Errorf("activated again: %s", again.body)
	}
	r.post("/workflows/b/activate", "").refused(403, api.CodePlanLimitExceeded)
	if decode[api.Workflow](r.get("/workflows/b").is(200)).Active {
		t.Error("a refused activation activates")
	}

	off := r.post("/workflows/a/deactivate", "").is(200)
	if w := decode[api.Workflow](off); w.Active || !w.ActivatedAt.IsZero() {
		t.Errorf("deactivated: %s", off.body)
	}
	if again := r.post("/workflows/a/deactivate",
		"").is(200); string(again.body) != string(off.body) {
		t.Errorf("deactivated again: %s", again.body)
	}
	r.post("/workflows/b/activate", "").is(200)
}

// When the API responds to a change of a workflow or of an account's plan, the executor's index
// already contains this change. The index is the copy of the registry in memory.
func TestDowngradeAndMovingUp(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.account("acme", "pro")
	all := []string{"c", "a", "d", "b"} // in the order in which they are activated
	for _, id := range all {
		r.workflow(id, "acme", "n")
	}
	for _, id := range all {
		r.post("/workflows/"+id+"/activate", "").is(200)
	}
	within := func() (list []string) {
		for _, id := range all {
			view, ok := r.RegistryIndex.Lookup(id)
			if ok && view.Workflow.Active && view.WithinPlan {
				list = append(list, id)
			}
		}
		return list
	}
	want := func(what string, ids ...string) {
		t.Helper()
		if got := within(); !slices.Equal(got, ids) {
			t.Errorf("%s: %q work, want %q", what, got, ids)
		}
		for _, w := range decode[api.List[api.Workflow]](r.get("/workflows").is(200)).Items {
			past := w.Active && !slices.Contains(ids, w.ID)
			if past != (w.PlanRefusal == api.CodePlanLimitExceeded) ||
				!past && w.PlanRefusal != "" {
				t.Errorf("%s: %s says %q", what, w.ID, w.PlanRefusal)
			}
		}
	}
	want("pro", "c", "a", "d", "b")
	r.account("acme", "free")
	want("downgraded", "c")
	// Workflow d is still marked as active, but exceeds the limit of the plan free. A call that
	// activates it again is therefore refused.
	r.post("/workflows/d/activate", "").refused(403, api.CodePlanLimitExceeded)
	r.post("/workflows/c/activate", "").is(200)
	r.post("/workflows/c/deactivate", "").is(200)
	want("the first is deactivated", "a")
	r.delete("/workflows/a").is(204)
	want("the next is deleted", "d")
	r.post("/workflows/c/activate", "").refused(403, api.CodePlanLimitExceeded)
	r.account("acme", "none")
	r.post("/workflows/d/activate", "").refused(403, api.CodeWebhooksNotInPlan)
	if w := decode[api.Workflow](r.get("/workflows/d").is(200)); w.PlanRefusal !=
		api.CodeWebhooksNotInPlan {
		t.Errorf("not in the plan: d says %q", w.PlanRefusal)
	}
	r.account("acme", "ultra")
	want("upgraded", "d", "b")
}

func TestOfTwoRacingActivationsOneWins(t *testing.T) {
	t.Parallel()
	r := start(t)
	const rounds = 50
	for round := range rounds {
		account := fmt.Sprint("account-", round)
		r.account(account, "free")
		ids := []string{fmt.Sprintf("a-%d", round), fmt.Sprintf("b-%d", round)}
		var together sync.WaitGroup
		statuses := make([]int, len(ids))
		for _, id := range ids {
			r.workflow(id, account, "n")
		}
		for i, id := range ids {
			together.Go(func() {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
					r.server.URL+"/api/v1/workflows/"+id+"/activate", nil)
				if err != nil {
					t.Error(err)
					return
				}
				request.Header.Set("Authorization", "Bearer "+adminToken)
				response, err := r.server.Client().Do(request)
				if err != nil {
					t.Error(err)
					return
				}
				_ = response.Body.Close()
				statuses[i] = response.StatusCode
			})
		}
		together.Wait()
		active := 0
		for i, id := range ids {
			if w := decode[api.Workflow](r.get("/workflows/" +
				id)); w.Active != (statuses[i] == 200) {
				t.Errorf("round %d: %d, and active is %v", round, statuses[i], w.Active)
			} else if w.Active {
				active++
			}
		}
		if slices.Sort(statuses); active != 1 || !slices.Equal(statuses, []int{200, 403}) {
			t.Fatalf("round %d: %v", round, statuses)
		}
	}
}
