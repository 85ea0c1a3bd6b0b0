package registry_test

import (
	"strconv"
	"sync"
	"testing"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// An ingress that starts hears the others, and is asked for its metrics, while it still
// loads the registry.
func TestNothingIsFoundUntilLoaded(t *testing.T) {
	snapshot := registry.NewSnapshot()
	const workflows = 2000
	last := "wf-" + strconv.Itoa(workflows-1)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				view, found := snapshot.Lookup(last)
				if found && (view.Plan == nil || !view.WithinPlan) {
					t.Errorf("found without its account: %+v", view)
				}
				if snapshot.Len() == workflows && found {
					return
				}
			}
		})
	}
	plans, err := registry.ParsePlans(registry.DefaultPlans)
	if err != nil {
		t.Fatal(err)
	}
	for i := range workflows {
		id := strconv.Itoa(i)
		snapshot.Apply(registry.Change{Account: &hookstartv1.Account{Id: "a" + id, Plan: "pro"}})
		snapshot.Apply(registry.Change{Workflow: &hookstartv1.Workflow{Id: "wf-" + id, AccountId: "a" + id, Active: true, Transition: 1}})
	}
	snapshot.Apply(registry.Change{Plans: plans})
	if _, found := snapshot.Lookup(last); found || snapshot.Len() != 0 {
		t.Error("something is found before everything is")
	}
	snapshot.Loaded()
	readers.Wait()
}
