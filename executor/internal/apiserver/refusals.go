package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routeRefusals(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/workflows/{id}/refusals", id: "list-refusals", tag: tagWorkflows,
		summary: "Count the refused requests",
		description: "By code, the last refused first. Ingresses count, and report once a second; what they keep " +
			"of a request is in `last`. Counts are kept for a week.",
		codes: []string{api.CodeNotFound},
	}, s.listRefusals)
	register(to, call{
		method: http.MethodGet, path: "/refusals", id: "list-all-refusals", tag: tagWorkflows,
		summary: "Count the refused requests of all workflows",
		description: "By workflow and code, the last refused first. Requests to workflows that do not exist are counted by code " +
			"alone; of one that was deleted the counts stay for a week.",
	}, s.listAllRefusals)
}

// RefusedSince says how far back refusals are counted.
type RefusedSince struct {
	Since time.Time `query:"since" doc:"Refused in that minute or later. Absent: in the last 24 hours."`
}

func (s *server) listRefusals(ctx context.Context, in *struct {
	WorkflowID
	Paging
	OfAccount
	RefusedSince
},
) (*listOutput[api.Refusal], error) {
	return listed(s.Operate.Refusals(ctx, signin.Caller(ctx), in.AccountID, in.ID, in.Since, in.page()))
}

func (s *server) listAllRefusals(ctx context.Context, in *struct {
	Paging
	OfAccount
	RefusedSince
},
) (*listOutput[api.WorkflowRefusal], error) {
	return listed(s.Operate.AllRefusals(ctx, signin.Caller(ctx), in.AccountID, in.Since, in.page()))
}
