//go:build linux

package powercut

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// readStartCounts reads the streams of the targets, and returns the number of start messages for
// each execution ID. It retries for up to readStreamsTimeout, because reading fails while a stream
// has no leader or a busy machine responds late.
func readStartCounts(
	ctx context.Context, natsURL string, targets []targetWorkflow,
) (counts map[string]int, err error) {
	ctx, cancel := context.WithTimeout(ctx, readStreamsTimeout)
	defer cancel()
	retry.Until(ctx, time.Second, func() bool {
		counts, err = tryReadStartCounts(ctx, natsURL, targets)
		return err == nil
	})
	return counts, err
}

// readStreamsTimeout is how long reading the streams may take in total, with all retries.
const readStreamsTimeout = 2 * time.Minute

func tryReadStartCounts(
	ctx context.Context,
	natsURL string,
	targets []targetWorkflow,
) (map[string]int, error) {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, t := range targets {
		if err := addStartCounts(ctx, js, t, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// addStartCounts counts the start messages of a target, and adds the number for each execution ID
// to counts. If the target's stream does not exist, addStartCounts adds nothing and returns nil.
func addStartCounts(
	ctx context.Context, js jetstream.JetStream, t targetWorkflow, counts map[string]int,
) error {
	err := stream.ForEachMessage(ctx, js, t.layout.StreamName(t.queue),
		jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{t.layout.StartSubject(t.queue, t.workflowID, "*")},
		}, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
			counts[msg.Headers().Get(stream.HeaderExecutionID)]++
			return nil
		})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // the power cut has lost the stream with all its messages
	}
	return err
}

// recordSummary is one execution as returned by the operators' API.
type recordSummary struct {
	recordCount int // number of records with this execution ID; more than 1 is a fault
	deliveryID  string
	status      execution.Status
}

// readRecords returns the records of the targets' executions, keyed by execution ID.
func readRecords(
	ctx context.Context, client *apiclient.Client, targets []targetWorkflow,
) (map[string]recordSummary, error) {
	records := map[string]recordSummary{}
	for _, t := range targets {
		filter := apiclient.ExecutionFilter{WorkflowID: t.workflowID}
		list := func(p apiclient.Page) (api.List[api.Execution], error) {
			return client.Executions(ctx, filter, p)
		}
		for e, err := range apiclient.Items(list) {
			if err != nil {
				return nil, err
			}
			records[e.ExecutionID] = recordSummary{
				recordCount: records[e.ExecutionID].recordCount + 1,
				deliveryID:  e.DeliveryID, status: execution.Status(e.Status),
			}
		}
	}
	return records, nil
}

// awaitRecords reads the records repeatedly until ok returns true for them or the timeout has
// passed, and returns the records that it read last. A timeout is no error, so the caller must
// check the records again. awaitRecords returns an error if reading fails.
func awaitRecords(
	ctx context.Context, client *apiclient.Client, targets []targetWorkflow, timeout time.Duration,
	ok func(map[string]recordSummary) bool,
) (records map[string]recordSummary, err error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	retry.Until(waiting, 50*time.Millisecond, func() bool {
		records, err = readRecords(ctx, client, targets)
		return err != nil || ok(records)
	})
	return records, cmp.Or(err, ctx.Err())
}
