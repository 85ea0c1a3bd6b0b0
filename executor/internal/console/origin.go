package console

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/signin"
)

// origin is the workflow and the node of an execution or a dead letter; both may have been deleted.
type origin struct {
	WorkflowName string // its ID, if it has no name or is gone
	HasWorkflow  bool   // it still exists
	HasNode      bool   // its trigger node, too: it can run again
}

func (c *Console) origin(ctx context.Context, workflowID, nodeID string) (origin, error) {
	of, err := c.Operate.Origin(ctx, signin.Caller(ctx), workflowID, nodeID)
	return origin{nameOr(of.WorkflowName, workflowID), of.HasWorkflow, of.HasNode}, err
}
