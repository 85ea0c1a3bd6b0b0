// Package runnertest simulates Hookstart in tests of runners: it starts executions as an ingress
// does, and reads the runners' reports.
package runnertest

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// Ingress starts executions on the stream of a NATS server, for example one started by natstest. It
// is safe for concurrent use.
type Ingress struct {
	js jetstream.JetStream

	mu              sync.Mutex
	queuesWithLanes map[string]bool                    // names of queues that have lanes
	phaseByQueue    map[string]stream.QueueStreamPhase // of queues that have or had own streams
}

// NewIngress returns an Ingress that uses the NATS server of nc. It creates Hookstart's streams
// there if they do not exist.
func NewIngress(tb testing.TB, nc *nats.Conn) *Ingress {
	tb.Helper()
	js, err := jetstream.New(nc)
	if err == nil {
		err = stream.EnsureSharedStreams(tb.Context(), js, stream.DefaultSettings)
	}
	if err == nil {
		err = stream.EnsureCancellationsBucket(tb.Context(), js, stream.DefaultSettings)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return &Ingress{
		js: js, queuesWithLanes: map[string]bool{},
		phaseByQueue: map[string]stream.QueueStreamPhase{},
	}
}

// MoveToOwnStream creates a queue's own stream, as an operator does, or moves the queue back to its
// own stream if that still exists. Executions started afterwards are stored there.
func (i *Ingress) MoveToOwnStream(tb testing.TB, queue string) {
	tb.Helper()
	if err := stream.EnsureOwnStreams(tb.Context(), i.js, stream.DefaultSettings, queue,
		stream.QueueStreamLimits{}); err != nil {
		tb.Fatal(err)
	}
	i.setPhase(tb, queue, stream.QueuePhaseOwnStream)
}

// MoveToSharedStream moves a queue back to the stream that all queues share. The queue's own stream
// is kept with everything in it.
func (i *Ingress) MoveToSharedStream(tb testing.TB, queue string) {
	tb.Helper()
	i.setPhase(tb, queue, stream.QueuePhaseDrainingOwnStream)
}

// DeleteOwnStream deletes a queue's own stream. Call it after the queue has moved back to the
// shared stream. An executor deletes the stream once all its messages have expired.
func (i *Ingress) DeleteOwnStream(tb testing.TB, queue string) {
	tb.Helper()
	i.setPhase(tb, queue, stream.QueuePhaseSharedStream)
	if err := stream.DeleteOwnStreams(tb.Context(), i.js, queue); err != nil {
		tb.Fatal(err)
	}
}

// layoutFor returns where to store a start message. If the message is the queue's first one with an
// order key, layoutFor adds lanes to the queue.
func (i *Ingress) layoutFor(tb testing.TB, start *execution.Start) stream.Layout {
	tb.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if start.OrderKey != "" && !i.queuesWithLanes[start.Queue] {
		// In production, an executor adds the lanes when a trigger node gets an order key.
		i.queuesWithLanes[start.Queue] = true
		i.storeQueueSettings(tb, start.Queue)
	}
	return i.phaseByQueue[start.Queue].NewestLayout()
}

func (i *Ingress) setPhase(tb testing.TB, queue string, phase stream.QueueStreamPhase) {
	tb.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.phaseByQueue[queue] = phase
	i.storeQueueSettings(tb, queue)
}

// storeQueueSettings stores the settings of a queue as an executor does.
func (i *Ingress) storeQueueSettings(tb testing.TB, queue string) {
	tb.Helper()
	lanes := 0
	if i.queuesWithLanes[queue] {
		lanes = execution.LanesPerQueue
	}
	settings, err := stream.EncodeQueueSettings(queue, lanes, i.phaseByQueue[queue])
	if err != nil {
		tb.Fatal(err)
	}
	registry, err := i.js.CreateOrUpdateKeyValue(tb.Context(), jetstream.KeyValueConfig{
		Bucket: "registry",
	})
	if err == nil {
		_, err = registry.Put(tb.Context(), "queue."+queue, settings)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Post is a request from a sender. The zero value is a request with an empty body, to the workflow
// "workflow" in the default queue.
type Post struct {
	WorkflowID  string
	NodeID      string
	Queue       string
	ContentType string
	Body        string
	Headers     execution.Values // names in any case; Start makes them canonical
	Query       execution.Values
	DeliveryID  string
	// OrderKey orders the execution after earlier ones with the same key. "" means that it is not
	// ordered. After a queue has got its first key, its runners need a few seconds to switch to
	// lanes.
	OrderKey string
}

// Start starts an execution as if a sender had sent p, and returns its ID.
func (i *Ingress) Start(tb testing.TB, p Post) (executionID string) {
	tb.Helper()
	payload, err := execution.NewPayload(p.ContentType, []byte(p.Body))
	if err != nil {
		tb.Fatal(err)
	}
	start := execution.Start{
		ID:         uuid.NewString(),
		WorkflowID: p.WorkflowID,
		NodeID:     p.NodeID,
		AccountID:  "account",
		Queue:      p.Queue,
		Source:     execution.SourceWebhook,
		DeliveryID: p.DeliveryID,
		AcceptedAt: time.Now(),
		Payload:    payload,
		Headers:    canonicalHeaders(p.Headers),
		Query:      p.Query,
		OrderKey:   p.OrderKey,
	}
	for field, otherwise := range map[*string]string{
		&start.WorkflowID: "workflow",
		&start.NodeID:     "webhook",
		&start.Queue:      execution.DefaultQueue,
	} {
		if *field == "" {
			*field = otherwise
		}
	}
	if p.DeliveryID != "" {
		start.ID = execution.IDForDelivery(start.WorkflowID, start.NodeID, p.DeliveryID)
	}
	msg, err := i.layoutFor(tb, &start).StartMessage(start)
	if err == nil {
		_, err = i.js.PublishMsg(tb.Context(), msg)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return start.ID
}

// Cancel cancels an execution as an operator does.
func (i *Ingress) Cancel(tb testing.TB, executionID string) {
	tb.Helper()
	bucket, err := i.js.KeyValue(tb.Context(), stream.CancellationsBucket)
	if err == nil {
		err = stream.PutCancellation(tb.Context(), bucket, executionID, time.Now())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// canonicalHeaders returns the headers with canonical names, as an ingress does.
func canonicalHeaders(headers execution.Values) execution.Values {
	all := execution.Values{}
	for name, values := range headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		all[name] = append(all[name], values...)
	}
	return all
}

// Await waits for the final state of an execution and returns it. The test fails if there is none
// within 30 s.
func (i *Ingress) Await(tb testing.TB, executionID string) execution.Progress {
	tb.Helper()
	states := i.States(tb, executionID)
	return states[len(states)-1]
}

// States waits for the final state of an execution and returns all states that were reported. The
// test fails if there is no final state within 30 s.
func (i *Ingress) States(tb testing.TB, executionID string) []execution.Progress {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	consumer, err := i.reportConsumer(ctx, executionID)
	if err != nil {
		tb.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		tb.Fatal(err)
	}
	defer messages.Stop()
	var states []execution.Progress
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			tb.Fatalf("execution %s has reported %v, and then nothing: %v", executionID, states,
				err)
		}
		event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil {
			tb.Fatal(err)
		}
		states = append(states, *event.Progress)
		if event.Progress.Status.Final() {
			return states
		}
	}
}

// reportConsumer returns a consumer for the reports on an execution. If any queue has its own
// stream, reportConsumer first waits for a report, to find out which stream the reports are in.
func (i *Ingress) reportConsumer(
	ctx context.Context, executionID string,
) (jetstream.Consumer, error) {
	names := map[string]string{stream.ProgressName: "executions.progress.*.*." + executionID}
	i.mu.Lock()
	for queue, phase := range i.phaseByQueue {
		if phase.HasOwnStream() {
			name := stream.OwnProgressStreamName(queue)
			names[name] = stream.Layout{Own: true}.ProgressSubject(queue,
				"*", executionID)
		}
	}
	i.mu.Unlock()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		for name, subject := range names {
			reports, err := i.js.Stream(ctx, name)
			if err == nil && len(names) > 1 {
				_, err = reports.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
			}
			if err == nil {
				return i.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
					FilterSubjects: []string{subject},
				})
			}
			if !errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil, err
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("execution %s has reported nothing: %w", executionID, ctx.Err())
		}
	}
}
