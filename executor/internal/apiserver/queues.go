package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routeQueues(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/queues", id: "list-queues", tag: tagInstallation,
		summary: "List the queues",
		description: "What waits in each queue that a workflow names, and which groups of runners take it. By name. Accounts may share a queue: " +
			"what waits is counted of all of them.",
	}, s.listQueues)
}

func (s *server) listQueues(ctx context.Context, in *struct {
	Paging
	OfAccount
},
) (*listOutput[api.Queue], error) {
	return listed(s.Operate.Queues(ctx, signin.Caller(ctx), in.AccountID, in.page()))
}
