package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/shared/execution"
)

func (s *server) routeExecutions(to huma.API) {
	register(to, operationSpec{
		method:      http.MethodGet,
		path:        "/executions",
		id:          "list-executions",
		tag:         tagExecutions,
		summary:     "List the executions",
		description: "The newest first, by `acceptedAt`. All filters must match.",
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		ListInput
		WorkflowID string    `query:"workflowId"`
		Status     string    `query:"status" enum:"queued,running,succeeded,failed,rejected,canceled"`
		Source     string    `query:"source" enum:"webhook,rerun,event"`
		DeliveryID string    `query:"deliveryId" doc:"Selects the executions with this delivery ID of the sender."`
		Since      time.Time `query:"since" doc:"Selects the executions that were accepted at this time or later."`
		Until      time.Time `query:"until" doc:"Selects the executions that were accepted before this time."`
	},
	) (list api.List[api.Execution], err error) {
		found, err := s.Operate.Executions(ctx, caller, operate.ExecutionFilter{
			AccountID:  in.AccountID,
			WorkflowID: in.WorkflowID,
			Status:     execution.Status(in.Status),
			Source:     execution.Source(in.Source),
			DeliveryID: in.DeliveryID,
			Since:      in.Since,
			Until:      in.Until,
		}, in.page())
		list = api.List[api.Execution]{
			Items:      make([]api.Execution, len(found.Items)),
			NextCursor: found.NextCursor,
		}
		for i, item := range found.Items {
			list.Items[i] = item.Execution
		}
		return list, err
	})
	register(to, operationSpec{
		method:       http.MethodGet,
		path:         "/executions/{id}",
		id:           "get-execution",
		tag:          tagExecutions,
		summary:      "Show an execution",
		description:  "With what the workflow got and what it returned.",
		problemCodes: []string{api.CodeNotFound},
	}, func(
		ctx context.Context, caller operate.Caller, in *ExecutionIDParam,
	) (api.ExecutionDetail, error) {
		found, err := s.Operate.ExecutionDetail(ctx, caller, in.ID)
		return apiExecutionDetail(found), err
	})
}

// routeExecutionActions registers the calls that start executions again or cancel them.
//
//nolint:funlen // the list of calls
func (s *server) routeExecutionActions(to, fixedPaths huma.API) {
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/executions/{id}/rerun",
		id:      "rerun-execution",
		tag:     tagExecutions,
		summary: "Run an execution's trigger again",
		description: "On the trigger node's configured sample payload, not on the original body. " +
			"Neither the plan nor `active` keeps it from starting.",
		problemCodes: []string{api.CodeNotFound, api.CodeSamplePayloadMissing},
	}, func(ctx context.Context, caller operate.Caller, in *ExecutionIDParam) (api.Started, error) {
		return s.Operate.RerunExecution(ctx, caller, in.ID, "")
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/executions/{id}/replay",
		id:      "replay-execution",
		tag:     tagExecutions,
		summary: "Replay an execution on its original request",
		description: "Starts a new execution, with `replayOf`, on the body, headers and query of " +
			"one that `succeeded`, `failed` or was `rejected`. " +
			"Each call starts another, unless it repeats the `Idempotency-Key` of an earlier " +
			"one: then it answers the same `executionId` and starts " +
			"nothing. Account and queue are the workflow's of now. Neither the plan nor `active` " +
			"keeps it from starting.",
		problemCodes: []string{
			api.CodeForbidden, api.CodeNotFound, api.CodeNotFinished, api.CodeInputExpired,
			api.CodeBodyNotKept,
		},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		ExecutionIDParam
		Key string `header:"Idempotency-Key" maxLength:"255" doc:"A key that the client chooses. A repeated call with the same key starts nothing."`
	},
	) (api.Started, error) {
		return s.Operate.ReplayExecution(ctx, caller, in.ID, in.Key)
	})
	register(fixedPaths, operationSpec{
		method:  http.MethodPost,
		path:    "/executions/replay",
		id:      "replay-rejected",
		tag:     tagExecutions,
		summary: "Replay many rejected executions",
		description: "For what arrived while a workflow was not active: starts an execution for " +
			"each that matches, the oldest first, at most 10,000. Each is replayed once, however " +
			"often this is called; another `Idempotency-Key` replays them once more. What cannot " +
			"be replayed is counted in `left`.",
		problemCodes: []string{api.CodeForbidden, api.CodeBodyTooLarge},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		Key  string `header:"Idempotency-Key" maxLength:"255" doc:"A key that the client chooses. A repeated call with the same key replays nothing again; with another key, everything is replayed again."`
		Body api.ReplayRejected
	},
	) (api.Replayed, error) {
		body := in.Body
		return s.Operate.ReplayRejected(ctx, caller, operate.ExecutionFilter{
			AccountID:  body.AccountID,
			WorkflowID: body.WorkflowID,
			Since:      body.Since,
			Until:      body.Until,
		}, in.Key)
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/executions/{id}/cancel",
		id:      "cancel-execution",
		tag:     tagExecutions,
		summary: "Cancel an execution",
		description: "One that no runner was given is `canceled` at once, and no handler ever " +
			"begins with it. One that a runner was given gets `cancelRequestedAt`: " +
			"the runner ends it, or it comes to its own end first. A repeat of the call answers " +
			"the same, until it has ended.",
		problemCodes: []string{api.CodeNotFound, api.CodeAlreadyEnded},
	}, func(
		ctx context.Context, caller operate.Caller, in *ExecutionIDParam,
	) (api.Execution, error) {
		canceled, err := s.Operate.CancelExecution(ctx, caller, in.ID)
		return canceled.Execution, err
	})
	register(fixedPaths, operationSpec{
		method:  http.MethodPost,
		path:    "/executions/cancel",
		id:      "cancel-executions",
		tag:     tagExecutions,
		summary: "Cancel many executions",
		description: "By their IDs, or all of a workflow that have not ended, the oldest first, " +
			"at most 10,000. It can be repeated.",
		problemCodes: []string{api.CodeForbidden, api.CodeBodyTooLarge},
	},
		func(ctx context.Context, caller operate.Caller,
			in *struct{ Body api.CancelExecutions },
		) (api.Canceled, error) {
			body := in.Body
			return s.Operate.CancelExecutions(ctx, caller, operate.CancelSelection{
				IDs: body.IDs,
				Filter: operate.ExecutionFilter{
					WorkflowID: body.WorkflowID,
					Status:     execution.Status(body.Status),
					Since:      body.Since,
					Until:      body.Until,
				},
			})
		})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/executions/{id}/requeue",
		id:      "requeue-execution",
		tag:     tagDeadLetters,
		summary: "Requeue a dead letter",
		description: "Starts a new execution on the original's body, headers and query, with " +
			"`rerunOf` the original, which stays `failed`, gets `requeuedAs` and is a dead " +
			"letter no more. A repeat of the call answers the same `executionId` and starts " +
			"nothing. Account and queue are the workflow's of now. Neither the plan nor `active` " +
			"keeps it from starting. With `message-` and the stream sequence of a message that " +
			"was put aside, it makes the record that is missing, under the execution ID that the " +
			"sender was told; nothing is started, for runners got the message all the same.",
		problemCodes: []string{
			api.CodeNotFound, api.CodeNotFailed, api.CodeInputExpired, api.CodeUndecodable,
			api.CodeRefused,
		},
	}, func(ctx context.Context, caller operate.Caller, in *ExecutionIDParam) (api.Started, error) {
		return s.Operate.RequeueExecution(ctx, caller, in.ID)
	})
}

// ExecutionIDParam holds the path parameter with an execution's ID.
type ExecutionIDParam struct {
	ID string `path:"id" doc:"The execution's ID."`
}

func apiExecutionDetail(found operate.ExecutionDetail) api.ExecutionDetail {
	detail := api.ExecutionDetail{
		Execution:    found.Execution.Execution,
		Output:       found.Output,
		Input:        found.Input,
		InputExpired: found.InputExpired,
		OrderKey:     found.OrderKey,
		StoredAt:     found.StoredAt.Truncate(time.Microsecond),
		Headers:      apiValues(found.Headers),
		Query:        apiValues(found.Query),
	}
	if found.Error != "" {
		detail.Error = &found.Error
	}
	return detail
}

func apiValues(values execution.Values) map[string][]string {
	if values == nil {
		return map[string][]string{}
	}
	return values
}
