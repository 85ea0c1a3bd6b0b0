package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

func (s *server) routeExecutions(to huma.API) {
	register(s, to, call{
		method: http.MethodGet, path: "/executions", id: "list-executions", tag: tagExecutions,
		summary: "List the executions", description: "The newest first, by `acceptedAt`. All filters must match.",
	}, s.listExecutions)
	register(s, to, call{
		method: http.MethodGet, path: "/executions/{id}", id: "get-execution", tag: tagExecutions,
		summary: "Show an execution", description: "With what the workflow got and what it returned.",
		codes: []string{api.CodeNotFound},
	}, s.getExecution)
	register(s, to, call{
		method: http.MethodPost, path: "/executions/{id}/rerun", id: "rerun-execution", tag: tagExecutions,
		summary: "Run an execution's trigger again",
		description: "On the trigger node's configured sample payload, not on the original body. Neither the plan nor " +
			"`active` keeps it from starting.",
		codes: []string{api.CodeNotFound, api.CodeSamplePayloadMissing},
	}, s.rerunExecution)
	register(s, to, call{
		method: http.MethodPost, path: "/executions/{id}/requeue", id: "requeue-execution", tag: tagDeadLetters,
		summary: "Requeue a failed execution",
		description: "Starts a new execution on the original's body, headers and query, with `rerunOf` the original, which stays " +
			"`failed`, gets `requeuedAs` and is a dead letter no more. A repeat of the call answers the same `executionId` and starts " +
			"nothing. Account and queue are the workflow's of now. Neither the plan nor `active` keeps it from starting.",
		codes: []string{api.CodeNotFound, api.CodeNotFailed, api.CodeInputExpired, api.CodeUndecodable},
	}, s.requeueExecution)
}

const executionsList = "executions"

func (s *server) listExecutions(ctx context.Context, in *struct {
	Paging
	WorkflowID string    `query:"workflowId"`
	Status     string    `query:"status" enum:"queued,running,succeeded,failed,rejected"`
	Source     string    `query:"source" enum:"webhook,rerun"`
	DeliveryID string    `query:"deliveryId" doc:"The sender's delivery ID."`
	Since      time.Time `query:"since" doc:"Accepted then or later."`
	Until      time.Time `query:"until" doc:"Accepted before."`
},
) (*listOutput[api.Execution], error) {
	after, err := executionPosition(in.Paging)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := s.Store.List(ctx, store.Filter{
		WorkflowID: in.WorkflowID, Status: execution.Status(in.Status), Source: execution.Source(in.Source),
		DeliveryID: in.DeliveryID, Since: in.Since, Until: in.Until,
	}, after, in.Limit+1)
	if err != nil {
		return nil, s.databaseError(ctx, err)
	}
	return page(executionsList, found, in.Limit, executionOnWire, positionText), nil
}

// positionText is where a page of executions ends: stored times are whole microseconds.
func positionText(r store.Record) string {
	return strconv.FormatInt(r.AcceptedAt.UnixMicro(), 10) + " " + r.ID
}

func executionPosition(in Paging) (store.Position, error) {
	text, err := in.after(executionsList)
	if err != nil || text == "" {
		return store.Position{}, err
	}
	micros, id, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || id == "" {
		return store.Position{}, badCursor()
	}
	return store.Position{AcceptedAt: time.UnixMicro(at).UTC(), ID: id}, nil
}

// ExecutionID is the path of an execution.
type ExecutionID struct {
	ID string `path:"id" doc:"The execution's ID."`
}

type executionOutput struct {
	Body api.ExecutionDetail
}

func (s *server) getExecution(ctx context.Context, in *ExecutionID) (*executionOutput, error) {
	record, err := s.record(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	request, err := s.request(ctx, record)
	if err != nil {
		return nil, err
	}
	detail := api.ExecutionDetail{
		Execution: executionOnWire(record), Output: record.Output,
		Input: request.payload.Input(), InputExpired: request.expired,
		Headers: valuesOnWire(request.headers), Query: valuesOnWire(request.query),
	}
	if record.Error != "" {
		detail.Error = &record.Error
	}
	return &executionOutput{detail}, nil
}

func (s *server) record(ctx context.Context, id string) (store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	record, err := s.Store.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return record, newProblem(api.CodeNotFound, "There is no execution "+strconv.Quote(id)+". One that was just started is recorded in a moment.")
	}
	return record, s.databaseError(ctx, err)
}

func executionOnWire(r store.Record) api.Execution {
	return api.Execution{
		ExecutionID: r.ID, AccountID: r.AccountID, WorkflowID: r.WorkflowID, NodeID: r.NodeID,
		Source: string(r.Source), Status: string(r.Status), DeliveryID: r.DeliveryID, RerunOf: r.RerunOf, RequeuedAs: r.RequeuedAs,
		AcceptedAt: r.AcceptedAt, RecordedAt: r.RecordedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		ContentType: r.ContentType, BodyBytes: r.BodyBytes, Duplicates: r.Duplicates, StreamSequence: r.StreamSequence,
	}
}

func valuesOnWire(values execution.Values) map[string][]string {
	if values == nil {
		return map[string][]string{}
	}
	return values
}
