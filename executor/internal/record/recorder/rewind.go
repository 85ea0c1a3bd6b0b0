package recorder

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/fromstream"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// A power failure, or replacing NATS's files with an older copy, can roll a stream back: it loses
// messages that its consumers have acknowledged, while the consumers' state, which NATS keeps in
// separate files, may survive. The stream then gives the same sequences to new messages, and a
// consumer skips these because it considers them acknowledged.
//
// Before the recorder continues with a consumer, it therefore checks whether the last acknowledged
// message is recorded. If it is not recorded, and other records show that the stream was rolled
// back, the recorder rewinds the consumer to the first message that is not recorded. Messages that
// are already recorded are not recorded twice. The groups of runners receive only those messages
// again that they would otherwise skip: see redeliverSkippedStarts.
//
// If no record shows that the stream was rolled back, the database has lost transactions: see
// compareAndRewind.

// lastAckedMessages holds, for each stream and each connection to NATS, the last message that this
// process acknowledged. The connections are kept apart because between two connections, a stream
// may have been rolled back and have grown again.
type lastAckedMessages struct {
	mu       sync.Mutex
	byStream map[string][]ackedMessage // keyed by stream name, oldest mark first
}

// ackedMessage identifies the last message that this process acknowledged on one connection.
type ackedMessage struct {
	reconnects  uint64 // the connection's number of reconnects at that time
	sequence    uint64 // the message's sequence in its stream
	executionID string // the ID of the message's execution; "" if it has none
}

func (m *lastAckedMessages) add(reconnects uint64, e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byStream == nil {
		m.byStream = map[string][]ackedMessage{}
	}
	stream, now := e.meta.Stream, ackedMessage{reconnects, e.meta.Sequence.Stream, e.executionID()}
	switch all := m.byStream[stream]; {
	case len(all) == 0 || all[len(all)-1].reconnects != reconnects:
		m.byStream[stream] = append(all, now)
	case all[len(all)-1].sequence < now.sequence:
		all[len(all)-1] = now
	}
}

func (m *lastAckedMessages) forStream(stream string) []ackedMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.byStream[stream])
}

// forgetStream removes the entries of a deleted stream.
func (m *lastAckedMessages) forgetStream(stream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byStream, stream)
}

// keepNewest removes all entries of a stream except the newest.
func (m *lastAckedMessages) keepNewest(stream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.byStream[stream]; len(all) > 1 {
		m.byStream[stream] = all[len(all)-1:]
	}
}

// setFirstReusedSequence sets p.firstReusedSequence if the stream was rolled back and the consumer
// would therefore skip messages.
func (r *Recorder) setFirstReusedSequence(ctx context.Context, p *consumerPosition) error {
	if p.stream == nil {
		return nil
	}
	first, err := r.firstSkippedSequence(ctx, p.stream, p.ackFloor)
	if err != nil || first == 0 {
		return err
	}
	replaced, err := r.wasRolledBack(ctx, p.stream, p.ackFloor)
	if err == nil && replaced {
		p.firstReusedSequence = first
	}
	return err
}

// firstSkippedSequence returns the sequence of the first unrecorded message that the consumer would
// skip, or 0 if there is none. floor is the consumer's ack floor.
func (r *Recorder) firstSkippedSequence(
	ctx context.Context, s jetstream.Stream, floor uint64,
) (first uint64, err error) {
	state := s.CachedInfo().State
	if floor > state.LastSeq {
		first = state.LastSeq + 1
	}
	sequences := []uint64{floor}
	for _, mark := range r.lastAcked.forStream(s.CachedInfo().Config.Name) {
		sequences = append(sequences, mark.sequence)
	}
	for _, sequence := range sequences {
		passed, err := r.findFirstUnrecorded(ctx, s, min(sequence, state.LastSeq),
			max(state.FirstSeq, 1))
		if err != nil {
			return 0, err
		}
		if passed > 0 && (first == 0 || passed < first) {
			first = passed
		}
	}
	return first, nil
}

// findFirstUnrecorded returns the sequence of the first unrecorded message from oldest to last, or
// 0 if last is recorded. It assumes that all messages after the first unrecorded one are
// unrecorded: it goes backwards from last, in growing steps, until it finds a recorded message, and
// then bisects.
func (r *Recorder) findFirstUnrecorded(
	ctx context.Context, s jetstream.Stream, last, oldest uint64,
) (uint64, error) {
	missing := uint64(0) // the first message known not to be recorded
	low := oldest        // every message before it is recorded, or no longer in the stream
	for step := uint64(1); ; step *= 2 {
		at := last + 1 - min(step, last)
		if at < oldest || at > last {
			break
		}
		done, known, err := r.isSequenceRecorded(ctx, s, at)
		if err != nil {
			return 0, err
		}
		if done {
			low = at + 1
			break
		}
		if known || missing > 0 {
			missing = at
		}
		if at == oldest {
			break
		}
	}
	for missing > 0 && low < missing {
		middle := low + (missing-low)/2
		done, _, err := r.isSequenceRecorded(ctx, s, middle)
		if err != nil {
			return 0, err
		}
		if done {
			low = middle + 1
		} else {
			missing = middle
		}
	}
	return missing, nil
}

// wasRolledBack reports whether a stream was rolled back. Call it only if the stream's consumer
// would skip unrecorded messages. For a stream of reports, that alone proves a rollback. A stream
// of start messages was rolled back if it ends before the ack floor, or if an acknowledged message
// has been replaced by a different one. To detect a replacement, wasRolledBack compares the stream
// with this process's lastAckedMessages and with the newest records.
func (r *Recorder) wasRolledBack(
	ctx context.Context, s jetstream.Stream, floor uint64,
) (bool, error) {
	info := s.CachedInfo()
	if !consistency.HasMajority(info.Cluster) {
		return false, consistency.ErrNoMajority
	}
	if floor > info.State.LastSeq {
		return true, nil
	}
	for _, mark := range r.lastAcked.forStream(info.Config.Name) {
		other, err := r.isStartMissing(ctx, s,
			store.LostExecution{ID: mark.executionID, StreamSequence: mark.sequence})
		if err != nil || other {
			return other, err
		}
	}
	name := info.Config.Name
	if name != pairOfStream(name).starts {
		return true, nil // for a stream of reports, an unrecorded report is proof enough
	}
	streams, err := r.listStartStreams(ctx)
	if err != nil {
		return false, err
	}
	candidates, err := r.newestRecords(ctx, name, time.Now().Add(-r.maxRecordedAge(info)))
	if err != nil {
		return false, err
	}
	lost, err := r.locateStartMessages(ctx, streams, candidates)
	return len(lost) > 0, err
}

// newestRecords returns records whose start messages may be in the stream, newest first. It returns
// only executions that were accepted at the time since or later.
func (r *Recorder) newestRecords(
	ctx context.Context, name string, since time.Time,
) (found []lostCandidate, err error) {
	const page, pages = 500, 10
	var after store.RecordPosition
	queue, own := stream.QueueOfOwnStream(name)
	for range pages {
		records, err := r.store.List(ctx, store.RecordFilter{Since: since}, after, page)
		if err != nil {
			return nil, err
		}
		for _, record := range records {
			after = store.RecordPosition{AcceptedAt: record.AcceptedAt, ID: record.ID}
			if !own || record.Queue == queue {
				found = append(found, newLostCandidate(record))
			}
		}
		if !own || len(records) < page || len(found) >= page {
			break
		}
	}
	return found, nil
}

// maxRecordedAge returns the maximum age of messages whose records the database must still have.
// Records of older messages may have been deleted. The result is a little lower than the actual
// limit, because ages are not exact.
func (r *Recorder) maxRecordedAge(info *jetstream.StreamInfo) time.Duration {
	age := info.Config.MaxAge
	if r.config.Retention > 0 {
		age = min(age, r.config.Retention)
	}
	return age - min(time.Minute, age/10)
}

// isSequenceRecorded reports whether the message at a sequence is recorded, or need not be, because
// it is deleted or older than the retention of records. known is false if the message is of a kind
// that is never recorded; recorded then means nothing.
func (r *Recorder) isSequenceRecorded(
	ctx context.Context, s jetstream.Stream, sequence uint64,
) (recorded, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	msg, err := r.readMessage(ctx, s, sequence)
	if errors.Is(err, leader.ErrNoMessage) {
		return true, true, nil
	}
	if err != nil {
		return false, false, err
	}
	if time.Since(msg.Time) > r.maxRecordedAge(s.CachedInfo()) {
		return true, true, nil
	}
	if stream.IsDedupMarkerSubject(msg.Subject) {
		return false, false, nil
	}
	recorded, err = r.isRecorded(ctx, msg)
	return recorded, true, err
}

// isRecorded reports whether the content of a message is in the database: as a record, as the
// progress of a record, or as a dead letter. Two kinds of reports always count as recorded: those
// that cannot be decoded, and those on an execution that is not recorded yet.
func (r *Recorder) isRecorded(ctx context.Context, msg *jetstream.RawStreamMsg) (bool, error) {
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	switch {
	case err == nil && event.Progress != nil:
		return r.isApplied(ctx, event.Progress)
	case err != nil && stream.IsProgressSubject(msg.Subject):
		// A report that cannot be decoded does not tell what it would have changed. Treat it as
		// recorded, so that the consumer is not rewound because of it.
		return true, nil
	}
	if id := msg.Header.Get(stream.HeaderExecutionID); id != "" {
		_, err := r.store.Get(ctx, id)
		if !errors.Is(err, store.ErrNotFound) {
			return err == nil, err
		}
	}
	_, err = r.store.GetAside(ctx, fromstream.MessageKeyOf(msg.Sequence, msg.Subject))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// isApplied reports whether applying progress would change nothing. Progress of an execution that
// is not recorded yet counts as applied, because the store keeps such progress.
func (r *Recorder) isApplied(ctx context.Context, p *execution.Progress) (bool, error) {
	record, err := r.store.Get(ctx, p.ID)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	foreign := record.Queue != p.Queue || record.WorkflowID != p.WorkflowID
	return foreign || !p.Status.Follows(record.Status), err
}
