package registry_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// An ingress that starts hears the others, and is asked for its metrics, while it still
// loads the registry.
func TestNothingIsFoundUntilLoaded(t *testing.T) {
	snapshot := registry.NewSnapshot(nil)
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
	plans, err := edit.ParsePlans(edit.DefaultPlans)
	if err != nil {
		t.Fatal(err)
	}
	for i := range workflows {
		id := strconv.Itoa(i)
		snapshot.Apply(registry.Change{Account: &registry.Account{ID: "a" + id, Plan: "pro"}})
		snapshot.Apply(registry.Change{Workflow: &registry.Workflow{ID: "wf-" + id, AccountID: "a" + id, Active: true, Transition: 1}})
	}
	snapshot.Apply(registry.Change{Plans: plans})
	if _, found := snapshot.Lookup(last); found || snapshot.Len() != 0 {
		t.Error("something is found before everything is")
	}
	snapshot.Loaded()
	readers.Wait()
}

// While the plan's one active workflow is switched, deleted and made again, nobody finds that
// it is past the plan's limit.
func TestTheOnlyActiveWorkflowIsNeverPastThePlan(t *testing.T) {
	t.Parallel()
	s := registry.NewSnapshot(nil)
	plans, err := edit.ParsePlans(edit.DefaultPlans)
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(registry.Change{Plans: plans})
	s.Apply(registry.Change{Account: &registry.Account{ID: "account", Plan: "free"}})
	s.Loaded()
	var switching sync.WaitGroup
	switching.Go(func() {
		for n := range int64(50_000) {
			s.Apply(registry.Change{Workflow: &registry.Workflow{ID: "wf", AccountID: "account", Active: true, Transition: n}})
			if n%2 == 0 {
				s.Apply(registry.Change{Workflow: &registry.Workflow{ID: "wf", AccountID: "account", Transition: n}})
			} else {
				s.Apply(registry.Change{DeletedWorkflow: "wf"})
			}
		}
	})
	defer switching.Wait()
	for range 2_000_000 {
		if view, found := s.Lookup("wf"); found && view.Workflow.Active && !view.WithinPlan {
			t.Fatal("it is active and past the plan's limit")
		}
	}
}
