package operate

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// Execution is an execution record with fields that the API's lists do not include.
type Execution struct {
	api.Execution
	// Error is the reason for the failure, the code of the rejection, or what the runner reported
	// when the execution was canceled. It is "" if none of these applies.
	Error     string
	IsRequeue bool // whether it replaces another execution that was requeued
}

// ExecutionDetail is an execution record with its request from the stream and the output reported
// by its runner.
type ExecutionDetail struct {
	Execution
	Input          []byte             // JSON; nil if there is no readable body, or if InputExpired
	InputExpired   bool               // whether the execution's message is no longer in the stream
	StoredAt       time.Time          // when the stream stored the message; zero if InputExpired
	Headers, Query execution.Values   // empty if InputExpired
	Output         []byte             // JSON; nil if there is none
	Recognized     RecognizedProvider // what the request reveals about its provider
	OrderKey       string             // "" if the execution is not ordered, or if InputExpired
}

// ExecutionFilter selects executions. A field with its zero value does not filter.
type ExecutionFilter = store.RecordFilter

const executionsCursorKind = "executions"

// Executions lists the execution records that match a filter, newest first.
func (s *Service) Executions(
	ctx context.Context, caller Caller, filter ExecutionFilter, page PageOptions,
) (api.List[Execution], error) {
	return runRead(ctx, s, caller, newAccessRule("Executions",
		narrowToCallerAccount(&filter.AccountID)),
		func(ctx context.Context) (none api.List[Execution], err error) {
			at, id, err := page.cursorTimePosition(executionsCursorKind, 1)
			if err != nil {
				return none, err
			}
			found, err := s.config.Store.List(ctx, filter, store.RecordPosition{
				AcceptedAt: at,
				ID:         id[0],
			}, page.Limit+1)
			if err != nil {
				return none, err
			}
			return newListPage(
				executionsCursorKind,
				found,
				page,
				executionOf,
				func(r store.Record) string {
					return encodeTimePosition(r.AcceptedAt, r.ID)
				},
			), nil
		})
}

// Execution returns the record of an execution, without its input. An execution that was just
// started may not be recorded yet; the error then has the code api.CodeNotFound.
func (s *Service) Execution(ctx context.Context, caller Caller, id string) (Execution, error) {
	return runRead(ctx, s, caller, newAccessRule("Execution", accessToExecution(id)),
		func(ctx context.Context) (Execution, error) {
			record, err := s.record(ctx, id)
			return executionOf(record), err
		})
}

// ExecutionDetail returns the record of an execution together with its input and output. If the
// stream is unavailable, it returns an error rather than report the input as expired.
func (s *Service) ExecutionDetail(
	ctx context.Context, caller Caller, id string,
) (ExecutionDetail, error) {
	return runRead(ctx, s, caller, newAccessRule("ExecutionDetail", accessToExecution(id)),
		func(ctx context.Context) (none ExecutionDetail, err error) {
			record, err := s.record(ctx, id)
			if err != nil {
				return none, err
			}
			request, err := s.readStoredRequest(ctx, record)
			if err != nil {
				return none, err
			}
			return ExecutionDetail{
				Execution:    executionOf(record),
				Output:       record.Output,
				Recognized:   request.recognizeProvider(),
				OrderKey:     request.orderKey,
				Input:        request.payload.WorkflowInput(),
				InputExpired: request.expired(),
				StoredAt:     request.storedAt,
				Headers:      request.headers,
				Query:        request.query,
			}, nil
		})
}

func (s *Service) record(ctx context.Context, id string) (store.Record, error) {
	record, err := s.config.Store.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return record, executionNotFoundError(id)
	}
	return record, err
}

func executionNotFoundError(id string) error {
	return notFoundError("execution", id, " One that was just started is recorded in a moment.")
}

func executionOf(r store.Record) Execution {
	return Execution{Error: r.Error, IsRequeue: r.IsRequeue(), Execution: api.Execution{
		ExecutionID:       r.ID,
		AccountID:         r.AccountID,
		WorkflowID:        r.WorkflowID,
		NodeID:            r.NodeID,
		Source:            string(r.Source),
		Status:            string(r.Status),
		DeliveryID:        r.DeliveryID,
		Sender:            r.Sender,
		Verified:          r.Verified,
		RerunOf:           r.RerunOf,
		ReplayOf:          r.ReplayOf,
		RequeuedAs:        r.RequeuedAs,
		DismissedAt:       r.DismissedAt,
		CancelRequestedAt: r.CancelRequestedAt,
		AcceptedAt:        r.AcceptedAt,
		RecordedAt:        r.RecordedAt,
		StartedAt:         r.StartedAt,
		FinishedAt:        r.FinishedAt,
		ContentType:       r.ContentType,
		BodyBytes:         r.BodyBytes,
		Duplicates:        r.Duplicates,
		Queue:             r.Queue,
		Attempts:          r.Attempts,
		StreamSequence:    r.StreamSequence,
	}}
}

// storedRequest is the request that started an execution, as stored in the stream.
type storedRequest struct {
	storedAt       time.Time         // zero if the message is no longer in the stream
	payload        execution.Payload // empty if the body was not read
	headers, query execution.Values
	senderPreset   string // the preset of the node's sender when the request arrived
	verified       bool   // whether the sender was verified
	orderKey       string // "" if the execution is not ordered
}

func (r storedRequest) expired() bool { return r.storedAt.IsZero() }

// readStoredRequest reads the request from an execution's message. If the message no longer exists,
// it returns the zero storedRequest, for which expired returns true.
func (s *Service) readStoredRequest(ctx context.Context, r store.Record) (storedRequest, error) {
	msg, err := s.startStreams.GetStart(ctx, r.Queue, r.StreamSequence, r.ID)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return storedRequest{}, nil
	}
	if err != nil {
		return storedRequest{}, err
	}
	storedAt := msg.Time
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	switch {
	case err != nil:
		//nolint:nilerr // a message that cannot be decoded has no request
		return storedRequest{}, nil
	case event.Start != nil && event.Start.ID == r.ID:
		s := event.Start
		return storedRequest{
				storedAt,
				s.Payload,
				s.Headers,
				s.Query,
				s.Sender,
				s.Verified,
				s.OrderKey,
			},
			nil
	case event.Rejection != nil && event.Rejection.ID == r.ID:
		s := event.Rejection
		return storedRequest{storedAt, s.Payload, s.Headers, s.Query, s.Sender, s.Verified, ""}, nil
	default:
		// The stream was recreated after the execution was recorded, so it has another message at
		// that sequence.
		return storedRequest{}, nil
	}
}
