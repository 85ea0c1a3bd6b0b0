package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routeAudit(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/audit", id: "list-audit", tag: tagInstallation, least: operate.Admin,
		summary: "List who changed what",
		description: "The newest first. Each change of accounts, workflows, tokens, senders and keys has exactly one entry, and each sign-in to the console. " +
			"What was confirmed before the call is in it. All filters must match.",
	}, s.listAudit)
}

func (s *server) listAudit(ctx context.Context, in *struct {
	Paging
	Actor      string    `query:"actor" doc:"The actor's ID, name or kind."`
	AccountID  string    `query:"accountId" doc:"About this account."`
	WorkflowID string    `query:"workflowId" doc:"About this workflow."`
	Since      time.Time `query:"since" doc:"Then or later."`
	Until      time.Time `query:"until" doc:"Before."`
},
) (*listOutput[api.AuditEntry], error) {
	return listed(s.Operate.Audit(ctx, signin.Caller(ctx), operate.AuditFilter{
		Actor: in.Actor, AccountID: in.AccountID, WorkflowID: in.WorkflowID, Since: in.Since, Until: in.Until,
	}, in.page()))
}
