package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
)

// routeInstallation adds the calls about what all workflows share.
func (s *server) routeInstallation(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/public-url", id: "check-public-url", tag: tagInstallation,
		summary: "Check the public URL",
		description: "The executor sends a signed request there, which starts nothing and uses up nobody's rate limit, and which " +
			"only an ingress of this installation can answer. It follows no redirect.",
	}, func(ctx context.Context, by operate.Caller, _ *struct{}) (api.PublicURL, error) {
		return s.Operate.CheckPublicURL(ctx, by)
	})
	register(to, call{
		method: http.MethodGet, path: "/members", id: "list-members", tag: tagInstallation, least: operate.Admin,
		summary:     "List the executors and ingresses that run",
		description: "With their versions, and with the keys that they can open secrets with.",
	}, func(ctx context.Context, by operate.Caller, _ *struct{}) (api.Members, error) {
		return s.Operate.Members(ctx, by)
	})
	register(to, call{
		method: http.MethodGet, path: "/queues", id: "list-queues", tag: tagInstallation,
		summary: "List the queues",
		description: "What waits in each queue that a workflow names, and which groups of runners take it. By name. Accounts may share a queue: " +
			"what waits is counted of all of them.",
	}, func(ctx context.Context, by operate.Caller, in *Listing) (api.List[api.Queue], error) {
		return s.Operate.Queues(ctx, by, in.AccountID, in.page())
	})
	register(to, call{
		method: http.MethodGet, path: "/audit", id: "list-audit", tag: tagInstallation, least: operate.Admin,
		summary: "List who changed what",
		description: "The newest first. Each change of accounts, workflows, tokens, senders and keys has exactly one entry, and each sign-in to the console. " +
			"What was confirmed before the call is in it. All filters must match.",
	}, func(ctx context.Context, by operate.Caller, in *struct {
		Paging
		Actor      string    `query:"actor" doc:"The actor's ID, name or kind."`
		AccountID  string    `query:"accountId" doc:"About this account."`
		WorkflowID string    `query:"workflowId" doc:"About this workflow."`
		Since      time.Time `query:"since" doc:"Then or later."`
		Until      time.Time `query:"until" doc:"Before."`
	},
	) (api.List[api.AuditEntry], error) {
		return s.Operate.Audit(ctx, by, operate.AuditFilter{
			Actor: in.Actor, AccountID: in.AccountID, WorkflowID: in.WorkflowID, Since: in.Since, Until: in.Until,
		}, in.page())
	})
}
