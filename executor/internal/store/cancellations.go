package store

import (
	"context"
	"time"
)

// Cancellations changes the records of executions that operators cancel. operate uses it. Cancel
// ends queued executions immediately. If a runner has already started an execution, RequestCancel
// only stores the request. The execution ends when its runner reports its end, and Recording stores
// that report.
type Cancellations interface {
	// RequestCancel sets CancelRequestedAt on records that have not ended and whose
	// CancelRequestedAt is zero, and returns their IDs. In the same transaction, it stores an audit
	// entry for each of these records, unless audit is nil.
	RequestCancel(
		ctx context.Context, ids []string, at time.Time, audit func(id string) AuditEntry,
	) (requested []string, err error)

	// Cancel changes the status of queued records to canceled, and returns their IDs. It changes no
	// other records. Call RequestCancel first, because Cancel does not check that cancellation was
	// requested.
	Cancel(ctx context.Context, ids []string, at time.Time) (canceled []string, err error)
}
