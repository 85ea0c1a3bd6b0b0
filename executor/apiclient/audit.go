package apiclient

import (
	"context"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/executor/api"
)

// AuditFilter says which entries of the audit are wanted. Zero fields do not filter.
type AuditFilter struct {
	Actor, AccountID, WorkflowID string
	Since, Until                 time.Time
}

// Audit lists who changed what, the newest first.
func (c *Client) Audit(ctx context.Context, filter AuditFilter, page Page) (list api.List[api.AuditEntry], err error) {
	q := page.query()
	for name, value := range map[string]string{"actor": filter.Actor, "accountId": filter.AccountID, "workflowId": filter.WorkflowID} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"since": filter.Since, "until": filter.Until} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	err = c.call(ctx, http.MethodGet, "/audit", q, nil, &list)
	return list, err
}
