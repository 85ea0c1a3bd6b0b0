package operate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/changes"
	"github.com/hookstart/hookstart/executor/internal/store"
)

// ChangeBatch is one notification of a watch: the IDs of the records that changed.
type ChangeBatch = changes.Batch

// Subscription is a watch of changed records. It reports the IDs of all accounts' records;
// ChangedExecutions returns only the records that the caller has access to.
type Subscription struct {
	changes.Subscription
	// Ended is closed when the caller's key is revoked or expires. It is nil if the caller has not
	// authenticated with a key.
	Ended <-chan struct{}
}

// Watch subscribes to changes from now on. If after is not zero, the subscription resumes with the
// first batch after that time instead. If Watch succeeds, the subscription's Cancel must be called
// once. Each caller can have at most MaxEventStreamsPerCaller subscriptions at a time.
func (s *Service) Watch(ctx context.Context, caller Caller, after time.Time) (Subscription, error) {
	return runRead(ctx, s, caller, newAccessRule("Watch", accessUnrestricted),
		func(context.Context) (Subscription, error) {
			end, err := s.openEventStreams.acquire(caller)
			if err != nil {
				return Subscription{}, err
			}
			watching := Subscription{Subscription: s.config.Changes.Watch(after)}
			var forget func()
			if caller.Kind == CallerKindKey {
				watching.Ended, forget = s.config.Keyring.watchKeyEnd(caller.ID)
			}
			unwatch := watching.Cancel
			watching.Cancel = func() {
				unwatch()
				if forget != nil {
					forget()
				}
				end()
			}
			return watching, nil
		})
}

// ChangedExecutions returns the current records for some IDs, oldest first. If accountID or
// workflowID is not empty, it returns only records of that account or workflow. Each watcher reads
// the records for itself, because callers may have access to different accounts and choose
// different workflows. This costs little, because there are few watchers.
func (s *Service) ChangedExecutions(
	ctx context.Context, caller Caller, ids []string, accountID, workflowID string,
) ([]Execution, error) {
	return runRead(ctx, s, caller, newAccessRule("ChangedExecutions",
		narrowToCallerAccount(&accountID)),
		func(ctx context.Context) ([]Execution, error) {
			records, err := s.config.Store.GetMany(ctx, ids)
			if err != nil {
				return nil, err
			}
			slices.SortFunc(records, func(a, b store.Record) int {
				return cmp.Or(a.AcceptedAt.Compare(b.AcceptedAt), strings.Compare(a.ID, b.ID))
			})
			var changed []Execution
			for _, r := range records {
				if (workflowID == "" || r.WorkflowID == workflowID) &&
					(accountID == "" || r.AccountID == accountID) {
					changed = append(changed, executionOf(r))
				}
			}
			return changed, nil
		})
}
