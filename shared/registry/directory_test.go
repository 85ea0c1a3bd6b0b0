package registry_test

import (
	"testing"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// Whoever sees that a workflow is active finds it counted, too: otherwise a second one
// could be activated past the plan's limit.
func TestWhatIsSeenIsCounted(t *testing.T) {
	t.Parallel()
	d := registry.NewDirectory()
	d.Loaded()
	const activations = 20_000
	revision := func(n int) uint64 { return uint64(n) + 1 }
	workflow := func(n int) *hookstartv1.Workflow {
		return &hookstartv1.Workflow{Id: "first", AccountId: "account", Active: n%2 == 1, Transition: int64(n)}
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
			if seen, _ := d.Workflow("first"); seen.Record.GetActive() {
				break
			}
		}
		if d.ActiveBesides("account", "second") != 1 {
			t.Fatalf("activation %d is seen and not counted", n)
		}
		next <- n + 1
		for {
			if seen, _ := d.Workflow("first"); !seen.Record.GetActive() {
				break
			}
		}
	}
}
