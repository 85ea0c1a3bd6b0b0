package apiserver

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
)

func (s *server) routeRefusals(to huma.API) {
	register(s, to, call{
		method: http.MethodGet, path: "/workflows/{id}/refusals", id: "list-refusals", tag: tagWorkflows,
		summary: "Count the refused requests",
		description: "By code, the last refused first. Ingresses count, and report once a second; what they keep " +
			"of a request is in `last`. Counts are kept for a week.",
		codes: []string{api.CodeNotFound},
	}, s.listRefusals)
}

const refusalsList = "refusals"

// refusalsSpan is how far back refusals are counted unless somebody says since when.
const refusalsSpan = 24 * time.Hour

func (s *server) listRefusals(ctx context.Context, in *struct {
	WorkflowID
	Paging
	Since time.Time `query:"since" doc:"Refused in that minute or later. Absent: in the last 24 hours."`
},
) (*listOutput[api.Refusal], error) {
	if _, err := s.getWorkflow(ctx, &in.WorkflowID); err != nil {
		return nil, err
	}
	after, err := in.after(refusalsList)
	if err != nil {
		return nil, err
	}
	since := in.Since
	if since.IsZero() {
		since = time.Now().Add(-refusalsSpan)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	sums, err := s.Store.Refusals(ctx, in.ID, since)
	if err != nil {
		return nil, s.databaseError(ctx, err)
	}
	// There are no more than codes.
	sums = sums[slices.IndexFunc(sums, func(sum store.RefusalSum) bool { return sum.Code == after })+1:]
	return page(refusalsList, sums, in.Limit, refusalOnWire, func(sum store.RefusalSum) string { return sum.Code }), nil
}

func refusalOnWire(sum store.RefusalSum) api.Refusal {
	wire := api.Refusal{Code: sum.Code, Count: sum.Count, Last: api.RefusedRequest{At: sum.Last.At, UserAgent: sum.Last.UserAgent}}
	if sum.Last.BodyBytes >= 0 {
		wire.Last.BodyBytes = &sum.Last.BodyBytes
	}
	return wire
}
