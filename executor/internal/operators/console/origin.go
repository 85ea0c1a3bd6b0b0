package console

import (
	"context"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// lookUpOrigin looks up the workflow and the trigger node to which an execution or a dead letter
// belongs. If the workflow has no name, WorkflowName is its ID.
func (c *Console) lookUpOrigin(
	ctx context.Context,
	workflowID, nodeID string,
) (operate.ExecutionOrigin, error) {
	origin, err := c.Operate.Origin(ctx, signin.Caller(ctx), workflowID, nodeID)
	origin.WorkflowName = nameOrID(origin.WorkflowName, workflowID)
	return origin, err
}
