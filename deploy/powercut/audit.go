//go:build linux

package powercut

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// readStarts counts the starts of the workflow in the stream, by execution ID.
func readStarts(ctx context.Context, natsURL string) (map[string]int, error) {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	consumer, err := js.OrderedConsumer(ctx, stream.Name, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"executions.start.*." + workflowID + ".*"},
	})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	info, err := consumer.Info(ctx)
	if err != nil || info.NumPending == 0 {
		return counts, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(10 * time.Second))
		if err != nil {
			return nil, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		counts[msg.Headers().Get(stream.HeaderExecutionID)]++
		if meta.NumPending == 0 {
			return counts, nil
		}
	}
}

// record is what the API says of one execution.
type record struct {
	times      int
	deliveryID string
	status     execution.Status
}

func readRecords(ctx context.Context, client *apiclient.Client) (map[string]record, error) {
	records := map[string]record{}
	page := apiclient.Page{Limit: 200}
	for {
		list, err := client.Executions(ctx, apiclient.ExecutionFilter{WorkflowID: workflowID}, page)
		if err != nil {
			return nil, err
		}
		for _, e := range list.Items {
			records[e.ExecutionID] = record{times: records[e.ExecutionID].times + 1, deliveryID: e.DeliveryID, status: execution.Status(e.Status)}
		}
		if page.Cursor = list.NextCursor; page.Cursor == "" {
			return records, nil
		}
	}
}

// awaitRecords reads the records until ok, or until the time is over: then as they are.
func awaitRecords(ctx context.Context, client *apiclient.Client, timeout time.Duration, ok func(map[string]record) bool) (map[string]record, error) {
	end := time.Now().Add(timeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		records, err := readRecords(ctx, client)
		if err != nil || ok(records) || time.Now().After(end) {
			return records, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
