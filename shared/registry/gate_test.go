package registry_test

import (
	"slices"
	"testing"

	"github.com/hookstart/hookstart/shared/registry"
)

// following returns a loaded snapshot in which the workflow wf uses the queue q, and a function
// that looks up wf in the snapshot.
func following(t *testing.T) (*registry.Snapshot, func() *registry.CompiledWorkflow) {
	t.Helper()
	s := registry.NewSnapshot(nil)
	s.Apply(registry.Change{
		Revision: 1,
		Workflow: &registry.Workflow{ID: "wf", AccountID: "a", Queue: "q"},
	})
	s.FinishLoad()
	return s, func() *registry.CompiledWorkflow {
		view, ok := s.Lookup("wf")
		if !ok {
			t.Fatal("no workflow")
		}
		return view.Workflow
	}
}

func queue(revision uint64, phase registry.StreamPhase) registry.Change {
	return registry.Change{
		Revision: revision,
		Queue:    &registry.Queue{Name: "q", Stream: &registry.QueueStream{Phase: phase}},
	}
}

func TestThePlaceFollowsThePhase(t *testing.T) {
	t.Parallel()
	s, workflow := following(t)
	for i, c := range []struct {
		phase  registry.StreamPhase
		target registry.StoreTarget
	}{
		{registry.QueuePhaseMovingToOwn, registry.StoreTargetShared},
		{registry.QueuePhaseClosedMovingToOwn, registry.StoreTargetClosed},
		{registry.QueuePhaseOwnStream, registry.StoreTargetOwn},
		{registry.QueuePhaseMovingToShared, registry.StoreTargetOwn},
		{registry.QueuePhaseClosedMovingToShared, registry.StoreTargetClosed},
		{registry.QueuePhaseDrainingOwnStream, registry.StoreTargetShared},
		{99, registry.StoreTargetClosed}, // a phase that only a later version defines
	} {
		s.Apply(queue(uint64(i+2), c.phase))
		permit := workflow().AcquirePermit()
		if permit.Target != c.target || !permit.HasOwnStream || permit.Superseded {
			t.Errorf("in phase %s: %+v", c.phase, permit)
		}
		permit.Release()
		if own := s.QueuesWithOwnStreams(); !slices.Equal(own, []string{"q"}) {
			t.Errorf("in phase %s, these have their own streams: %q", c.phase, own)
		}
		if since, _ := s.FirstPendingRevision(); since != 0 {
			t.Errorf("in phase %s, revision %d waits for nothing", c.phase, since)
		}
	}
	s.Apply(registry.Change{Revision: 20, Queue: &registry.Queue{Name: "q"}})
	if permit := workflow().AcquirePermit(); permit.Target != registry.StoreTargetShared ||
		permit.HasOwnStream {
		t.Errorf("without its own stream: %+v", permit)
	}
	if own := s.QueuesWithOwnStreams(); len(own) != 0 {
		t.Errorf("these have their own streams: %q", own)
	}
}

// When a queue is closed because it moves to its own stream, the change comes into force once the
// requests that began before the change have finished. Later requests do not delay it.
func TestAChangeOfThePlaceWaitsForRequests(t *testing.T) {
	t.Parallel()
	s, workflow := following(t)
	s.Apply(queue(2, registry.QueuePhaseMovingToOwn))
	before := workflow().AcquirePermit()
	if since, _ := s.FirstPendingRevision(); since != 0 {
		t.Errorf("a phase in the same target waits: %d", since)
	}
	s.Apply(queue(3, registry.QueuePhaseClosedMovingToOwn))
	since, settled := s.FirstPendingRevision()
	if since != 3 {
		t.Fatalf("revision 3 is in force while a request stores in the old target (%d)", since)
	}
	after := workflow().AcquirePermit()
	if after.Target != registry.StoreTargetClosed {
		t.Errorf("a later request: %+v", after)
	}
	after.Release()
	if since, _ := s.FirstPendingRevision(); since != 3 {
		t.Error("the end of a later request counts")
	}
	before.Release()
	<-settled
	if since, _ := s.FirstPendingRevision(); since != 0 {
		t.Errorf("revision %d is not in force after the last request has ended", since)
	}
}

// If a workflow is closed or changes its queue, a request that holds an earlier record of the
// workflow gets a permit that is marked as superseded, so it must look the workflow up again.
func TestAWorkflowThatMoved(t *testing.T) {
	t.Parallel()
	s, workflow := following(t)
	old := workflow()
	inside := old.AcquirePermit()
	s.Apply(registry.Change{
		Revision: 2,
		Workflow: &registry.Workflow{ID: "wf", AccountID: "a", Queue: "q", Name: "renamed"},
	})
	if since, _ := s.FirstPendingRevision(); since != 0 {
		t.Errorf("another change waits for a request: %d", since)
	}
	renamed := workflow()
	if permit := renamed.AcquirePermit(); permit.Superseded ||
		permit.Target != registry.StoreTargetShared {
		t.Errorf("after another change: %+v", permit)
	} else {
		permit.Release()
	}
	closed := &registry.Workflow{ID: "wf", AccountID: "a", Queue: "q", IntakeClosed: true}
	s.Apply(registry.Change{Revision: 3, Workflow: closed})
	if since, _ := s.FirstPendingRevision(); since != 3 {
		t.Errorf("the closing is in force while a request is inside: %d", since)
	}
	// All earlier records must be superseded, not only the last one: a request may have held an old
	// record for a long time while it received its body.
	for _, before := range []*registry.CompiledWorkflow{old, renamed} {
		if permit := before.AcquirePermit(); !permit.Superseded {
			t.Errorf("with a record from before the closing: %+v", permit)
		} else {
			permit.Release()
		}
	}
	if permit := workflow().AcquirePermit(); permit.Target != registry.StoreTargetClosed ||
		permit.Superseded {
		t.Errorf("while it is closed: %+v", permit)
	} else {
		permit.Release()
	}
	inside.Release()
	s.Apply(registry.Change{
		Revision: 4,
		Workflow: &registry.Workflow{ID: "wf", AccountID: "a", Queue: "other"},
	})
	if permit := workflow().AcquirePermit(); permit.Target != registry.StoreTargetShared {
		t.Errorf("in its new queue: %+v", permit)
	}
}

// If a workflow is deleted and created again, or the registry is reloaded, a request that holds the
// earlier record gets a permit that is marked as superseded. Otherwise, the request would not
// notice later changes of the workflow.
func TestAWorkflowThatWasDeletedOrLoadedAgain(t *testing.T) {
	t.Parallel()
	wf := registry.Change{
		Revision: 3,
		Workflow: &registry.Workflow{ID: "wf", AccountID: "a", Queue: "q"},
	}
	for name, replace := range map[string]func(*registry.Snapshot){
		"deleted": func(s *registry.Snapshot) {
			s.Apply(registry.Change{Revision: 2, DeletedWorkflow: "wf"})
			s.Apply(wf)
		},
		"loaded": func(s *registry.Snapshot) {
			s.Reset()
			s.Apply(wf)
			s.FinishLoad()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, workflow := following(t)
			old := workflow()
			replace(s)
			if permit := old.AcquirePermit(); !permit.Superseded {
				t.Errorf("with the earlier record: %+v", permit)
			} else {
				permit.Release()
			}
			if permit := workflow().AcquirePermit(); permit.Superseded ||
				permit.Target != registry.StoreTargetShared {
				t.Errorf("with the new record: %+v", permit)
			} else {
				permit.Release()
			}
		})
	}
}

// The registry is reloaded while a request is running. Until the request has finished,
// FirstPendingRevision returns 1, which means that no revision is in force.
func TestALoadWaitsForRequests(t *testing.T) {
	t.Parallel()
	s, workflow := following(t)
	before := workflow().AcquirePermit()
	s.Reset()
	s.Apply(registry.Change{
		Revision: 7,
		Workflow: &registry.Workflow{ID: "wf", AccountID: "a", Queue: "q", IntakeClosed: true},
	})
	s.FinishLoad()
	since, settled := s.FirstPendingRevision()
	if since != 1 {
		t.Fatalf("the new copy is in force while a request is inside (%d)", since)
	}
	before.Release()
	<-settled
	if since, _ := s.FirstPendingRevision(); since != 0 {
		t.Errorf("revision %d is not in force after the last request has ended", since)
	}
}
