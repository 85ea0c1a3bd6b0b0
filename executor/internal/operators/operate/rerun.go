package operate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/tracing"
)

// RerunTrigger starts an execution with a trigger node's sample payload. It returns when the stream
// has stored the start message. A repeated call with the same idempotency key returns the first
// call's execution, unless the sample payload has changed since the first call. Without a key (""),
// each call starts another execution.
func (s *Service) RerunTrigger(
	ctx context.Context, caller Caller, workflowID, nodeID, key string,
) (api.Started, error) {
	return runChange(ctx, s, caller, newAccessRule("RerunTrigger", accessToWorkflow(workflowID)),
		readTimeout,
		func(ctx context.Context) (none api.Started, err error) {
			if err := checkIdempotencyKey(key); err != nil {
				return none, err
			}
			trigger, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
			if err != nil {
				return none, err
			}
			as := ""
			if key != "" {
				as = execution.IDForTriggerRerun(workflowID, nodeID, idempotencyKeyForSample(key,
					trigger))
			}
			return s.rerun(ctx, trigger, as, "")
		})
}

// RerunExecution starts a new execution at an execution's trigger node, with the node's sample
// payload. The idempotency key has the same effect as for RerunTrigger.
func (s *Service) RerunExecution(
	ctx context.Context, caller Caller, id, key string,
) (api.Started, error) {
	r := newAccessRule("RerunExecution", accessToExecution(id))
	return runChange(ctx, s, caller, r, 2*readTimeout, func(
		ctx context.Context,
	) (none api.Started, err error) {
		if err := checkIdempotencyKey(key); err != nil {
			return none, err
		}
		record, err := s.record(ctx, id)
		if err != nil {
			return none, err
		}
		trigger, err := s.triggerOf(ctx, caller, record.WorkflowID, record.NodeID)
		if err != nil {
			return none, err
		}
		as := ""
		if key != "" {
			as = execution.IDForRerun(record.ID, idempotencyKeyForSample(key, trigger))
		}
		return s.rerun(ctx, trigger, as, record.ID)
	})
}

// idempotencyKeyForSample combines an idempotency key with the node's sample payload. After the
// payload has changed, the same key therefore starts another execution.
func idempotencyKeyForSample(key string, trigger *edit.TriggerInfo) string {
	sum := sha256.Sum256(trigger.SamplePayload)
	return key + "\x00" + hex.EncodeToString(sum[:])
}

// triggerOf returns the trigger node from which to rerun an execution. It fails if the node no
// longer exists, or if its workflow has moved to an account that the caller has no access to.
func (s *Service) triggerOf(
	ctx context.Context, caller Caller, workflowID, nodeID string,
) (*edit.TriggerInfo, error) {
	trigger, err := s.config.Editor.Trigger(ctx, workflowID, nodeID)
	if err == nil && !caller.canAccessAccount(trigger.Workflow.AccountID) {
		trigger, err = nil, &edit.NotFoundError{Item: fmt.Sprintf("workflow %q", workflowID)}
	}
	if missing, ok := errors.AsType[*edit.NotFoundError](err); ok {
		return nil, &Error{
			Code:   api.CodeNotFound,
			Detail: "The execution cannot run again: its " + missing.Item + " is gone.",
		}
	}
	return trigger, err
}

// rerun starts an execution with the trigger node's sample payload. as is the ID of the new
// execution. If an execution with this ID has already been started, rerun starts nothing. If as is
// "", rerun generates an ID. rerunOf is the ID of the original execution, or "" if there is none.
func (s *Service) rerun(
	ctx context.Context, trigger *edit.TriggerInfo, as, rerunOf string,
) (none api.Started, err error) {
	once := as != ""
	if once {
		// Ask the database whether the execution already exists, because the stream recognizes
		// duplicates only within the deduplication window.
		if _, err := s.config.Store.Get(ctx, as); !errors.Is(err, store.ErrNotFound) {
			return api.Started{ExecutionID: as}, err
		}
	}
	where := fmt.Sprintf("trigger node %q of workflow %q", trigger.NodeID, trigger.Workflow.ID)
	if trigger.SamplePayload == nil {
		return none, fmt.Errorf("%s: %w", where, errNoSamplePayload)
	}
	payload, err := execution.NewPayload("application/json", trigger.SamplePayload)
	if err != nil {
		return none, fmt.Errorf("the sample payload of %s: %w", where, err)
	}
	if !once {
		fresh, err := uuid.NewV7()
		if err != nil {
			return none, fmt.Errorf("make an execution ID: %w", err)
		}
		as = fresh.String()
	}
	_, err = s.publishStart(ctx, trigger, execution.Start{
		ID: as, RerunOf: rerunOf,
		Payload: payload,
	},
		once)
	return api.Started{ExecutionID: as}, err
}

// publishStart publishes a start message at a trigger node, and returns when the stream has stored
// it. If once is true, the stream deduplicates the message by execution ID. stored reports whether
// this call stored it.
func (s *Service) publishStart(
	ctx context.Context, at *edit.TriggerInfo, start execution.Start, once bool,
) (stored bool, err error) {
	start.WorkflowID, start.NodeID = at.Workflow.ID, at.NodeID
	start.AccountID, start.Queue = at.Workflow.AccountID, at.Workflow.Queue
	start.Source, start.AcceptedAt = execution.SourceRerun, time.Now().
		UTC().
		Truncate(time.Microsecond)
	if start.OrderKey, err = s.orderKey(at, &start); err != nil {
		return false, err
	}
	traceparent, endSpan := s.startTrace(ctx, stream.SubjectOf(&start), start.ID)
	defer func() { endSpan(err) }()
	start.Trace = traceparent
	var encodeErr error // set if the start message cannot be encoded
	publish := func(once bool) (*jetstream.PubAck, error) {
		return s.startStreams.Publish(ctx, start.Queue, start.WorkflowID,
			func(layout stream.Layout) (*nats.Msg, error) {
				var msg *nats.Msg
				if msg, encodeErr = layout.StartMessage(start); encodeErr != nil {
					return nil, encodeErr
				}
				audit.SetActor(msg.Header, edit.ActorOf(ctx))
				if once {
					msg.Header[jetstream.MsgIDHeader] = []string{start.ID}
				}
				return msg, nil
			})
	}
	ack, err := publish(once)
	if err == nil && ack.Duplicate {
		if s.isStartMessage(ctx, ack, start.ID) {
			return false, nil
		}
		// The stream discarded the start message as a duplicate of a message that does not start
		// this execution. Publish the start message again, without a message ID.
		_, err = publish(false)
	}
	if encodeErr != nil {
		return false, encodeErr
	}
	if err != nil {
		return false, fmt.Errorf("%w: publish a start: %w", errUnavailable, err)
	}
	return true, nil
}

// isStartMessage examines a message that the stream already had when it discarded a start message
// as a duplicate. ack is the stream's response, which identifies the existing message.
// isStartMessage returns true if the existing message starts the execution with the given ID, or is
// a dedup marker for a start message in another stream. It returns false if the existing message
// has been deleted since. If the existing message cannot be read now, it returns true: both
// messages have the same message ID, so they probably start the same execution.
func (s *Service) isStartMessage(ctx context.Context, ack *jetstream.PubAck, id string) bool {
	msg, err := s.startStreams.MessageAt(ctx, ack.Stream, ack.Sequence)
	if err != nil {
		return !errors.Is(err, jetstream.ErrMsgNotFound)
	}
	return stream.IsDedupMarkerSubject(msg.Subject) ||
		stream.IsStartSubject(msg.Subject) && msg.Header.Get(stream.HeaderExecutionID) == id
}

// startTrace starts a trace and returns its W3C traceparent. The caller must call end with the
// error of the traced call, or with nil.
func (s *Service) startTrace(
	ctx context.Context, subject, executionID string,
) (traceparent string, end func(error)) {
	if s.config.Tracer == nil {
		var ids [24]byte
		_, _ = rand.Read(ids[:]) // never fails, as crypto/rand documents
		return "00-" + hex.EncodeToString(ids[:16]) + "-" + hex.EncodeToString(ids[16:]) + "-00",
			func(error) {}
	}
	ctx, span := tracing.StartSendSpan(ctx, s.config.Tracer, subject, executionID)
	return tracing.Traceparent(ctx), func(err error) {
		if err != nil {
			tracing.Fail(span, "not_stored", err.Error())
		}
		span.End()
	}
}
