package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// streamContents holds the contents of the streams, keyed by execution ID.
type streamContents struct {
	starts map[string]storedStart // keyed by execution ID
	// finalStatuses holds the first final status that was reported for each execution.
	finalStatuses    map[string]execution.Status
	finalStatusTimes map[string]time.Time // when the stream stored that report
	// withUnreadableReport holds the executions with an unreadable report. Executors record such an
	// execution as failed, unless they record a readable report of a final status first. Which
	// report they record first does not depend only on the order in the stream: both reports may be
	// in one batch, or in batches of two different executors.
	withUnreadableReport map[string]bool
	// receivedByRunner holds the executions that a runner has received. It is read from the files
	// of the soak's runners, not from a stream.
	receivedByRunner map[string]bool
}

// storedStart is an execution with at least one start message in a stream.
type storedStart struct {
	marker       string // identifies the delivery; from the body of its requests
	messageCount int    // start messages, without the copies that executors or a takeover add
	queue        string // the queue of the execution
	streamName   string // the stream that holds the last of these messages
	sequence     uint64 // the sequence of the last of these messages in its stream
}

func newStreamContents() streamContents {
	return streamContents{
		starts:               map[string]storedStart{},
		finalStatuses:        map[string]execution.Status{},
		finalStatusTimes:     map[string]time.Time{},
		withUnreadableReport: map[string]bool{},
	}
}

// readStreams reads all start messages and all reports in the streams.
func readStreams(ctx context.Context, js jetstream.JetStream) (streamContents, error) {
	// Each attempt starts with empty counts, because a failed attempt may already have counted some
	// messages, which would then be counted twice.
	var all streamContents
	err := eventually(ctx, 2*time.Minute, func(ctx context.Context) (err error) {
		all = newStreamContents()
		names, err := executionStreamNames(ctx, js)
		for _, name := range names {
			if err == nil {
				err = all.addStream(ctx, js, name)
			}
		}
		return err
	})
	return all, err
}

// executionStreamNames returns the names of all streams with start messages, followed by the names
// of all streams with reports. Both include the shared stream and the queues' own streams.
func executionStreamNames(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	starts, reports, err := stream.StreamNames(ctx, js)
	if err == nil && !slices.Contains(starts, stream.ExecutionsName) {
		err = errors.New("there is no stream " + stream.ExecutionsName)
	}
	return slices.Concat(starts, reports), err
}

func (all *streamContents) addStream(
	ctx context.Context,
	js jetstream.JetStream,
	name string,
) error {
	return stream.ForEachMessage(ctx, js, name, jetstream.OrderedConsumerConfig{},
		func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			if err := all.addMessage(msg, meta); err != nil {
				return fmt.Errorf("message %d of %s: %w", meta.Sequence.Stream, name, err)
			}
			return nil
		})
}

// startCopyMsgIDPrefix is the prefix of the Nats-Msg-Id of a copy of a start message. Executors,
// and the takeover by a second site, publish such copies so that a runner receives the execution
// again.
const startCopyMsgIDPrefix = "again-"

func (all *streamContents) addMessage(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
	if stream.IsDedupMarkerSubject(msg.Subject()) {
		return nil
	}
	if string(msg.Data()) == unreadableReport {
		if _, _, id, ok := stream.ParseProgressSubject(msg.Subject()); ok {
			all.withUnreadableReport[id] = true
		}
		return nil
	}
	event, err := stream.Decode(msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		return err
	}
	if strings.HasPrefix(msg.Headers().Get(jetstream.MsgIDHeader), startCopyMsgIDPrefix) {
		return nil
	}
	return all.addDecodedMessage(event, stream.StreamOf(msg.Subject()), meta)
}

// addDecodedMessage adds a decoded message to the contents. name is the name of the stream that
// holds the message.
func (all *streamContents) addDecodedMessage(
	event stream.DecodedMessage, name string, meta *jetstream.MsgMetadata,
) error {
	if p := event.Progress; p != nil && p.Status.Final() && all.finalStatuses[p.ID] == "" {
		all.finalStatuses[p.ID], all.finalStatusTimes[p.ID] = p.Status, meta.Timestamp
	}
	if event.Start == nil {
		return nil
	}
	var body struct{ Marker string }
	if err := json.Unmarshal(event.Start.Payload.Body, &body); err != nil {
		return err
	}
	found := all.starts[event.Start.ID]
	if found.messageCount > 0 && found.marker != body.Marker {
		return fmt.Errorf("execution %s has the bodies of %s and %s", event.Start.ID, found.marker,
			body.Marker)
	}
	found.marker, found.messageCount = body.Marker, found.messageCount+1
	found.queue, found.streamName = event.Start.Queue, name
	found.sequence = meta.Sequence.Stream
	all.starts[event.Start.ID] = found
	return nil
}

// awaitConsumersCaughtUp waits until the executors and the runners have processed all messages in
// the streams.
func awaitConsumersCaughtUp(
	ctx context.Context,
	js jetstream.JetStream,
	timeout time.Duration,
) error {
	return eventually(ctx, timeout, func(ctx context.Context) error {
		return checkConsumersCaughtUp(ctx, js)
	})
}

// checkConsumersCaughtUp returns an error that names a durable consumer that lags behind, or nil if
// all have caught up.
func checkConsumersCaughtUp(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	names, err := executionStreamNames(ctx, js)
	if err != nil {
		return err
	}
	for _, name := range names {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		consumers := s.ListConsumers(ctx)
		for info := range consumers.Info() {
			waiting := stream.Unacknowledged(info)
			if info.Config.Durable != "" && waiting > 0 {
				err = fmt.Errorf("consumer %s of %s lags behind by %d messages", info.Name, name,
					waiting)
			}
		}
		if err = errors.Join(err, consumers.Err()); err != nil {
			return err
		}
	}
	return nil
}

// recordSummary holds the number of records of an execution, which should be 1, and the status in
// the last one.
type recordSummary struct {
	count    int
	status   execution.Status
	attempts int // the latest attempt that a runner reported; 0 means none
	// endedWithoutReport reports whether an executor has ended the execution as failed because its
	// group of runners had acknowledged it without a report.
	endedWithoutReport bool
}

// readRecords reads the records of all executions that were not rejected, keyed by execution ID.
func readRecords(ctx context.Context, client *apiclient.Client) (map[string]recordSummary, error) {
	records := map[string]recordSummary{}
	for e, err := range itemsWithRetry(ctx,
		func(ctx context.Context, p apiclient.Page) (api.List[api.Execution], error) {
			return client.Executions(ctx, apiclient.ExecutionFilter{}, p)
		}) {
		if err != nil {
			return nil, err
		}
		if status := execution.Status(e.Status); status != execution.Rejected {
			records[e.ExecutionID] = recordSummary{
				count:    records[e.ExecutionID].count + 1,
				status:   status,
				attempts: e.Attempts,
			}
		}
	}
	return records, nil
}

// itemsWithRetry iterates over a paginated list, and retries the request for each page for up to
// recoverTimeout.
func itemsWithRetry[T any](
	ctx context.Context, fetch func(context.Context, apiclient.Page) (api.List[T], error),
) iter.Seq2[T, error] {
	return apiclient.Items(func(p apiclient.Page) (list api.List[T], err error) {
		err = eventually(ctx, recoverTimeout, func(ctx context.Context) (err error) {
			list, err = fetch(ctx, p)
			return err
		})
		return list, err
	})
}

// unreportedReason is part of the reason of the dead letters of executions that an executor has
// ended because their group of runners had acknowledged them without a report.
const unreportedReason = "without a report that can be read"

// markEndedWithoutReport sets endedWithoutReport in the records of the executions that an executor
// has ended because their group of runners had acknowledged them without a report.
func markEndedWithoutReport(
	ctx context.Context, client *apiclient.Client, records map[string]recordSummary,
) error {
	for d, err := range itemsWithRetry(ctx,
		func(ctx context.Context, p apiclient.Page) (api.List[api.DeadLetter], error) {
			return client.DeadLetters(ctx, apiclient.DeadLetterFilter{Reason: unreportedReason}, p)
		}) {
		if err != nil {
			return err
		}
		if r, isRecorded := records[d.ExecutionID]; isRecorded {
			r.endedWithoutReport = true
			records[d.ExecutionID] = r
		}
	}
	return nil
}

// deadLetteredStarts describes the start messages that executors have put aside. There should be
// none, because all start messages of a soak can be recorded.
func deadLetteredStarts(ctx context.Context, client *apiclient.Client) (aside []string, err error) {
	for d, err := range itemsWithRetry(ctx,
		func(ctx context.Context, p apiclient.Page) (api.List[api.DeadLetter], error) {
			return client.DeadLetters(ctx, apiclient.DeadLetterFilter{}, p)
		}) {
		if err != nil {
			return nil, err
		}
		if d.Kind != api.DeadLetterFailed && stream.IsStartSubject(d.Subject) {
			aside = append(aside, fmt.Sprintf("message %d: %s", d.StreamSequence, d.Reason))
		}
	}
	return aside, nil
}
