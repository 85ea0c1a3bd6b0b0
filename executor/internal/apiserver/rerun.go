package apiserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

type startedOutput struct {
	Body api.Started
}

func (s *server) rerunTrigger(ctx context.Context, in *TriggerID) (*startedOutput, error) {
	return s.rerun(ctx, in.ID, in.NodeID, "")
}

func (s *server) rerunExecution(ctx context.Context, in *ExecutionID) (*startedOutput, error) {
	record, err := s.record(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out, err := s.rerun(ctx, record.WorkflowID, record.NodeID, record.ID)
	if errors.Is(err, registry.ErrNotFound) {
		gone := strings.TrimSuffix(err.Error(), ": "+registry.ErrNotFound.Error())
		return nil, newProblem(api.CodeNotFound, "The execution cannot run again: its "+gone+" is gone.")
	}
	return out, err
}

// rerun starts an execution on a node's sample payload. It returns when the stream has
// confirmed that the start is stored.
func (s *server) rerun(ctx context.Context, workflowID, nodeID, rerunOf string) (out *startedOutput, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	trigger, err := s.Editor.Trigger(ctx, workflowID, nodeID)
	if err != nil {
		return nil, err
	}
	if trigger.SamplePayload == nil {
		return nil, fmt.Errorf("trigger node %q of workflow %q: %w", nodeID, workflowID, registry.ErrNoSample)
	}
	payload, err := execution.NewPayload("application/json", trigger.SamplePayload)
	if err != nil {
		return nil, fmt.Errorf("the sample payload of trigger node %q of workflow %q: %w", nodeID, workflowID, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an execution ID: %w", err)
	}
	traceparent, endSpan := s.startTrace(ctx, stream.StartSubject(trigger.Workflow.GetQueue(), workflowID, nodeID), id.String())
	defer func() { endSpan(err) }()
	msg, err := stream.StartMessage(execution.Start{
		ID:         id.String(),
		WorkflowID: workflowID,
		NodeID:     nodeID,
		AccountID:  trigger.Workflow.GetAccountId(),
		Queue:      trigger.Workflow.GetQueue(),
		Source:     execution.Rerun,
		RerunOf:    rerunOf,
		AcceptedAt: time.Now().UTC().Truncate(time.Microsecond),
		Payload:    payload,
		Trace:      traceparent,
	})
	if err != nil {
		return nil, err
	}
	if _, err := s.JetStream.PublishMsg(ctx, msg); err != nil {
		return nil, fmt.Errorf("%w: publish a rerun: %w", errAway, err)
	}
	return &startedOutput{api.Started{ExecutionID: id.String()}}, nil
}

// startTrace begins a trace, for nobody called who had one, and returns its W3C
// traceparent. end is told what came of it.
func (s *server) startTrace(ctx context.Context, subject, executionID string) (traceparent string, end func(error)) {
	if s.Tracer == nil {
		var ids [24]byte
		_, _ = rand.Read(ids[:]) // never fails: crypto/rand says so
		return "00-" + hex.EncodeToString(ids[:16]) + "-" + hex.EncodeToString(ids[16:]) + "-00", func(error) {}
	}
	ctx, span := tracing.StartSend(ctx, s.Tracer, subject, executionID)
	return tracing.Traceparent(ctx), func(err error) {
		if err != nil {
			tracing.Fail(span, "not_stored", err.Error())
		}
		span.End()
	}
}
