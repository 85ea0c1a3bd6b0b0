package events

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// maxPublishBatch is the maximum number of events marked as published together.
const maxPublishBatch = 50

// publishEvents publishes the start messages of decided events, and marks the events as published.
// If a queue's stream does not store a message, publishEvents leaves out the workflows of that
// queue, so that it tries the queue only once and reaches the events of all other queues. It
// returns the errors of the queues that failed.
func (e *Events) publishEvents(ctx context.Context) error {
	failedQueues := map[string]bool{}
	var failedWorkflows []string
	var failures error
	for {
		waiting, err := e.config.Store.UnpublishedEvents(ctx, failedWorkflows, maxPublishBatch)
		if err != nil || len(waiting) == 0 {
			return errors.Join(failures, err)
		}
		published, failed, err := e.publishBatch(ctx, waiting, failedQueues)
		failedWorkflows, failures = append(failedWorkflows, failed...), errors.Join(failures, err)
		if err := e.config.Store.MarkEventsPublished(ctx, published, time.Now()); err != nil {
			return errors.Join(failures, err)
		}
	}
}

// publishBatch publishes the waiting events: different queues concurrently, and the events of each
// queue in order until one fails. It skips the queues in failedQueues, and adds each queue that
// fails to this set. It returns the IDs of the published events, and the IDs of the workflows whose
// events it did not publish.
func (e *Events) publishBatch(
	ctx context.Context, waiting []store.Event, failedQueues map[string]bool,
) (published, failedWorkflows []string, err error) {
	byQueue := map[string][]store.Event{}
	addFailed := func(events ...store.Event) {
		for _, event := range events {
			if !slices.Contains(failedWorkflows, event.WorkflowID) {
				failedWorkflows = append(failedWorkflows, event.WorkflowID)
			}
		}
	}
	for _, event := range waiting {
		queue := "" // for events whose workflow was deleted
		if w, ok := e.config.RegistryIndex.Workflow(event.WorkflowID); ok {
			queue = w.Record.Queue
		}
		if failedQueues[queue] {
			addFailed(event)
			continue
		}
		byQueue[queue] = append(byQueue[queue], event)
	}
	var mu sync.Mutex
	var publishing sync.WaitGroup
	for queue, events := range byQueue {
		publishing.Go(func() {
			n, failure := e.publishToQueue(ctx, queue, events)
			mu.Lock()
			defer mu.Unlock()
			for _, event := range events[:n] {
				published = append(published, event.ID)
			}
			addFailed(events[n:]...)
			if failure != nil {
				failedQueues[queue] = true
				err = errors.Join(err, failure)
			}
		})
	}
	publishing.Wait()
	return published, failedWorkflows, err
}

// publishToQueue publishes events of one queue until one fails, and returns how many it published.
// Events whose executions are already recorded count as published.
func (e *Events) publishToQueue(
	ctx context.Context, queue string, events []store.Event,
) (published int, err error) {
	ctx, cancel := context.WithTimeout(ctx, queuePublishTimeout)
	defer cancel()
	recorded, err := e.recordedExecutionIDs(ctx, queue, events)
	if err != nil {
		return 0, fmt.Errorf("queue %s: %w", queue, err)
	}
	for i, event := range events {
		if recorded[executionID(event)] {
			continue
		}
		if err := e.publishStart(ctx, event); err != nil {
			return i, fmt.Errorf("queue %s: %s: %w", queue, event.ID, err)
		}
	}
	return len(events), nil
}

// executionID returns the ID of the execution that an event starts.
func executionID(e store.Event) string {
	return execution.IDForDelivery(e.WorkflowID, e.NodeID, execution.MarkEventID(e.ID))
}

// recordedExecutionIDs returns the IDs of those executions of the given events that are already
// recorded, as a set. All events must be of the given queue. If the first event is older than half
// the deduplication window, the stream may no longer recognize its start message as a duplicate, so
// recordedExecutionIDs first waits until everything in the queue's streams is recorded.
func (e *Events) recordedExecutionIDs(
	ctx context.Context, queue string, events []store.Event,
) (map[string]bool, error) {
	if time.Since(events[0].DecidedAt) > e.config.DedupWindow/2 {
		e.config.AwaitRecorded(ctx, queue)
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
// exists or belongs to another account, which must not read the input.
func (e *Events) publishStart(ctx context.Context, event store.Event) error {
	w, ok := e.config.RegistryIndex.Workflow(event.WorkflowID)
	if !ok || w.Record.AccountID != event.AccountID {
		e.config.Log.WithField("event", event.ID).WithField("workflow",
			event.WorkflowID).Warn("the workflow that operator events start was deleted, or " +
			"moved to another account: this one starts nothing")
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
	_, err = e.startStreams.Publish(ctx, start.Queue, start.WorkflowID,
		func(layout stream.Layout) (*nats.Msg, error) { return layout.StartMessage(start) })
	return err
}

// newTraceparent returns the W3C traceparent of a new trace that is not sampled.
func newTraceparent() string {
	var ids [24]byte
	_, _ = rand.Read(ids[:]) // never fails, as crypto/rand documents
	return "00-" + hex.EncodeToString(ids[:16]) + "-" + hex.EncodeToString(ids[16:]) + "-00"
}
