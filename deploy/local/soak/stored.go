package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
	"github.com/hookstart/hookstart/shared/stream"
)

// start is an execution whose start is in the stream.
type start struct {
	marker   string
	messages int
}

// readStarts reads every start in the stream, by execution ID.
func readStarts(ctx context.Context, js jetstream.JetStream) (map[string]start, error) {
	// Complete again after a failure: it is begun anew, and counts from the beginning.
	var starts map[string]start
	err := eventually(ctx, 2*time.Minute, func(ctx context.Context) (err error) {
		starts, err = tryStarts(ctx, js)
		return err
	})
	return starts, err
}

func tryStarts(ctx context.Context, js jetstream.JetStream) (map[string]start, error) {
	s, err := js.Stream(ctx, stream.Name)
	if err != nil {
		return nil, err
	}
	starts := map[string]start{}
	last := s.CachedInfo().State.LastSeq
	if last == 0 {
		return starts, nil
	}
	consumer, err := js.OrderedConsumer(ctx, stream.Name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
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
		event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", meta.Sequence.Stream, err)
		}
		if event.Start != nil {
			var body struct{ Marker string }
			if err := json.Unmarshal(event.Start.Payload.Body, &body); err != nil {
				return nil, fmt.Errorf("message %d: %w", meta.Sequence.Stream, err)
			}
			one := starts[event.Start.ID]
			if one.messages > 0 && one.marker != body.Marker {
				return nil, fmt.Errorf("execution %s has the bodies of %s and %s", event.Start.ID, one.marker, body.Marker)
			}
			starts[event.Start.ID] = start{marker: body.Marker, messages: one.messages + 1}
		}
		if meta.Sequence.Stream >= last {
			return starts, nil
		}
	}
}

// awaitRecorder waits until the executors have recorded all that is in the stream.
func awaitRecorder(ctx context.Context, js jetstream.JetStream, timeout time.Duration) error {
	return eventually(ctx, timeout, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		consumer, err := js.Consumer(ctx, stream.Name, recorderConsumer)
		if err != nil {
			return err
		}
		if info := consumer.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 {
			return fmt.Errorf("the recorder lags behind by %d messages", info.NumPending+uint64(max(0, info.NumAckPending)))
		}
		return nil
	})
}

// recorderConsumer is the durable consumer that all executors share.
const recorderConsumer = "executor"

// readRecords counts the records by execution ID.
func readRecords(ctx context.Context, client *apiclient.Client) (map[string]int, error) {
	records := map[string]int{}
	page := apiclient.Page{Limit: 200}
	for {
		var list api.List[api.Execution]
		if err := eventually(ctx, recoverTimeout, func(ctx context.Context) (err error) {
			list, err = client.Executions(ctx, apiclient.ExecutionFilter{}, page)
			return err
		}); err != nil {
			return nil, err
		}
		for _, e := range list.Items {
			records[e.ExecutionID]++
		}
		if page.Cursor = list.NextCursor; page.Cursor == "" {
			return records, nil
		}
	}
}
