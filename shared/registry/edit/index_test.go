package edit_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// As soon as RegistryIndex.Workflow returns a workflow as active, OtherActiveWorkflowCount counts
// that workflow. If it were counted later, one workflow more than the plan allows could be
// activated.
func TestWhatIsSeenIsCounted(t *testing.T) {
	t.Parallel()
	d := edit.NewRegistryIndex(nil)
	d.FinishLoad()
	const activations = 20_000
	revision := func(n int) uint64 { return uint64(n) + 1 }
	workflow := func(n int) *registry.Workflow {
		return &registry.Workflow{
			ID:         "first",
			AccountID:  "account",
			Active:     n%2 == 1,
			Transition: int64(n),
		}
	}
	d.Apply(registry.Change{Revision: revision(0), Workflow: workflow(0)})
	next := make(chan int)
	go func() {
		for n := range next {
			d.Apply(registry.Change{Revision: revision(n), Workflow: workflow(n)})
		}
	}()
	defer close(next)
	for n := 1; n < activations; n += 2 {
		next <- n
		for {
			if seen, _ := d.Workflow("first"); seen.Record.Active {
				break
			}
			runtime.Gosched() // lets the other goroutine run even if there is only one processor
		}
		if d.OtherActiveWorkflowCount("account", "second") != 1 {
			t.Fatalf("activation %d is seen and not counted", n)
		}
		next <- n + 1
		for {
			if seen, _ := d.Workflow("first"); !seen.Record.Active {
				break
			}
			runtime.Gosched()
		}
	}
}

// While a workflow is deleted and created again over and over, activating it either succeeds or
// fails with ErrNotFound. It never fails because the plan's limit is exceeded.
func TestAWorkflowThatGoesWhileItIsSwitched(t *testing.T) {
	t.Parallel()
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	r.CreateWorkflow(t, "wf", "free", true)
	have, _ := r.RegistryIndex.Workflow("wf")
	var toggling sync.WaitGroup
	done := make(chan struct{})
	toggling.Go(func() {
		for {
			r.RegistryIndex.Apply(registry.Change{Revision: have.Revision, DeletedWorkflow: "wf"})
			r.RegistryIndex.Apply(registry.Change{Revision: have.Revision, Workflow: have.Record})
			select {
			case <-done:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	defer toggling.Wait()
	defer close(done)
	for n := range 3_000 {
		if _, err := r.Activate(t.Context(), "wf"); err != nil &&
			!errors.Is(err, edit.ErrNotFound) {
			t.Fatalf("call %d: %v", n, err)
		}
	}
}
