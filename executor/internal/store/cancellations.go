package store

import (
	"context"
	"time"
)

// Cancellations changes the records of executions that operators cancel. operate uses it. When a
// runner has begun an execution, its report ends the execution, through Recording.
type Cancellations interface {
	// RequestCancel sets CancelRequestedAt on records that have not ended and do not have it yet,
	// and returns their IDs. In the same transaction, it stores an audit entry for each of them,
	// unless audit is nil.
	RequestCancel(
		ctx context.Context, ids []string, at time.Time, audit func(id string) AuditEntry,
	) (requested []string, err error)

	// Cancel changes the status of records that are still queued to canceled, and returns their
	// IDs. It does not change any other record. It does not check that cancellation was requested:
	// call RequestCancel first.
	Cancel(ctx context.Context, ids []string, at time.Time) (canceled []string, err error)
}
