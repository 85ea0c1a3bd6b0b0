// Package runnertest simulates hookstart in tests of runners: it starts executions as an ingress
// does, and reads the reports.
package runnertest

import (
	"context"
	"errors"
	"net/textproto"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// Ingress starts executions on the stream of a NATS server, which may be started by natstest.
type Ingress struct {
	js jetstream.JetStream
}

// NewIngress returns an Ingress. It creates the stream if it does not exist.
func NewIngress(tb testing.TB, nc *nats.Conn) *Ingress {
	tb.Helper()
	js, err := jetstream.New(nc)
	if err == nil {
		err = stream.Ensure(tb.Context(), js, stream.DefaultSettings)
	}
	if err == nil {
		err = stream.EnsureCancellations(tb.Context(), js, stream.DefaultSettings)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return &Ingress{js: js}
}

// Post is a request of a sender. Its zero value is an empty body to the workflow "workflow" on the
// default queue.
type Post struct {
	WorkflowID  string
	NodeID      string
	Queue       string
	ContentType string
	Body        string
	Headers     execution.Values // names in any case: an ingress makes them canonical
	Query       execution.Values
	DeliveryID  string
	// OrderKey is the order key. "" means that the execution has no order. With a key, runners of
	// the queue notice within seconds that it has lanes.
	OrderKey string
}

// Start starts an execution, and returns its ID.
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
		Source:     execution.Webhook,
		DeliveryID: p.DeliveryID,
		AcceptedAt: time.Now(),
		Payload:    payload,
		Headers:    canonical(p.Headers),
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
	if p.OrderKey != "" {
		i.addLanes(tb, start.Queue)
	}
	msg, err := stream.StartMessage(start)
	if err == nil {
		_, err = i.js.PublishMsg(tb.Context(), msg)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return start.ID
}

// addLanes stores that a queue has lanes, as an executor does when a trigger node gets an order
// key.
func (i *Ingress) addLanes(tb testing.TB, queue string) {
	tb.Helper()
	const bucket = "registry"
	settings, err := stream.EncodeLanes(queue)
	if err != nil {
		tb.Fatal(err)
	}
	registry, err := i.js.CreateOrUpdateKeyValue(tb.Context(), jetstream.KeyValueConfig{
		Bucket: bucket,
	})
	if err == nil {
		_, err = registry.Create(tb.Context(), "queue."+queue, settings)
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		tb.Fatal(err)
	}
}

// Cancel asks for the end of an execution, as an operator does.
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

// canonical returns headers with the names that an ingress gives them.
func canonical(headers execution.Values) execution.Values {
	all := execution.Values{}
	for name, values := range headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		all[name] = append(all[name], values...)
	}
	return all
}

// Await waits for the final state of an execution and returns it. It waits for at most half a
// minute.
func (i *Ingress) Await(tb testing.TB, executionID string) execution.Progress {
	tb.Helper()
	states := i.States(tb, executionID)
	return states[len(states)-1]
}

// States waits for the final state of an execution, for at most half a minute, and returns all
// states that were reported.
func (i *Ingress) States(tb testing.TB, executionID string) []execution.Progress {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	consumer, err := i.js.OrderedConsumer(ctx, stream.ProgressName, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"executions.progress.*.*." + executionID},
	})
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
