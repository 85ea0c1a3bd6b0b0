package events

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// maxPublishBatch is the maximum number of events marked as published together.
const maxPublishBatch = 50

// publish publishes the start messages of decided events, and marks the events as published.
func (e *Events) publish(ctx context.Context) error {
	for {
		waiting, err := e.config.Store.UnpublishedEvents(ctx, maxPublishBatch)
		if err != nil || len(waiting) == 0 {
			return err
		}
		published, err := e.publishBatch(ctx, waiting)
		err = errors.Join(err, e.config.Store.MarkEventsPublished(ctx, published, time.Now()))
		if err != nil {
			return err
		}
	}
}

func (e *Events) publishBatch(
	ctx context.Context, waiting []store.Event,
) (published []string, err error) {
	recorded, err := e.recordedExecutions(ctx, waiting)
	if err != nil {
		return nil, err
	}
	for _, event := range waiting {
		if !recorded[executionID(event)] {
			if err := e.publishStart(ctx, event); err != nil {
				return published, fmt.Errorf("%s: %w", event.ID, err)
			}
		}
		published = append(published, event.ID)
	}
	return published, nil
}

// executionID returns the ID of the execution that an event starts.
func executionID(e store.Event) string {
	return execution.IDForDelivery(e.WorkflowID, e.NodeID, execution.MarkEventID(e.ID))
}

// recordedExecutions returns the IDs of those events' executions that are recorded. If the first
// event is older than half the deduplication window, the stream may no longer recognize its start
// message as a duplicate. In that case, recordedExecutions first waits until everything in the
// stream is recorded.
func (e *Events) recordedExecutions(
	ctx context.Context, events []store.Event,
) (map[string]bool, error) {
	if time.Since(events[0].DecidedAt) > e.config.DedupWindow/2 {
		e.config.AwaitRecorded(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	ids := make([]string, len(events))
	for i, event := range events {
		ids[i] = executionID(event)
	}
	records, err := e.config.Store.GetMany(ctx, ids)
	recorded := map[string]bool{}
	for _, r := range records {
		recorded[r.ID] = true
	}
	return recorded, err
}

// publishStart publishes the start message of an event, unless the event's workflow no longer
// exists.
func (e *Events) publishStart(ctx context.Context, event store.Event) error {
	w, ok := e.config.Directory.Workflow(event.WorkflowID)
	if !ok {
		e.config.Log.WithField("event", event.ID).WithField("workflow",
			event.WorkflowID).Warn("the workflow that operator events start was deleted: this " +
			"one starts nothing")
		return nil
	}
	payload, err := execution.NewPayload("application/json", []byte(event.Input))
	if err != nil {
		return err
	}
	start := execution.Start{
		ID:         executionID(event),
		WorkflowID: event.WorkflowID,
		NodeID:     event.NodeID,
		AccountID:  event.AccountID,
		Queue:      w.Record.Queue,
		Source:     execution.SourceEvent,
		DeliveryID: event.ID,
		AcceptedAt: event.DecidedAt,
		Payload:    payload,
		Trace:      newTraceparent(),
	}
	_, err = e.starts.Publish(ctx, start.Queue, start.WorkflowID,
		func(layout stream.Layout) (*nats.Msg, error) { return layout.StartMessage(start) })
	return err
}

// newTraceparent returns the W3C traceparent of a new trace that is not sampled.
func newTraceparent() string {
	var ids [24]byte
	_, _ = rand.Read(ids[:]) // never fails, as crypto/rand documents
	return "00-" + hex.EncodeToString(ids[:16]) + "-" + hex.EncodeToString(ids[16:]) + "-00"
}
