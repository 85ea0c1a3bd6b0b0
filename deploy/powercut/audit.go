//go:build linux

package powercut

import (
	"cmp"
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// readStarts reads the whole stream. It returns the number of the workflow's start messages for
// each execution ID.
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
	consumer, err := js.OrderedConsumer(ctx, stream.ExecutionsName, jetstream.OrderedConsumerConfig{
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

// record is one execution as returned by the operators' API.
type record struct {
	times      int // number of records with this execution ID; more than 1 is a fault
	deliveryID string
	status     execution.Status
}

// readRecords returns the records of the workflow's executions, keyed by execution ID.
func readRecords(ctx context.Context, client *apiclient.Client) (map[string]record, error) {
	records := map[string]record{}
	for e, err := range apiclient.Items(func(p apiclient.Page) (api.List[api.Execution], error) {
		return client.Executions(ctx, apiclient.ExecutionFilter{WorkflowID: workflowID}, p)
	}) {
		if err != nil {
			return nil, err
		}
		records[e.ExecutionID] = record{
			times:      records[e.ExecutionID].times + 1,
			deliveryID: e.DeliveryID, status: execution.Status(e.Status),
		}
	}
	return records, nil
}

// awaitRecords reads the records repeatedly until ok accepts them or the timeout has passed. In
// both cases it returns the records that it read last.
func awaitRecords(
	ctx context.Context, client *apiclient.Client, timeout time.Duration,
	ok func(map[string]record) bool,
) (records map[string]record, err error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	retry.Until(waiting, 50*time.Millisecond, func() bool {
		records, err = readRecords(ctx, client)
		return err != nil || ok(records)
	})
	return records, cmp.Or(err, ctx.Err())
}
