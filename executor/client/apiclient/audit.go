package apiclient

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
)

// AuditFilter selects entries of the audit log. Fields that are zero are ignored.
type AuditFilter struct {
	// Actor selects the entries whose api.Actor has this ID, name or kind.
	Actor string
	// AccountID and WorkflowID select by exact ID, not by prefix.
	AccountID, WorkflowID string
	// Since and Until select the entries whose At is Since or later, and before Until.
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
