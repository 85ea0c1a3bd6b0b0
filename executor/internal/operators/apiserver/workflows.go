package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

func (s *server) routeWorkflows(to huma.API) {
	register(to, operationSpec{
		method: http.MethodGet, path: "/workflows", id: "list-workflows", tag: tagWorkflows,
		summary: "List the workflows", description: "By ID; of one account, or of all.",
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		Paging
		AccountID string `query:"accountId" doc:"Selects the workflows of this account."`
	},
	) (api.List[api.Workflow], error) {
		return s.Operate.Workflows(ctx, caller, operate.WorkflowFilter{AccountID: in.AccountID},
			in.page())
	})
	registerOperation(to, operationSpec{
		method: http.MethodGet, path: "/workflows/{id}", id: "get-workflow", tag: tagWorkflows,
		summary: "Show a workflow", problemCodes: []string{api.CodeNotFound},
	}, func(
		ctx context.Context, caller operate.Caller, in *WorkflowIDParam,
	) (*workflowWithETag, error) {
		w, err := s.Operate.Workflow(ctx, caller, in.ID)
		return &workflowWithETag{http.StatusOK, workflowETag(w), w}, err
	})
	registerOperation(to, operationSpec{
		method: http.MethodPut, path: "/workflows/{id}", id: "put-workflow", tag: tagWorkflows,
		summary: "Create or replace a workflow",
		description: "A new one is inactive; of one that exists, `active` stays as it is. A " +
			"trigger node that stays keeps its tokens; one that is left out is deleted with " +
			"them. With the `ETag` of an earlier answer as `If-Match`, only the workflow that it " +
			"is of is replaced, so that nobody's change is undone unseen. With `If-None-Match: " +
			"*`, none is replaced. Only an inactive workflow can move to another account.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeBodyTooLarge, api.CodeNotConfirmed, api.CodeIngressTooOld,
			api.CodeStreamFull, api.CodeQueueMoves,
		},
		responses: map[string]*huma.Response{"201": successResponse[api.Workflow](to, "Created")},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		WorkflowUpdateParams
		IfNoneMatchHeader
		Body api.PutWorkflow
	},
	) (*workflowWithETag, error) {
		put, err := s.Operate.PutWorkflow(ctx, caller, in.ID, in.Body, in.IfNoneMatch != "")
		return &workflowWithETag{
			createdStatus(put.Created),
			workflowETag(put.Value),
			put.Value,
		}, err
	})
	workflow := newPatcher[api.PutWorkflow](to)
	registerPatch[api.PutWorkflow](to, operationSpec{
		path:    "/workflows/{id}",
		id:      "patch-workflow",
		tag:     tagWorkflows,
		summary: "Change a workflow",
		description: "`triggers` is replaced as a whole: a node that stays keeps its tokens and " +
			"its sample payload, one that is left out is deleted.",
		problemCodes: []string{api.CodeIngressTooOld, api.CodeStreamFull, api.CodeQueueMoves},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		WorkflowUpdateParams
		patchBody
	},
	) (*workflowWithETag, error) {
		w, err := s.Operate.PatchWorkflow(ctx, caller, in.ID, workflow.applyFunc(in.RawBody))
		return &workflowWithETag{http.StatusOK, workflowETag(w), w}, err
	})
	registerNoContent(to, operationSpec{
		method:       http.MethodDelete,
		path:         "/workflows/{id}",
		id:           "delete-workflow",
		tag:          tagWorkflows,
		summary:      "Delete a workflow",
		description:  "With its tokens and sample payloads. The records of its executions stay.",
		problemCodes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *WorkflowUpdateParams) error {
		return s.Operate.DeleteWorkflow(ctx, caller, in.ID)
	})
	s.routeActivation(to)
}

// routeActivation registers the calls that activate and deactivate a workflow.
func (s *server) routeActivation(to huma.API) {
	registerOperation(
		to,
		operationSpec{
			method:      http.MethodPost,
			path:        "/workflows/{id}/activate",
			id:          "activate-workflow",
			tag:         tagWorkflows,
			summary:     "Activate a workflow",
			description: "Its webhooks start executions, from the very next request. Idempotent.",
			problemCodes: []string{
				api.CodeNotFound, api.CodePlanLimitExceeded, api.CodeWebhooksNotInPlan,
				api.CodeNotConfirmed,
			},
		},
		func(ctx context.Context, caller operate.Caller,
			in *WorkflowUpdateParams) (*workflowWithETag,
			error,
		) {
			w, err := s.Operate.Activate(ctx, caller, in.ID)
			return &workflowWithETag{http.StatusOK, workflowETag(w), w}, err
		},
	)
	registerOperation(
		to,
		operationSpec{
			method:       http.MethodPost,
			path:         "/workflows/{id}/deactivate",
			id:           "deactivate-workflow",
			tag:          tagWorkflows,
			summary:      "Deactivate a workflow",
			description:  "Its webhooks start nothing, from the very next request. Idempotent.",
			problemCodes: []string{api.CodeNotFound, api.CodeNotConfirmed},
		},
		func(ctx context.Context, caller operate.Caller,
			in *WorkflowUpdateParams) (*workflowWithETag,
			error,
		) {
			w, err := s.Operate.Deactivate(ctx, caller, in.ID)
			return &workflowWithETag{http.StatusOK, workflowETag(w), w}, err
		},
	)
}

// WorkflowIDParam holds the path parameter with a workflow's ID.
type WorkflowIDParam struct {
	ID string `path:"id" doc:"The workflow's ID: 1 to 64 of A-Z a-z 0-9 _ -" example:"orders"`
}

// WorkflowUpdateParams is the input of a call that changes a workflow: the workflow's ID and a
// precondition.
type WorkflowUpdateParams struct {
	WorkflowIDParam
	WorkflowIfMatchHeader
}

// WorkflowIfMatchHeader is the precondition of a call that changes an existing workflow.
type WorkflowIfMatchHeader struct {
	IfMatch string `header:"If-Match" doc:"The ETag of an earlier answer. The workflow is changed only if it still is that version. With the value *, any version is changed, but no workflow is created."`
}

// IfNoneMatchHeader is the precondition of a call that creates a workflow but must not replace an
// existing one.
type IfNoneMatchHeader struct {
	IfNoneMatch string `header:"If-None-Match" enum:"*" doc:"With the value *, a workflow is created but an existing one is not replaced."`
}

// anyVersion is the value of If-Match that every existing object matches.
const anyVersion = "*"

// conditionalInput is implemented by the inputs of calls with a precondition, such as If-Match.
// withCondition returns a copy of ctx that carries the precondition. registerOperation passes this
// context to the handler.
type conditionalInput interface {
	withCondition(ctx context.Context) (context.Context, error)
}

func (c *WorkflowIfMatchHeader) withCondition(ctx context.Context) (context.Context, error) {
	if c.IfMatch == anyVersion {
		return operate.WithWorkflowIfExists(ctx), nil
	}
	version, err := parseWorkflowETag(c.IfMatch)
	return operate.WithWorkflowIfUpdatedAt(ctx, version), err
}

// workflowWithETag is a response with the workflow's ETag, which clients can send as the If-Match
// of later calls.
type workflowWithETag struct {
	Status int
	ETag   string `header:"ETag" doc:"The version of the workflow, for If-Match."`
	Body   api.Workflow
}

// workflowETag returns the entity tag of a workflow, which is derived from the time of its last
// change.
func workflowETag(w api.Workflow) string { return fmt.Sprintf("\"%x\"", w.UpdatedAt.UnixMicro()) }

// parseWorkflowETag parses an entity tag returned by workflowETag. For "" it returns the zero time.
func parseWorkflowETag(tag string) (time.Time, error) {
	if tag == "" {
		return time.Time{}, nil
	}
	digits, isTag := strings.CutPrefix(strings.TrimSuffix(tag, `"`), `"`)
	micros, err := strconv.ParseInt(digits, 16, 64)
	if err != nil || !isTag || micros <= 0 {
		return time.Time{}, invalidFieldsProblem(api.FieldError{
			Field:   "If-Match",
			Problem: "must be one ETag of this workflow, as an earlier answer had it, or *",
		})
	}
	return time.UnixMicro(micros), nil
}
