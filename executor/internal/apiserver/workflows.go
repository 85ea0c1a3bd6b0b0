package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routeWorkflows(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/workflows", id: "list-workflows", tag: tagWorkflows,
		summary: "List the workflows", description: "By ID; of one account, or of all.",
	}, s.listWorkflows)
	register(to, call{
		method: http.MethodGet, path: "/workflows/{id}", id: "get-workflow", tag: tagWorkflows,
		summary: "Show a workflow", codes: []string{api.CodeNotFound},
	}, s.getWorkflow)
	register(to, call{
		method: http.MethodPut, path: "/workflows/{id}", id: "put-workflow", tag: tagWorkflows,
		summary: "Create or replace a workflow",
		description: "A new one is inactive; of one that exists, `active` stays as it is. A trigger node that stays keeps " +
			"its tokens. Only an inactive workflow can move to another account.",
		codes:     []string{api.CodeInvalid, api.CodeBodyTooLarge, api.CodeNotConfirmed},
		responses: map[string]*huma.Response{"201": response[api.Workflow](to, "Created")},
	}, s.putWorkflow)
	register(to, call{
		method: http.MethodDelete, path: "/workflows/{id}", id: "delete-workflow", tag: tagWorkflows,
		summary: "Delete a workflow", description: "With its tokens and sample payloads. The records of its executions stay.",
		codes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, s.deleteWorkflow)
	register(to, call{
		method: http.MethodPost, path: "/workflows/{id}/activate", id: "activate-workflow", tag: tagWorkflows,
		summary:     "Activate a workflow",
		description: "Its webhooks start executions, from the very next request. Idempotent.",
		codes:       []string{api.CodeNotFound, api.CodePlanLimitExceeded, api.CodeWebhooksNotInPlan, api.CodeNotConfirmed},
	}, s.activateWorkflow)
	register(to, call{
		method: http.MethodPost, path: "/workflows/{id}/deactivate", id: "deactivate-workflow", tag: tagWorkflows,
		summary:     "Deactivate a workflow",
		description: "Its webhooks start nothing, from the very next request. Idempotent.",
		codes:       []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, s.deactivateWorkflow)
}

func (s *server) listWorkflows(ctx context.Context, in *struct {
	Paging
	AccountID string `query:"accountId" doc:"Only this account's."`
},
) (*listOutput[api.Workflow], error) {
	return listed(s.Operate.Workflows(ctx, signin.Caller(ctx), operate.WorkflowFilter{AccountID: in.AccountID}, in.page()))
}

// WorkflowID is the path of a workflow.
type WorkflowID struct {
	ID string `path:"id" doc:"The workflow's ID: 1 to 64 of A-Z a-z 0-9 _ -" example:"orders"`
}

func (s *server) getWorkflow(ctx context.Context, in *WorkflowID) (*output[api.Workflow], error) {
	return answered(s.Operate.Workflow(ctx, signin.Caller(ctx), in.ID))
}

func (s *server) putWorkflow(ctx context.Context, in *struct {
	WorkflowID
	Body api.PutWorkflow
},
) (*putOutput[api.Workflow], error) {
	return stored(s.Operate.PutWorkflow(ctx, signin.Caller(ctx), in.ID, in.Body))
}

func (s *server) deleteWorkflow(ctx context.Context, in *WorkflowID) (*struct{}, error) {
	return nil, s.Operate.DeleteWorkflow(ctx, signin.Caller(ctx), in.ID)
}

func (s *server) activateWorkflow(ctx context.Context, in *WorkflowID) (*output[api.Workflow], error) {
	return answered(s.Operate.Activate(ctx, signin.Caller(ctx), in.ID))
}

func (s *server) deactivateWorkflow(ctx context.Context, in *WorkflowID) (*output[api.Workflow], error) {
	return answered(s.Operate.Deactivate(ctx, signin.Caller(ctx), in.ID))
}
