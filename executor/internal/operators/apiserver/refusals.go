package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

func (s *server) routeRefusals(to huma.API) {
	register(to, operationSpec{
		method:  http.MethodGet,
		path:    "/workflows/{id}/refusals",
		id:      "list-refusals",
		tag:     tagWorkflows,
		summary: "Count the refused requests",
		description: "By code, the last refused first. Ingresses count, and report once a " +
			"second; what they keep of a request is in `last`. Counts are kept for a week.",
		problemCodes: []string{api.CodeNotFound},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		WorkflowIDParam
		ListInput
		RefusedSinceParam
	},
	) (api.List[api.Refusal], error) {
		return s.Operate.Refusals(ctx, caller, in.AccountID, in.ID, in.Since, in.page())
	})
	register(to, operationSpec{
		method: http.MethodGet, path: "/refusals", id: "list-all-refusals", tag: tagWorkflows,
		summary: "Count the refused requests of all workflows",
		description: "By workflow and code, the last refused first. Requests to workflows that " +
			"do not exist are counted by code alone; of one that was deleted the counts stay for " +
			"a week.",
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		ListInput
		RefusedSinceParam
	},
	) (api.List[api.WorkflowRefusal], error) {
		return s.Operate.AllRefusals(ctx, caller, in.AccountID, in.Since, in.page())
	})
}

// RefusedSinceParam holds the query parameter that selects how far back refusals are counted.
type RefusedSinceParam struct {
	Since time.Time `query:"since" doc:"Selects the requests that were refused in the minute of this time or later. Absent: those of the last 24 hours."`
}
