package operate

import (
	"context"
	"slices"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

const (
	refusalsList    = "refusals"
	allRefusalsList = "all-refusals"
)

// refusalsSpan is how far back refusals are counted unless the caller says since when.
const refusalsSpan = 24 * time.Hour

func orLastDay(since time.Time) time.Time {
	if since.IsZero() {
		return time.Now().Add(-refusalsSpan)
	}
	return since
}

// Refusals counts a workflow's refused requests since the minute of a time (zero: in the
// last 24 hours) by code, the last refused first.
func (s *Service) Refusals(ctx context.Context, by Caller, workflowID string, since time.Time, page Page) (api.List[api.Refusal], error) {
	return read(ctx, s, by, func(ctx context.Context) (none api.List[api.Refusal], err error) {
		if _, exists := s.config.Directory.Workflow(workflowID); !exists {
			return none, notFound("workflow", workflowID, "")
		}
		after, err := page.after(refusalsList)
		if err != nil {
			return none, err
		}
		sums, err := s.config.Store.Refusals(ctx, workflowID, orLastDay(since))
		if err != nil {
			return none, s.databaseError(ctx, err)
		}
		// There are no more than codes.
		sums = sums[slices.IndexFunc(sums, func(sum store.RefusalSum) bool { return sum.Code == after })+1:]
		return list(refusalsList, sums, page, refusalOf, func(sum store.RefusalSum) string { return sum.Code }), nil
	})
}

// AllRefusals does so for all workflows, by workflow and code.
func (s *Service) AllRefusals(ctx context.Context, by Caller, since time.Time, page Page) (api.List[api.WorkflowRefusal], error) {
	return read(ctx, s, by, func(ctx context.Context) (none api.List[api.WorkflowRefusal], err error) {
		at, of, err := page.afterTime(allRefusalsList, 2)
		if err != nil {
			return none, err
		}
		sums, err := s.config.Store.AllRefusals(ctx, orLastDay(since), store.RefusalPosition{LastAt: at, WorkflowID: of[0], Code: of[1]}, page.Limit+1)
		if err != nil {
			return none, s.databaseError(ctx, err)
		}
		return list(allRefusalsList, sums, page, func(sum store.WorkflowRefusalSum) api.WorkflowRefusal {
			return api.WorkflowRefusal{WorkflowID: sum.WorkflowID, Refusal: refusalOf(sum.RefusalSum)}
		}, func(sum store.WorkflowRefusalSum) string { return timePosition(sum.Last.At, sum.WorkflowID, sum.Code) }), nil
	})
}

func refusalOf(sum store.RefusalSum) api.Refusal {
	of := api.Refusal{Code: sum.Code, Count: sum.Count, Last: api.RefusedRequest{At: sum.Last.At, UserAgent: sum.Last.UserAgent}}
	if sum.Last.BodyBytes >= 0 {
		of.Last.BodyBytes = &sum.Last.BodyBytes
	}
	return of
}
