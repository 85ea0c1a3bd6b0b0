package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
	"github.com/hookstart/hookstart/shared/execution"
)

func (s *server) routeExecutions(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/executions", id: "list-executions", tag: tagExecutions,
		summary: "List the executions", description: "The newest first, by `acceptedAt`. All filters must match.",
	}, s.listExecutions)
	register(to, call{
		method: http.MethodGet, path: "/executions/{id}", id: "get-execution", tag: tagExecutions,
		summary: "Show an execution", description: "With what the workflow got and what it returned.",
		codes: []string{api.CodeNotFound},
	}, s.getExecution)
	register(to, call{
		method: http.MethodPost, path: "/executions/{id}/rerun", id: "rerun-execution", tag: tagExecutions,
		summary: "Run an execution's trigger again",
		description: "On the trigger node's configured sample payload, not on the original body. Neither the plan nor " +
			"`active` keeps it from starting.",
		codes: []string{api.CodeNotFound, api.CodeSamplePayloadMissing},
	}, s.rerunExecution)
	register(to, call{
		method: http.MethodPost, path: "/executions/{id}/requeue", id: "requeue-execution", tag: tagDeadLetters,
		summary: "Requeue a dead letter",
		description: "Starts a new execution on the original's body, headers and query, with `rerunOf` the original, which stays " +
			"`failed`, gets `requeuedAs` and is a dead letter no more. A repeat of the call answers the same `executionId` and starts " +
			"nothing. Account and queue are the workflow's of now. Neither the plan nor `active` keeps it from starting. " +
			"With `message-` and the stream sequence of a message that was put aside, it makes the record that is missing, under the " +
			"execution ID that the sender was told; nothing is started, for runners got the message all the same.",
		codes: []string{api.CodeNotFound, api.CodeNotFailed, api.CodeInputExpired, api.CodeUndecodable, api.CodeRefused},
	}, s.requeueExecution)
}

func (s *server) listExecutions(ctx context.Context, in *struct {
	Paging
	OfAccount
	WorkflowID string    `query:"workflowId"`
	Status     string    `query:"status" enum:"queued,running,succeeded,failed,rejected"`
	Source     string    `query:"source" enum:"webhook,rerun"`
	DeliveryID string    `query:"deliveryId" doc:"The sender's delivery ID."`
	Since      time.Time `query:"since" doc:"Accepted then or later."`
	Until      time.Time `query:"until" doc:"Accepted before."`
},
) (*listOutput[api.Execution], error) {
	found, err := s.Operate.Executions(ctx, signin.Caller(ctx), operate.ExecutionFilter{
		AccountID: in.AccountID, WorkflowID: in.WorkflowID, Status: in.Status, Source: in.Source, DeliveryID: in.DeliveryID, Since: in.Since, Until: in.Until,
	}, in.page())
	if err != nil {
		return nil, err
	}
	out := &listOutput[api.Execution]{api.List[api.Execution]{Items: make([]api.Execution, len(found.Items)), NextCursor: found.NextCursor}}
	for i, one := range found.Items {
		out.Body.Items[i] = one.Execution
	}
	return out, nil
}

// ExecutionID is the path of an execution.
type ExecutionID struct {
	ID string `path:"id" doc:"The execution's ID."`
}

func (s *server) getExecution(ctx context.Context, in *ExecutionID) (*output[api.ExecutionDetail], error) {
	found, err := s.Operate.ExecutionDetail(ctx, signin.Caller(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	detail := api.ExecutionDetail{
		Execution: found.Execution.Execution, Output: found.Output, Input: found.Input, InputExpired: found.InputExpired,
		Headers: valuesOnWire(found.Headers), Query: valuesOnWire(found.Query),
	}
	if found.Error != "" {
		detail.Error = &found.Error
	}
	return &output[api.ExecutionDetail]{detail}, nil
}

func (s *server) rerunExecution(ctx context.Context, in *ExecutionID) (*output[api.Started], error) {
	return answered(s.Operate.RerunExecution(ctx, signin.Caller(ctx), in.ID))
}

func (s *server) requeueExecution(ctx context.Context, in *ExecutionID) (*output[api.Started], error) {
	return answered(s.Operate.RequeueExecution(ctx, signin.Caller(ctx), in.ID))
}

func valuesOnWire(values execution.Values) map[string][]string {
	if values == nil {
		return map[string][]string{}
	}
	return values
}
