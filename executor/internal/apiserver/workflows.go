package apiserver

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

func (s *server) routeWorkflows(to huma.API) {
	register(s, to, call{
		method: http.MethodGet, path: "/workflows", id: "list-workflows", tag: tagWorkflows,
		summary: "List the workflows", description: "By ID; of one account, or of all.",
	}, s.listWorkflows)
	register(s, to, call{
		method: http.MethodGet, path: "/workflows/{id}", id: "get-workflow", tag: tagWorkflows,
		summary: "Show a workflow", codes: []string{api.CodeNotFound},
	}, s.getWorkflow)
	register(s, to, call{
		method: http.MethodPut, path: "/workflows/{id}", id: "put-workflow", tag: tagWorkflows,
		summary: "Create or replace a workflow",
		description: "A new one is inactive; of one that exists, `active` stays as it is. A trigger node that stays keeps " +
			"its tokens. Only an inactive workflow can move to another account.",
		codes:     []string{api.CodeInvalid, api.CodeBodyTooLarge, api.CodeNotConfirmed},
		responses: map[string]*huma.Response{"201": response[api.Workflow](to, "Created")},
	}, s.putWorkflow)
	register(s, to, call{
		method: http.MethodDelete, path: "/workflows/{id}", id: "delete-workflow", tag: tagWorkflows,
		summary: "Delete a workflow", description: "With its tokens and sample payloads. The records of its executions stay.",
		codes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, s.deleteWorkflow)
	register(s, to, call{
		method: http.MethodPost, path: "/workflows/{id}/activate", id: "activate-workflow", tag: tagWorkflows,
		summary:     "Activate a workflow",
		description: "Its webhooks start executions, from the very next request. Idempotent.",
		codes:       []string{api.CodeNotFound, api.CodePlanLimitExceeded, api.CodeWebhooksNotInPlan, api.CodeNotConfirmed},
	}, s.activateWorkflow)
	register(s, to, call{
		method: http.MethodPost, path: "/workflows/{id}/deactivate", id: "deactivate-workflow", tag: tagWorkflows,
		summary:     "Deactivate a workflow",
		description: "Its webhooks start nothing, from the very next request. Idempotent.",
		codes:       []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, s.deactivateWorkflow)
}

const workflowsList = "workflows"

func (s *server) listWorkflows(_ context.Context, in *struct {
	Paging
	AccountID string `query:"accountId" doc:"Only this account's."`
},
) (*listOutput[api.Workflow], error) {
	after, err := in.after(workflowsList)
	if err != nil {
		return nil, err
	}
	found := s.Directory.Workflows(in.AccountID, after, in.Limit+1)
	return page(workflowsList, found, in.Limit, s.workflowOnWire, (*hookstartv1.Workflow).GetId), nil
}

// WorkflowID is the path of a workflow.
type WorkflowID struct {
	ID string `path:"id" doc:"The workflow's ID: 1 to 64 of A-Z a-z 0-9 _ -" example:"orders"`
}

type workflowOutput struct {
	Status int
	Body   api.Workflow
}

func (s *server) getWorkflow(_ context.Context, in *WorkflowID) (*workflowOutput, error) {
	have, exists := s.Directory.Workflow(in.ID)
	if !exists {
		return nil, newProblem(api.CodeNotFound, "There is no workflow "+strconv.Quote(in.ID)+".")
	}
	return &workflowOutput{Status: http.StatusOK, Body: s.workflowOnWire(have.Record)}, nil
}

func (s *server) putWorkflow(ctx context.Context, in *struct {
	WorkflowID
	Body api.PutWorkflow
},
) (*workflowOutput, error) {
	spec := registry.WorkflowSpec{
		ID: in.ID, AccountID: in.Body.AccountID, Name: in.Body.Name, Queue: in.Body.Queue,
		RateLimit: rateLimitFromWire(in.Body.RateLimit),
	}
	for _, t := range in.Body.Triggers {
		trigger := registry.TriggerSpec{NodeID: t.NodeID, Name: t.Name}
		if !bytes.Equal(t.SamplePayload, []byte("null")) {
			trigger.SamplePayload = t.SamplePayload
		}
		spec.Triggers = append(spec.Triggers, trigger)
	}
	ctx, cancel := s.changing(ctx)
	defer cancel()
	w, created, err := s.Editor.PutWorkflow(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &workflowOutput{Status: statusOfPut(created), Body: s.workflowOnWire(w)}, nil
}

func (s *server) deleteWorkflow(ctx context.Context, in *WorkflowID) (*struct{}, error) {
	ctx, cancel := s.changing(ctx)
	defer cancel()
	return nil, s.Editor.DeleteWorkflow(ctx, in.ID)
}

func (s *server) activateWorkflow(ctx context.Context, in *WorkflowID) (*workflowOutput, error) {
	return s.switchWorkflow(ctx, in.ID, s.Editor.Activate)
}

func (s *server) deactivateWorkflow(ctx context.Context, in *WorkflowID) (*workflowOutput, error) {
	return s.switchWorkflow(ctx, in.ID, s.Editor.Deactivate)
}

func (s *server) switchWorkflow(ctx context.Context, id string, to func(context.Context, string) (*hookstartv1.Workflow, error)) (*workflowOutput, error) {
	ctx, cancel := s.changing(ctx)
	defer cancel()
	w, err := to(ctx, id)
	if err != nil {
		return nil, err
	}
	return &workflowOutput{Status: http.StatusOK, Body: s.workflowOnWire(w)}, nil
}

func (s *server) workflowOnWire(w *hookstartv1.Workflow) api.Workflow {
	wire := api.Workflow{
		ID: w.GetId(), AccountID: w.GetAccountId(), Name: w.GetName(), Queue: w.GetQueue(), Active: w.GetActive(),
		Triggers:  make([]api.WorkflowTrigger, 0, len(w.GetTriggers())),
		CreatedAt: w.GetCreatedAt().AsTime(), UpdatedAt: w.GetUpdatedAt().AsTime(), PlanRefusal: s.planRefusal(w),
	}
	if w.GetActivatedAt() != nil {
		wire.ActivatedAt = w.GetActivatedAt().AsTime()
	}
	if w.GetRateLimit() != nil {
		wire.RateLimit = rateLimitOnWire(w.GetRateLimit())
	}
	for _, t := range w.GetTriggers() {
		wire.Triggers = append(wire.Triggers, api.WorkflowTrigger{NodeID: t.GetNodeId(), Name: t.GetName()})
	}
	return wire
}

// planRefusal is why an active workflow's webhooks are refused all the same; "": they are not.
func (s *server) planRefusal(w *hookstartv1.Workflow) string {
	view, known := s.Directory.Lookup(w.GetId())
	switch {
	case !w.GetActive() || !known || !view.Workflow.Active:
		return ""
	case !view.PlanHasWebhooks():
		return api.CodeWebhooksNotInPlan
	case !view.WithinPlan:
		return api.CodePlanLimitExceeded
	default:
		return ""
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
