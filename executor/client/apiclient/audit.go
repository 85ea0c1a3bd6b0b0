package apiclient

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
)

// AuditFilter selects entries of the audit log. Fields that are zero are ignored.
type AuditFilter struct {
	// Actor is the ID, the name or the kind of an api.Actor.
	Actor string
	// AccountID and WorkflowID select by exact ID, not by prefix.
	AccountID, WorkflowID string
	// Since (inclusive) and Until (exclusive) bound the entries' At.
	Since, Until time.Time
}

// Audit returns one page of the audit entries that the filter selects, newest first.
func (c *Client) Audit(
	ctx context.Context, filter AuditFilter, page Page,
) (api.List[api.AuditEntry], error) {
	return list[api.AuditEntry](ctx, c, "/audit", page, queryParameters{
		"actor":      filter.Actor,
		"accountId":  filter.AccountID,
		"workflowId": filter.WorkflowID,
		"since":      timeParam(filter.Since),
		"until":      timeParam(filter.Until),
	})
}
