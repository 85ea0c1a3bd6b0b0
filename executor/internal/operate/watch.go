package operate

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/internal/store"
)

// Watch returns a channel of IDs of changed records, of all workflows. It is closed when the
// watcher is too slow, when changes may have been missed, or when the executor stops. Without
// an error, cancel must be called.
func (s *Service) Watch(_ context.Context, by Caller) (changed <-chan []string, cancel func(), err error) {
	if err := by.check(); err != nil {
		return nil, nil, err
	}
	changed, cancel = s.config.Changes.Watch()
	return changed, cancel, nil
}

// Changed returns the records of some IDs as they are now, the oldest first; only those of
// one workflow, unless workflowID is empty.
func (s *Service) Changed(ctx context.Context, by Caller, ids []string, workflowID string) ([]Execution, error) {
	return read(ctx, s, by, func(ctx context.Context) ([]Execution, error) {
		records, err := s.config.Store.GetMany(ctx, ids)
		if err != nil {
			return nil, s.databaseError(ctx, err)
		}
		slices.SortFunc(records, func(a, b store.Record) int {
			return cmp.Or(a.AcceptedAt.Compare(b.AcceptedAt), strings.Compare(a.ID, b.ID))
		})
		var changed []Execution
		for _, r := range records {
			if workflowID == "" || r.WorkflowID == workflowID {
				changed = append(changed, executionOf(r))
			}
		}
		return changed, nil
	})
}
