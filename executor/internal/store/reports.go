package store

import (
	"context"
	"time"
)

// Reports stores what the ingresses report about requests that started no execution, and about the
// senders of requests. The recorder uses it. The results are read through other interfaces: the
// numbers of duplicates through Records, the refusals and the per-minute counts through
// RequestCounts, and everything else through Senders.
type Reports interface {
	// AddDuplicates adds counts of suppressed duplicates, keyed by execution ID. Adding a report
	// with the same ID again has no effect. If an execution is not recorded yet, its count is kept
	// until it is recorded.
	AddDuplicates(ctx context.Context, reportID string, at time.Time, counts map[string]int64) error

	// AddRefusals adds refused requests to the counts by workflow, code and minute, and to the
	// per-minute counts by code. Adding a report with the same ID again has no effect. Report IDs
	// must be unique across all kinds of reports.
	AddRefusals(ctx context.Context, reportID string, at time.Time, refusals []RefusalCount) error

	// AddSenderActivity adds what was learned from requests about the senders of trigger nodes.
	// Adding a report with the same ID again has no effect. Report IDs must be unique across all
	// kinds of reports.
	AddSenderActivity(ctx context.Context, reportID string, at time.Time,
		seen []SenderActivity) error

	// AddFilteredRequests adds requests that did not match the filters of trigger nodes. Adding a
	// report with the same ID again has no effect. Report IDs must be unique across all kinds of
	// reports.
	AddFilteredRequests(
		ctx context.Context,
		reportID string,
		at time.Time,
		filtered []FilteredSummary,
	) error
}
