package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

func (s *server) routeDeadLetters(to huma.API) {
	register(to, operationSpec{
		method: http.MethodGet, path: "/dead-letters", id: "list-dead-letters", tag: tagDeadLetters,
		summary: "List the dead letters",
		description: "Executions that failed and were neither requeued nor dismissed, messages " +
			"that the database refused, and messages that could not be decoded. The newest " +
			"first, by `at`.",
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		ListInput
		WorkflowID string    `query:"workflowId" doc:"Selects the dead letters of this workflow, including messages that could not be decoded but have the workflow in their subject."`
		Reason     string    `query:"reason" doc:"Selects the dead letters whose reason contains this text. Upper and lower case are distinguished."`
		Since      time.Time `query:"since" doc:"Selects the dead letters that were accepted at this time or later."`
		Until      time.Time `query:"until" doc:"Selects the dead letters that were accepted before this time."`
	},
	) (api.List[api.DeadLetter], error) {
		return s.Operate.DeadLetters(ctx, caller, operate.DeadLetterFilter{
			AccountID:  in.AccountID,
			WorkflowID: in.WorkflowID,
			Reason:     in.Reason,
			Since:      in.Since,
			Until:      in.Until,
		}, in.page())
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/dead-letters/requeue",
		id:      "requeue-dead-letters",
		tag:     tagDeadLetters,
		summary: "Requeue many dead letters",
		description: "Those of `ids`, or all that match the filter, at most 10,000, the oldest " +
			"first; see requeue-execution. Repeats, calls at the same time and a crash in the " +
			"middle do no harm: each is requeued once. What cannot be requeued stays on the " +
			"list, and is counted in `left`.",
		problemCodes: []string{api.CodeForbidden, api.CodeBodyTooLarge},
	},
		func(ctx context.Context, caller operate.Caller,
			in *struct{ Body api.SelectDeadLetters },
		) (api.Requeued, error) {
			return s.Operate.RequeueDeadLetters(ctx, caller, deadLetterSelection(in.Body))
		})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/dead-letters/dismiss",
		id:      "dismiss-dead-letters",
		tag:     tagDeadLetters,
		summary: "Dismiss many dead letters",
		description: "Takes those of `ids`, or all that match the filter, off the list, at most " +
			"10,000. Executions stay `failed`, with `dismissedAt`.",
		problemCodes: []string{api.CodeForbidden, api.CodeBodyTooLarge},
	},
		func(ctx context.Context, caller operate.Caller,
			in *struct{ Body api.SelectDeadLetters },
		) (api.Dismissed, error) {
			return s.Operate.DismissDeadLetters(ctx, caller, deadLetterSelection(in.Body))
		})
}

func deadLetterSelection(selected api.SelectDeadLetters) operate.DeadLetterSelection {
	return operate.DeadLetterSelection{IDs: selected.IDs, Filter: operate.DeadLetterFilter{
		AccountID:  selected.AccountID,
		WorkflowID: selected.WorkflowID,
		Reason:     selected.Reason,
		Since:      selected.Since,
		Until:      selected.Until,
	}}
}
