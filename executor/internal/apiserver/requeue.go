package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// requeueExecution starts a failed execution's body again, once: the new ID is made of the
// original's, and is the message's ID, too. So whoever asks twice, or at the same time, or
// after a crash between the publishing and the marking, gets the same execution.
func (s *server) requeueExecution(ctx context.Context, in *ExecutionID) (*startedOutput, error) {
	if strings.HasPrefix(in.ID, messagePrefix) {
		return nil, newProblem(api.CodeUndecodable, "")
	}
	// A client that goes away does not break it off between the two.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*readTimeout)
	defer cancel()
	record, err := s.record(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if record.Status != execution.Failed {
		return nil, newProblem(api.CodeNotFailed, fmt.Sprintf("The execution is %s. Only one that has failed can be requeued.", record.Status))
	}
	as := execution.IDForRequeue(record.ID)
	if record.RequeuedAs != "" {
		return &startedOutput{api.Started{ExecutionID: record.RequeuedAs}}, nil
	}
	// The stream forgets message IDs after a while, the database does not.
	_, err = s.Store.Get(ctx, as)
	if errors.Is(err, store.ErrNotFound) {
		err = s.startAgain(ctx, record, as)
	} else {
		err = s.databaseError(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	marked, err := s.Store.MarkRequeued(ctx, record.ID, as)
	if err != nil {
		return nil, s.databaseError(ctx, err)
	}
	if marked {
		_ = s.Changes.Tell([]string{record.ID}) // watchers who miss it see it when they look
	}
	return &startedOutput{api.Started{ExecutionID: as}}, nil
}

// startAgain publishes the start of an execution with another's body, headers and query.
// It returns when the stream has confirmed that it is stored.
func (s *server) startAgain(ctx context.Context, of store.Record, as string) (err error) {
	original, err := s.request(ctx, of)
	if err != nil {
		return err
	}
	if original.expired {
		return newProblem(api.CodeInputExpired, "")
	}
	trigger, err := s.Editor.Trigger(ctx, of.WorkflowID, of.NodeID)
	if errors.Is(err, registry.ErrNotFound) {
		return newProblem(api.CodeNotFound, "The execution cannot run again: its "+strings.TrimSuffix(err.Error(), ": "+registry.ErrNotFound.Error())+" is gone.")
	}
	if err != nil {
		return err
	}
	traceparent, endSpan := s.startTrace(ctx, stream.StartSubject(trigger.Workflow.GetQueue(), of.WorkflowID, of.NodeID), as)
	defer func() { endSpan(err) }()
	msg, err := stream.StartMessage(execution.Start{
		ID:         as,
		WorkflowID: of.WorkflowID,
		NodeID:     of.NodeID,
		AccountID:  trigger.Workflow.GetAccountId(),
		Queue:      trigger.Workflow.GetQueue(),
		Source:     execution.Rerun,
		RerunOf:    of.ID,
		AcceptedAt: time.Now().UTC().Truncate(time.Microsecond),
		Payload:    original.payload,
		Headers:    original.headers,
		Query:      original.query,
		Trace:      traceparent,
	})
	if err != nil {
		return err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{as}
	ack, err := s.JetStream.PublishMsg(ctx, msg)
	if err == nil && ack.Duplicate && !s.isStart(ctx, ack.Sequence, as) {
		// Something else has used the ID up: then it starts without one.
		delete(msg.Header, jetstream.MsgIDHeader)
		_, err = s.JetStream.PublishMsg(ctx, msg)
	}
	if err != nil {
		return fmt.Errorf("%w: publish a requeued start: %w", errAway, err)
	}
	return nil
}

// isStart says whether a message is the start of an execution. A message that cannot be
// read now counts as one: it has the ID.
func (s *server) isStart(ctx context.Context, sequence uint64, id string) bool {
	from, err := s.executionsStream(ctx)
	if err != nil {
		return true
	}
	msg, err := from.GetMsg(ctx, sequence)
	if err != nil {
		return !errors.Is(err, jetstream.ErrMsgNotFound)
	}
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	return err == nil && event.Start != nil && event.Start.ID == id
}
