package edit

import (
	"context"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
)

// prepareOrderKeys must be called before a workflow is stored. If a node of the workflow has an
// order key, and the workflow's queue has no lanes yet, prepareOrderKeys adds lanes to the queue.
// It fails with ErrIngressTooOld if a node that had no order key gets one and a live ingress would
// ignore it. before is nil if the workflow is new.
func (e *Editor) prepareOrderKeys(ctx context.Context, before, after *registry.Workflow) error {
	added, ordered := false, false
	for i := range after.Triggers {
		node := &after.Triggers[i]
		if node.OrderKey == "" {
			continue
		}
		ordered = true
		had := false
		if before != nil {
			was := before.Trigger(node.NodeID)
			had = was != nil && was.OrderKey != ""
		}
		added = added || !had
	}
	if !ordered {
		return nil
	}
	if added {
		if err := e.requireCapability(consistency.CapabilityOrderKeys); err != nil {
			return err
		}
	}
	return e.ensureLanes(ctx, after.Queue)
}

// ensureLanes stores the number of lanes in the record of a queue that has none. A queue keeps its
// lanes even when none of its workflows has an order key anymore, because the lanes may still hold
// start messages.
func (e *Editor) ensureLanes(ctx context.Context, name string) error {
	have, ok := e.index.Queue(name)
	if ok && have.Record.LaneCount > 0 {
		return nil
	}
	q := &registry.Queue{Name: name}
	if ok {
		q = have.Record.Clone()
	}
	q.LaneCount = execution.LanesPerQueue
	_, err := e.put(ctx, e.registry, registry.QueuePrefix+name, q, have.Revision)
	return err
}
