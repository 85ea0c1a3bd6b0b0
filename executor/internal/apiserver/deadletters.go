package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routeDeadLetters(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/dead-letters", id: "list-dead-letters", tag: tagDeadLetters,
		summary:     "List the dead letters",
		description: "Executions that failed and were not requeued, messages that the database refused, and messages that could not be decoded. The newest first, by `at`.",
	}, s.listDeadLetters)
}

func (s *server) listDeadLetters(ctx context.Context, in *struct {
	Paging
	OfAccount
	WorkflowID string `query:"workflowId" doc:"Only this workflow's; of a message that could not be decoded, the one in its subject."`
},
) (*listOutput[api.DeadLetter], error) {
	return listed(s.Operate.DeadLetters(ctx, signin.Caller(ctx), operate.DeadLetterFilter{AccountID: in.AccountID, WorkflowID: in.WorkflowID}, in.page()))
}
