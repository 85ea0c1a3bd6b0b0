package console

import (
	"context"
	"slices"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// origin is the workflow that something is of, which may be gone.
type origin struct {
	WorkflowName string // its ID, if it has no name or is gone
	HasWorkflow  bool   // it still exists
	HasNode      bool   // its trigger node, too: it can run again
}

func (c *Console) origin(ctx context.Context, workflowID, nodeID string) origin {
	workflow, err := c.Operate.Workflow(ctx, signin.Caller(ctx), workflowID)
	if err != nil { // it is read from memory: there is no other cause
		return origin{WorkflowName: workflowID}
	}
	return origin{nameOr(workflow.Name, workflowID), true, hasNode(workflow, nodeID)}
}

func hasNode(w api.Workflow, nodeID string) bool {
	return slices.ContainsFunc(w.Triggers, func(t api.WorkflowTrigger) bool { return t.NodeID == nodeID })
}
