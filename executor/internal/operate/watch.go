package operate

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Watch returns a channel of IDs of changed records, of all accounts: Changed returns those that the caller sees. It is closed when the
// watcher is too slow, when changes may have been missed, or when the executor stops. Without
// an error, cancel must be called.
func (s *Service) Watch(ctx context.Context, by Caller) (changed <-chan []string, cancel func(), err error) {
	_, err = read(ctx, s, by, needs(Viewer, ofNone), func(context.Context) (none struct{}, err error) {
		changed, cancel = s.config.Changes.Watch()
		return none, nil
	})
	return changed, cancel, err
}

// Changed returns the records of some IDs as they are now, the oldest first; only those of
// one account or workflow, unless it is empty.
func (s *Service) Changed(ctx context.Context, by Caller, ids []string, accountID, workflowID string) ([]Execution, error) {
	return read(ctx, s, by, needs(Viewer, within(&accountID)), func(ctx context.Context) ([]Execution, error) {
		records, err := s.config.Store.GetMany(ctx, ids)
		if err != nil {
			return nil, s.databaseError(ctx, err)
		}
		slices.SortFunc(records, func(a, b store.Record) int {
			return cmp.Or(a.AcceptedAt.Compare(b.AcceptedAt), strings.Compare(a.ID, b.ID))
		})
		var changed []Execution
		for _, r := range records {
			if (workflowID == "" || r.WorkflowID == workflowID) && (accountID == "" || r.AccountID == accountID) {
				changed = append(changed, executionOf(r))
			}
		}
		return changed, nil
	})
}
