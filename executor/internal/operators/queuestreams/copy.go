package queuestreams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/headerreader"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

const (
	// rememberedSinceHeader is a header of a copied delivery ID. Its value is the time at which the
	// original start message was stored, in Unix seconds.
	rememberedSinceHeader = "Hookstart-Remembered-Since"
	// copiedUpToHeader is a header of the message in which saveProgress stores how far a copy has
	// come. Its value consists of the name of the original stream, and the sequence and the time of
	// the last message that was copied. The time is in Unix nanoseconds.
	copiedUpToHeader = "Hookstart-Copied-Up-To"
	// maxPendingCopies is the maximum number of copies awaiting acknowledgment.
	maxPendingCopies = 1000
	// nextMessageWait is how long catchUpFullStream waits for a message before it checks whether
	// the copier's consumer has any messages left.
	nextMessageWait = 200 * time.Millisecond
	// maxWorkflowsPerConsumer is the maximum number of workflows whose subjects one consumer
	// filters. The limit exists because the server compares all filter subjects of a consumer with
	// each other.
	maxWorkflowsPerConsumer = 200
	// otherMoveTimeout is how long a move waits for another move that is reading the same stream:
	// only one move can read a stream at a time.
	otherMoveTimeout = 15 * time.Second
)

// deliveryIDCopier copies delivery IDs from one stream to another, so that the new stream
// recognizes duplicates. Each copy is a dedup marker: a message without content that carries the
// delivery ID.
type deliveryIDCopier struct {
	js               jetstream.JetStream
	from, to         stream.Layout
	queue            string // the queue whose stream the IDs are copied from
	targetQueue      string // the queue whose stream they are copied to
	markerWorkflowID string // workflow ID in the subjects of markers, which must match the filters
	// workflowID is the workflow whose IDs are copied. The copying continues where an earlier
	// copier for this workflow ended. "" means that the IDs of several workflows are copied, always
	// from the beginning.
	workflowID       string
	filterSubjects   []string // subjects of the messages whose IDs are copied; none means all
	dedupWindowStart time.Time
	reader           *headerreader.Reader
	messages         jetstream.MessagesContext
	// current is the last message read, and previous is the one before it; nil means none.
	current, previous *jetstream.MsgMetadata
	pendingAcks       []jetstream.PubAckFuture
}

// filterSubjectsOfQueue returns the filter subjects for the messages that carry a queue's delivery
// IDs. It returns nil for the queue's own stream, all of whose messages belong to the queue.
func filterSubjectsOfQueue(from stream.Layout, queue string) []string {
	if from.Own {
		return nil // the whole stream
	}
	return []string{
		from.StartSubject(queue, "*", "*"), "executions.ordered." + queue + ".*.*.*",
		from.RejectedSubject(queue, "*", "*"), from.DedupMarkerSubject(queue, "*"),
	}
}

// filterSubjectsOfWorkflow returns the filter subjects for the messages that carry a workflow's
// delivery IDs. In the shared stream they match any queue; in a queue's own stream, only that
// queue.
func filterSubjectsOfWorkflow(from stream.Layout, queue, workflowID string) []string {
	if from.Own {
		return []string{
			from.StartSubject(queue, workflowID, "*"),
			"executions.queue." + queue + ".ordered.*." + workflowID + ".*",
			from.RejectedSubject(queue, workflowID, "*"), from.DedupMarkerSubject(queue,
				workflowID),
		}
	}
	return []string{
		from.StartSubject("*", workflowID, "*"), "executions.ordered.*.*." + workflowID + ".*",
		from.RejectedSubject("*", workflowID, "*"), from.DedupMarkerSubject("*", workflowID),
	}
}

// newCopier returns a copier from the stream of queue to the stream of target. It copies the
// delivery IDs of the messages that match filters or, without filters, of all messages. newCopier
// waits while another move is reading the same stream, and fails with edit.ErrQueueMoving if that
// takes too long.
func (m *Mover) newCopier(
	ctx context.Context, from, to stream.Layout, queue, target string, filters []string,
) (*deliveryIDCopier, error) {
	c := &deliveryIDCopier{
		from:             from,
		to:               to,
		queue:            queue,
		targetQueue:      target,
		markerWorkflowID: "-",
		filterSubjects:   filters,
	}
	return c, m.startCopier(ctx, c)
}

// newCopierForWorkflow is like newCopier, for the delivery IDs of a workflow that changes its
// queue. The copier continues where an earlier copier for the same workflow and streams ended.
func (m *Mover) newCopierForWorkflow(
	ctx context.Context, from, to stream.Layout, change *edit.CrossStreamQueueChangeError,
) (*deliveryIDCopier, error) {
	c := &deliveryIDCopier{
		from: from, to: to, queue: change.From, targetQueue: change.To,
		markerWorkflowID: change.WorkflowID,
		workflowID:       change.WorkflowID,
		filterSubjects:   filterSubjectsOfWorkflow(from, change.From, change.WorkflowID),
	}
	return c, m.startCopier(ctx, c)
}

func (m *Mover) startCopier(ctx context.Context, c *deliveryIDCopier) error {
	c.js, c.dedupWindowStart = m.config.JetStream, time.Now().Add(-m.config.Settings.DedupWindow)
	c.current, c.previous, c.pendingAcks = nil, nil, nil
	err := edit.ErrQueueMoving
	waiting, cancel := context.WithTimeout(ctx, otherMoveTimeout)
	defer cancel()
	retry.Until(waiting, 100*time.Millisecond, func() bool {
		err = c.startReading(waiting)
		return !errors.Is(err, edit.ErrQueueMoving)
	})
	return err
}

// startReading creates the consumer that reads the IDs. Every move uses the same consumer name, so
// only one move can read a stream at a time: if another move is reading the stream, startReading
// returns edit.ErrQueueMoving.
func (c *deliveryIDCopier) startReading(ctx context.Context) error {
	name := c.from.StreamName(c.queue)
	config := jetstream.ConsumerConfig{
		Name:           stream.DeliveryIDCopyConsumerName,
		Description:    "hookstart: copies delivery IDs to another stream",
		FilterSubjects: c.filterSubjects,
		DeliverPolicy:  jetstream.DeliverByStartTimePolicy,
		OptStartTime:   &c.dedupWindowStart,
	}
	copied, err := c.readProgress(ctx)
	if err != nil {
		return fmt.Errorf("how far the delivery IDs of %s are copied: %w", name, err)
	}
	if copied > 0 {
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		config.OptStartTime, config.OptStartSeq = nil, copied+1
	}
	reader, err := headerreader.Open(ctx, c.js, name, config)
	if errors.Is(err, headerreader.ErrConsumerInUse) {
		return fmt.Errorf("%w: %w", edit.ErrQueueMoving, err)
	}
	var messages jetstream.MessagesContext
	if err == nil {
		messages, err = reader.Messages(jetstream.PullMaxMessages(maxPendingCopies))
	}
	if err != nil {
		return fmt.Errorf("read the delivery IDs of %s: %w", name, err)
	}
	c.reader, c.messages = reader, messages
	return nil
}

// stop stops reading and deletes the consumer, so that another move can read the stream
// immediately.
func (c *deliveryIDCopier) stop(ctx context.Context) {
	c.messages.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), phaseChangeTimeout)
	defer cancel()
	c.reader.Close(ctx)
}

// copyAfterUnconfirmedMove handles a move whose final record was stored although the call that
// stored it returned an error. Before the record was stored, the ingresses may have reopened the
// old stream by themselves, and may have stored messages there whose delivery IDs are not copied
// yet. The function waits until all ingresses have applied the revision of the record, and then
// copies the remaining delivery IDs. If the consumer that reads the IDs is lost, the function
// starts a new copy.
//
// The move is complete, so nobody else would copy these IDs. The function therefore continues even
// if the context is done. Its error does not wrap the cause: callers would repeat the whole call
// after some causes, which would not help here.
func (m *Mover) copyAfterUnconfirmedMove(
	ctx context.Context, c *deliveryIDCopier, revision uint64,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateCopyTimeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := m.config.Editor.AwaitInForce(ctx, revision)
		if err == nil && (attempt > 0 || !c.reader.ConsumerExists(ctx)) {
			c.stop(ctx)
			err = m.startCopier(ctx, c)
		}
		if err == nil {
			err = c.catchUp(ctx)
		}
		if err == nil {
			return nil
		}
		again := isTransient(err) || errors.Is(err, errRestartMove) ||
			errors.Is(err, edit.ErrQueueMoving) // another move reads the stream
		if !again || retry.SleepBackoff(ctx, attempt) != nil {
			err = fmt.Errorf("the move is complete, but the delivery IDs that %s stored last are "+
				"not copied to %s, so a repeat of such a delivery would be run: %s",
				c.from.StreamName(c.queue), c.to.StreamName(c.targetQueue), err.Error())
			m.config.Log.Error(err)
			return err
		}
	}
}

// nextMessage returns the next message of the stream and its metadata.
func (c *deliveryIDCopier) nextMessage(
	option jetstream.NextOpt,
) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	got, err := c.messages.Next(option)
	if err != nil {
		return nil, nil, err
	}
	meta, err := c.reader.CheckedMetadata(got)
	c.previous, c.current = c.current, meta
	return got, meta, err
}

// progressSubject returns the subject of the messages about the progress of a workflow's copy.
// Readers of start messages ignore these messages, as they ignore dedup markers. The messages carry
// no delivery ID.
func (c *deliveryIDCopier) progressSubject() string {
	return c.to.DedupMarkerSubject(c.targetQueue, "copied-"+c.workflowID)
}

// saveProgress records in the new stream that the copy has processed all messages of the old stream
// before the current one. It identifies the last of these messages by its sequence and its time.
// The sequence is not enough: a stream that has lost its newest messages assigns their sequences to
// other messages. Call saveProgress only after awaitStored.
func (c *deliveryIDCopier) saveProgress() error {
	if c.workflowID == "" || c.previous == nil {
		return nil
	}
	msg := nats.NewMsg(c.progressSubject())
	msg.Header.Set(copiedUpToHeader, fmt.Sprintf("%s %d %d", c.from.StreamName(c.queue),
		c.previous.Sequence.Stream, c.previous.Timestamp.UnixNano()))
	return c.publishAsync(msg)
}

// readProgress returns the sequence up to which an earlier copy has read the old stream. It returns
// 0 if the copy must start from the beginning: because no progress is stored for this stream,
// because the message with this sequence is older than the deduplication window, or because the
// stream no longer has that message.
func (c *deliveryIDCopier) readProgress(ctx context.Context) (sequence uint64, err error) {
	if c.workflowID == "" {
		return 0, nil
	}
	msg, err := leader.Get(ctx, c.js.Conn(), c.to.StreamName(c.targetQueue),
		leader.Query{LastBySubject: c.progressSubject()})
	if errors.Is(err, leader.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var name string
	var at int64
	if _, err := fmt.Sscan(msg.Header.Get(copiedUpToHeader), &name, &sequence, &at); err != nil ||
		name != c.from.StreamName(c.queue) || time.Unix(0, at).Before(c.dedupWindowStart) {
		return 0, nil //nolint:nilerr // about another stream, or of another version: begin anew
	}
	last, err := leader.Get(ctx, c.js.Conn(), name, leader.Query{Sequence: sequence})
	if errors.Is(err, leader.ErrNoMessage) || err == nil && last.Time.UnixNano() != at {
		return 0, nil
	}
	return sequence, err
}

// copyIDsFromOtherQueues copies the delivery IDs that the queue's workflows have used in other
// queues of the shared stream, before they changed their queue.
func (m *Mover) copyIDsFromOtherQueues(ctx context.Context, queue string) error {
	var ids []string
	for after := ""; ; {
		some := m.config.RegistryIndex.Workflows("", after, 1000)
		for _, w := range some {
			if w.Queue == queue {
				ids = append(ids, w.ID)
			}
			after = w.ID
		}
		if len(some) < 1000 {
			break
		}
	}
	for len(ids) > 0 {
		var filters []string
		batch := ids[:min(len(ids), maxWorkflowsPerConsumer)]
		for _, id := range batch {
			filters = append(filters, filterSubjectsOfWorkflow(stream.Layout{}, queue, id)...)
		}
		c, err := m.newCopier(ctx, stream.Layout{}, stream.Layout{Own: true}, queue, queue, filters)
		if err != nil {
			return err
		}
		c.markerWorkflowID = batch[0]
		err = c.catchUp(ctx)
		c.stop(ctx)
		if err != nil {
			return err
		}
		ids = ids[len(batch):]
	}
	return nil
}

// catchUp copies the delivery IDs of all messages that were stored before the call. To find the
// end, it publishes a marker to the old stream, and copies until the marker arrives. It misses no
// message before the marker, even if the replica that delivers the messages lags.
func (c *deliveryIDCopier) catchUp(ctx context.Context) error {
	marker := uuid.NewString()
	msg := c.from.DedupMarkerMessage(c.queue, c.markerWorkflowID, marker)
	msg.Header.Set(rememberedSinceHeader, strconv.FormatInt(time.Now().Unix(), 10))
	_, err := c.js.PublishMsg(ctx, msg)
	if isStreamFull(err) {
		return c.catchUpFullStream(ctx)
	}
	if err != nil {
		return fmt.Errorf("mark the end of %s: %w", c.from.StreamName(c.queue), err)
	}
	for {
		got, meta, err := c.nextMessage(jetstream.NextContext(ctx))
		if err != nil {
			return c.wrapReadError(ctx, err)
		}
		if got.Headers().Get(jetstream.MsgIDHeader) == marker {
			return c.awaitStored(ctx)
		}
		if err := c.copyDeliveryID(ctx, got, meta); err != nil {
			return err
		}
	}
}

// catchUpFullStream is like catchUp, for a stream that is too full to store a marker. It copies
// until the consumer has no messages left.
func (c *deliveryIDCopier) catchUpFullStream(ctx context.Context) error {
	for {
		got, meta, err := c.nextMessage(jetstream.NextMaxWait(nextMessageWait))
		switch {
		case err == nil:
			if err := c.copyDeliveryID(ctx, got, meta); err != nil {
				return err
			}
			continue
		case !errors.Is(err, nats.ErrTimeout):
			return c.wrapReadError(ctx, err)
		}
		info, err := c.reader.Info(ctx)
		if err != nil {
			return c.wrapReadError(ctx, err)
		}
		if info.NumPending == 0 {
			return c.awaitStored(ctx)
		}
	}
}

// wrapReadError returns the error for a read that ended early. Unless the context is done, it wraps
// errRestartMove: the consumer may have been lost with its server, so the move must start over.
func (c *deliveryIDCopier) wrapReadError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		err = fmt.Errorf("%w: %w", errRestartMove, err)
	}
	return fmt.Errorf("read the delivery IDs of %s: %w", c.from.StreamName(c.queue), err)
}

// copyDeliveryID copies a message's delivery ID. It does nothing if the message has no delivery ID,
// or if the ID is older than the deduplication window.
func (c *deliveryIDCopier) copyDeliveryID(
	ctx context.Context, got jetstream.Msg, meta *jetstream.MsgMetadata,
) error {
	id := got.Headers().Get(jetstream.MsgIDHeader)
	if id == "" {
		return nil
	}
	since, workflowID := meta.Timestamp, got.Headers().Get(stream.HeaderWorkflowID)
	if stream.IsDedupMarkerSubject(got.Subject()) {
		if seconds, err := strconv.ParseInt(got.Headers().Get(rememberedSinceHeader), 10,
			64); err == nil {
			since = time.Unix(seconds, 0)
		}
		workflowID = got.Subject()[strings.LastIndexByte(got.Subject(), '.')+1:]
	}
	if since.Before(c.dedupWindowStart) || workflowID == "" {
		return nil
	}
	msg := c.to.DedupMarkerMessage(c.targetQueue, workflowID, id)
	msg.Header.Set(rememberedSinceHeader, strconv.FormatInt(since.Unix(), 10))
	if len(c.pendingAcks) >= maxPendingCopies {
		if err := c.awaitStored(ctx); err != nil {
			return err
		}
		if err := c.saveProgress(); err != nil {
			return err
		}
	}
	return c.publishAsync(msg)
}

// publishAsync sends a message to the new stream without waiting. awaitStored waits until the
// message has been stored.
func (c *deliveryIDCopier) publishAsync(msg *nats.Msg) error {
	ack, err := c.js.PublishMsgAsync(msg)
	if err != nil {
		return fmt.Errorf("copy a delivery ID to %s: %w", c.to.StreamName(c.targetQueue), err)
	}
	c.pendingAcks = append(c.pendingAcks, ack)
	return nil
}

// awaitStored waits until all copies have been stored.
func (c *deliveryIDCopier) awaitStored(ctx context.Context) error {
	for _, ack := range c.pendingAcks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			if isDuplicateInProcess(err) {
				err = c.republish(ctx, ack)
			}
			if isStreamFull(err) {
				err = &StreamFullError{c.to.StreamName(c.targetQueue)}
			}
			if err != nil {
				return fmt.Errorf(
					"copy a delivery ID to %s: %w",
					c.to.StreamName(c.targetQueue),
					err,
				)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.pendingAcks = c.pendingAcks[:0]
	return nil
}

// republish publishes a copy again. The copy was rejected because another executor was publishing
// the same copy at the same time.
func (c *deliveryIDCopier) republish(
	ctx context.Context, future jetstream.PubAckFuture,
) (err error) {
	for range 100 {
		if _, err = c.js.PublishMsg(ctx, future.Msg()); !isDuplicateInProcess(err) {
			return err
		}
	}
	return err
}

// StreamFullError means that a stream has no space for the delivery IDs that a move copies.
type StreamFullError struct{ Stream string }

func (e *StreamFullError) Error() string {
	return "the stream " + e.Stream + " has no space for the delivery IDs that move to it"
}

func isStreamFull(err error) bool { return stream.ErrorCode(err) == stream.CodeStoreFailed }

func isDuplicateInProcess(err error) bool {
	return stream.ErrorCode(err) == stream.CodeDuplicateInProcess
}
