package operate

import (
	"context"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	refusalsCursorKind    = "refusals"
	allRefusalsCursorKind = "all-refusals"
)

// defaultRefusalsPeriod is the period for which refusals are counted if the caller does not set
// since.
const defaultRefusalsPeriod = 24 * time.Hour

func defaultToLastDay(since time.Time) time.Time {
	if since.IsZero() {
		return time.Now().Add(-defaultRefusalsPeriod)
	}
	return since
}

// Refusals counts a workflow's refused requests by code, starting with the minute that contains
// since. The most recently refused code comes first. A zero since means the last 24 hours. If
// accountID is not empty and the workflow belongs to another account, the list is empty.
func (s *Service) Refusals(
	ctx context.Context, caller Caller, accountID, workflowID string, since time.Time,
	page PageOptions,
) (api.List[api.Refusal], error) {
	return runRead(ctx, s, caller, newAccessRule("Refusals", accessToWorkflow(workflowID)),
		func(ctx context.Context) (none api.List[api.Refusal], err error) {
			have, ok := s.config.RegistryIndex.Workflow(workflowID)
			if !ok {
				return none, notFoundError("workflow", workflowID, "")
			}
			after, err := page.cursorPosition(refusalsCursorKind)
			if err != nil {
				return none, err
			}
			var sums []store.RefusalSum
			if accountID == "" || accountID == have.Record.AccountID {
				if sums, err = s.config.Store.Refusals(ctx, workflowID,
					defaultToLastDay(since)); err != nil {
					return none, err
				}
			}
			// after is "" for the first page: then no code matches, IndexFunc returns -1, and the
			// page begins with the first sum.
			sums = sums[slices.IndexFunc(sums, func(sum store.RefusalSum) bool {
				return sum.Code == after
			})+1:]
			return newListPage(
				refusalsCursorKind,
				sums,
				page,
				apiRefusal,
				func(sum store.RefusalSum) string {
					return sum.Code
				},
			), nil
		})
}

// AllRefusals counts refused requests by workflow and code, for all workflows or, if accountID is
// not empty, for those that are in the account now. A zero since means the last 24 hours.
func (s *Service) AllRefusals(
	ctx context.Context, caller Caller, accountID string, since time.Time, page PageOptions,
) (api.List[api.WorkflowRefusal], error) {
	return runRead(ctx, s, caller, newAccessRule("AllRefusals", narrowToCallerAccount(&accountID)),
		func(ctx context.Context) (none api.List[api.WorkflowRefusal], err error) {
			at, code, err := page.cursorTimePosition(allRefusalsCursorKind, 2)
			if err != nil {
				return none, err
			}
			position := store.RefusalPosition{LastAt: at, WorkflowID: code[0], Code: code[1]}
			sums, err := s.refusalsOf(ctx, accountID, defaultToLastDay(since), position,
				page.Limit+1)
			if err != nil {
				return none, err
			}
			return newListPage(allRefusalsCursorKind, sums, page,
				func(sum store.WorkflowRefusalSum) api.WorkflowRefusal {
					return api.WorkflowRefusal{
						WorkflowID: sum.WorkflowID,
						Refusal:    apiRefusal(sum.RefusalSum),
					}
				}, func(sum store.WorkflowRefusalSum) string {
					return encodeTimePosition(sum.Last.At, sum.WorkflowID, sum.Code)
				}), nil
		})
}

// refusalsOf reads the refusals that follow the given position in the list. If accountID is not
// empty, it returns only refusals of the workflows that are in that account now. It finds a
// workflow's account in the index, because the database stores refusals without an account: a
// workflow may move to another one.
func (s *Service) refusalsOf(
	ctx context.Context, accountID string, since time.Time, after store.RefusalPosition, limit int,
) ([]store.WorkflowRefusalSum, error) {
	if accountID == "" {
		return s.config.Store.AllRefusals(ctx, since, after, limit)
	}
	var found []store.WorkflowRefusalSum
	for {
		refusals, err := s.config.Store.AllRefusals(ctx, since, after, searchBatchSize)
		if err != nil {
			return nil, err
		}
		for _, sum := range refusals {
			have, ok := s.config.RegistryIndex.Workflow(sum.WorkflowID)
			if ok && have.Record.AccountID == accountID {
				if found = append(found, sum); len(found) == limit {
					return found, nil
				}
			}
		}
		if len(refusals) < searchBatchSize {
			return found, nil
		}
		last := refusals[len(refusals)-1]
		after = store.RefusalPosition{
			LastAt:     last.Last.At,
			WorkflowID: last.WorkflowID,
			Code:       last.Code,
		}
	}
}

func apiRefusal(sum store.RefusalSum) api.Refusal {
	result := api.Refusal{
		Code:  sum.Code,
		Count: sum.Count,
		Last:  api.RefusedRequest{At: sum.Last.At, UserAgent: sum.Last.UserAgent},
	}
	if sum.Last.BodyBytes >= 0 {
		result.Last.BodyBytes = &sum.Last.BodyBytes
	}
	return result
}
