package recorder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// A database can lose its last transactions when a lagging standby is promoted or a dump is
// restored. NATS does not redeliver acknowledged messages, so the recorder must find out which of
// them the database lacks. For this purpose, every transaction also stores the ranges of messages
// that it records or puts aside (store.Batch.Handled). A message in the stream that is acknowledged
// but in none of these ranges is missing from the database. The recorder then rewinds the consumer
// to the first missing message. Messages that are already recorded are not recorded twice.
//
// The recorder compares the streams with the database when it starts or connects to NATS, when the
// store has connected to another server, every databaseCompareInterval, and before it ends
// executions.
//
// A comparison covers only the messages up to the consumer's ack floor. If another executor has not
// acknowledged a message yet, or if its acknowledgement is still on its way, the floor stays below
// that message, and the comparison misses the acknowledged messages after it. When the database may
// have been replaced, the recorder therefore compares again once the floor has passed everything
// that had been delivered before.

const (
	// databaseCompareInterval is how often the recorder compares the database with the acknowledged
	// messages.
	databaseCompareInterval = time.Minute
	// databaseCompareTimeout is the maximum duration of one comparison.
	databaseCompareTimeout = 30 * time.Second
	// natsRequestTimeout is the maximum duration of one request to NATS.
	natsRequestTimeout = 2 * time.Second
	// recoveryPollInterval is how often the recorder checks whether a database that lacked messages
	// has caught up.
	recoveryPollInterval = 200 * time.Millisecond
	// uncertaintyGrace and maxUncertainty determine for how long the executor is not ready after
	// the store may have connected to another copy of the database. That copy may lack messages
	// above the ack floor. This remains unknown until every message that was delivered is
	// acknowledged.
	//
	// During the first uncertaintyGrace, the executor stays ready, so that executors can
	// acknowledge the messages that they are recording. After that, it is not ready. After
	// maxUncertainty, it becomes ready again, because otherwise a single unreachable stream would
	// keep it from becoming ready, although everything else is recorded. If the store can never
	// connect to another database (Reconnected returns nil), the executor is ready all the time.
	uncertaintyGrace = time.Second
	maxUncertainty   = time.Minute
)

// fetchedMsg is a fetched message, together with the identity of its stream.
type fetchedMsg struct {
	jetstream.Msg
	streamIdentity string // the identity of the stream: see streamIdentityOf
}

// streamIdentityOf returns the identity of a stream: its creation time.
func streamIdentityOf(info *jetstream.StreamInfo) string {
	return info.Created.UTC().Format(time.RFC3339Nano)
}

// handledRangesOf returns the ranges of the stream sequences of the entries' messages, for
// store.Batch.Handled.
func handledRangesOf(entries []*entry) (ranges []store.HandledRange) {
	type source struct {
		stream, created string
		sequences       []uint64
	}
	var sources []source
	for _, e := range entries {
		if e.streamIdentity == "" {
			continue
		}
		i := 0
		for i < len(sources) &&
			(sources[i].stream != e.meta.Stream || sources[i].created != e.streamIdentity) {
			i++
		}
		if i == len(sources) {
			sources = append(sources, source{
				e.meta.Stream, e.streamIdentity, make([]uint64, 0, len(entries)),
			})
		}
		sources[i].sequences = append(sources[i].sequences, e.meta.Sequence.Stream)
	}
	for _, s := range sources {
		ranges = append(ranges, store.AppendSequences(nil, s.stream, s.created, s.sequences)...)
	}
	return ranges
}

// databaseRecovery tracks whether the database lacks acknowledged messages. For each stream, it
// knows the sequence up to which messages must be acknowledged before the database is compared with
// the streams again.
type databaseRecovery struct {
	compareMu sync.Mutex // held while streams and database are compared

	mu sync.Mutex
	// ackGoalByStream holds the ack goal of each stream: the database is compared with the streams
	// again once every message up to that sequence is acknowledged.
	ackGoalByStream map[string]uint64
	ackFloors       map[string]ackFloor // the most recent ack floor, by stream
	// lastDelivered maps each stream to the highest sequence that had been delivered when the last
	// comparison of the stream with the database began. A stream has no entry if everything
	// delivered had been acknowledged.
	lastDelivered  map[string]uint64
	databaseBehind bool // whether the database lacks acknowledged messages
	// maybeMissingSince is when the recorder first suspected that the store is connected to another
	// database, which may lack acknowledged messages above the ack floors. It is zero if there is
	// no such suspicion.
	maybeMissingSince time.Time
}

// ackFloor is a position in a stream. Every message up to it is acknowledged.
type ackFloor struct {
	streamIdentity string // the stream's identity
	sequence       uint64
}

// recoveryReadinessComponent is the component that /readyz reports as not ready while the database
// lacks messages, or may lack some.
const recoveryReadinessComponent = "database position"

func (r *databaseRecovery) start(stream string, goal uint64, ready *ops.Readiness) {
	r.addAckGoal(stream, goal)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.databaseBehind = true
	ready.MarkNotReady(recoveryReadinessComponent,
		"what was acknowledged is recorded again from the streams: the database lacks some of "+
			"it, as after a failover to a standby that lagged")
}

// addAckGoal makes the recorder compare the database with the streams again once every message of
// the stream up to the sequence goal is acknowledged. If the stream has a higher goal already, the
// higher one remains.
func (r *databaseRecovery) addAckGoal(stream string, goal uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ackGoalByStream == nil {
		r.ackGoalByStream = map[string]uint64{}
	}
	r.ackGoalByStream[stream] = max(r.ackGoalByStream[stream], goal)
}

// setDelivered stores, in lastDelivered, the highest sequence that had been delivered from a stream
// when a comparison of the stream with the database began. If delivered is 0, every delivered
// message had been acknowledged, and setDelivered removes the stream's entry.
func (r *databaseRecovery) setDelivered(stream string, delivered uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastDelivered == nil {
		r.lastDelivered = map[string]uint64{}
	}
	delete(r.lastDelivered, stream)
	if delivered > 0 {
		r.lastDelivered[stream] = delivered
	}
}

// addGoalsForDelivered makes the recorder compare the database again once everything that had been
// delivered at the last comparison is acknowledged. That comparison did not cover messages above
// the ack floors, and a new database may lack some of them. uncertain is true if the store may have
// switched to another database. Then the executor becomes not ready after a grace period, until all
// ack goals are reached: see updateReadiness.
func (r *databaseRecovery) addGoalsForDelivered(uncertain bool) {
	r.mu.Lock()
	delivered := maps.Clone(r.lastDelivered)
	if uncertain && len(delivered) > 0 && r.maybeMissingSince.IsZero() {
		r.maybeMissingSince = time.Now()
	}
	r.mu.Unlock()
	for name, sequence := range delivered {
		r.addAckGoal(name, sequence)
	}
}

// updateReadiness marks the executor as not ready if it remains unknown for longer than grace,
// after a switch to another database, whether that database lacks messages. It marks the executor
// as ready again when all ack goals are reached, or after maxUncertainty. While the database is
// known to lack messages, updateReadiness does nothing, because the executor is not ready anyway.
func (r *databaseRecovery) updateReadiness(ready *ops.Readiness, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.databaseBehind || r.maybeMissingSince.IsZero() {
		return
	}
	switch waited := time.Since(r.maybeMissingSince); {
	case len(r.ackGoalByStream) == 0:
		r.maybeMissingSince = time.Time{}
		ready.MarkReady(recoveryReadinessComponent)
	case waited >= maxUncertainty:
		ready.MarkReady(recoveryReadinessComponent)
	case waited >= grace:
		ready.MarkNotReady(recoveryReadinessComponent,
			"the database may be a new one, and messages that were delivered before are "+
				"not acknowledged: until they are, it is not known whether the database has all "+
				"that was acknowledged after them")
	}
}

// isBehind reports whether the database is known to lack acknowledged messages.
func (r *databaseRecovery) isBehind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.databaseBehind
}

// endIfComplete ends the recovery and returns true. It does nothing and returns false if the
// database is not known to lack messages, or if a stream still has an ack goal. A stream gets a new
// goal if the last comparison has found that the database lacks more messages.
func (r *databaseRecovery) endIfComplete(ready *ops.Readiness) (wasBehind bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.databaseBehind || len(r.ackGoalByStream) > 0 {
		return false
	}
	r.databaseBehind, r.maybeMissingSince = false, time.Time{}
	ready.MarkReady(recoveryReadinessComponent)
	return true
}

// updateAckFloor stores floor as the ack floor of a stream. If the previous ack floor was higher,
// another executor has rewound the consumer, and updateAckFloor returns the sequence of the
// previous ack floor. Otherwise, it returns 0.
func (r *databaseRecovery) updateAckFloor(stream string, floor ackFloor) (before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ackFloors == nil {
		r.ackFloors = map[string]ackFloor{}
	}
	last := r.ackFloors[stream]
	r.ackFloors[stream] = floor
	if last.streamIdentity == floor.streamIdentity && last.sequence > floor.sequence {
		return last.sequence
	}
	return 0
}

func (r *databaseRecovery) ackGoal(stream string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ackGoalByStream[stream]
}

// forgetStream removes everything that the recovery remembers about a deleted stream.
func (r *databaseRecovery) forgetStream(stream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ackGoalByStream, stream)
	delete(r.ackFloors, stream)
	delete(r.lastDelivered, stream)
}

// streamsBelowGoal returns the names of the streams that are not yet acknowledged up to their
// goals.
func (r *databaseRecovery) streamsBelowGoal() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.ackGoalByStream))
}

func (r *databaseRecovery) markGoalReached(stream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ackGoalByStream, stream)
}

// mayLackMessages reports whether the database may lack acknowledged messages of either stream of a
// pair.
func (r *databaseRecovery) mayLackMessages(at streamPair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.databaseBehind || r.ackGoalByStream[at.starts] > 0 ||
		r.ackGoalByStream[at.progress] > 0
}

// isRunning reports whether a recovery is in progress: either the database is known to lack
// messages, or some ack goals are not reached yet. Once they are reached, the database is compared
// with the streams again.
func (r *databaseRecovery) isRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.databaseBehind || len(r.ackGoalByStream) > 0
}

// trySend sends to c, which must have a buffer for one value, unless the buffer is full. It never
// blocks.
func trySend(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watchForDataLoss compares the database with the streams until the context is done, at the times
// that the comment at the top of this file lists. It also finishes recoveries.
func (r *Recorder) watchForDataLoss(ctx context.Context) {
	tick := time.NewTicker(r.timings.databaseCompareInterval)
	defer tick.Stop()
	poll := time.NewTicker(recoveryPollInterval)
	defer poll.Stop()
	// mayBeReplaced is true if the database may have been replaced since the acknowledged messages
	// were recorded. The recorder does not know that at its start, so it assumes the worst.
	mayBeReplaced := true
	// uncertain is true if the store may connect to another copy of the database, which may lack
	// messages. A store that cannot, such as SQLite, returns a nil channel from Reconnected.
	uncertain := r.store.Reconnected() != nil
	for ctx.Err() == nil {
		_, err := r.compareAndRewindAll(ctx)
		if err == nil && (mayBeReplaced || r.databaseRecovery.isBehind()) {
			r.databaseRecovery.addGoalsForDelivered(uncertain)
			mayBeReplaced = false
		}
		r.databaseRecovery.updateReadiness(r.ready, r.timings.uncertaintyGrace)
		for err == nil {
			select {
			case <-ctx.Done():
				return
			case <-poll.C:
				if r.databaseRecovery.isRunning() {
					err = r.finishRecovery(ctx)
				}
				r.databaseRecovery.updateReadiness(r.ready, r.timings.uncertaintyGrace)
				continue
			case <-tick.C:
			case <-r.store.Reconnected():
				mayBeReplaced = true
			case <-r.recoveryStarted:
			}
			break
		}
		if err != nil {
			r.log.WithError(err).Debug("could not compare the database with the streams; " +
				"retrying")
			retry.Sleep(ctx, time.Second)
		}
	}
}

// updateAckFloor stores the position up to which a stream is acknowledged. If another executor has
// rewound the consumer, updateAckFloor makes this executor take part in the recovery.
func (r *Recorder) updateAckFloor(name, created string, sequence uint64) {
	if before := r.databaseRecovery.updateAckFloor(name, ackFloor{created, sequence}); before > 0 {
		r.databaseRecovery.start(name, before, r.ready)
		trySend(r.recoveryStarted)
	}
}

// finishRecovery removes the goals that have been reached. Once there are none left, it compares
// the database with the streams again, and ends the recovery if the database lacks nothing.
func (r *Recorder) finishRecovery(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, databaseCompareTimeout)
	defer cancel()
	for _, name := range r.databaseRecovery.streamsBelowGoal() {
		goal := r.databaseRecovery.ackGoal(name)
		consumer, err := r.js.Consumer(ctx, name, stream.RecorderConsumerName)
		if errors.Is(err, jetstream.ErrStreamNotFound) &&
			pairOfStream(name) != sharedStreamPair {
			r.databaseRecovery.markGoalReached(name) // it was deleted
			continue
		}
		if err != nil {
			return err
		}
		if stream.CaughtUp(consumer.CachedInfo(), goal) {
			r.databaseRecovery.markGoalReached(name)
		}
	}
	if len(r.databaseRecovery.streamsBelowGoal()) > 0 {
		return nil
	}
	// Compare again: since the last comparison, other messages may have been acknowledged that only
	// the previous database had recorded.
	if behind, err := r.compareAndRewindAll(ctx); err != nil || behind {
		if err != nil {
			// Add the lowest possible goal, so that the next finishRecovery compares again.
			r.databaseRecovery.addAckGoal(sharedStreamPair.starts, 1)
		} else {
			r.databaseRecovery.addGoalsForDelivered(
				false,
			) // the database is behind, so the executor is not ready anyway
		}
		return err
	}
	if r.databaseRecovery.endIfComplete(r.ready) {
		r.log.Info("the database has again what was acknowledged")
		r.fullSearchDue.Store(true)
		trySend(r.searchNow)
	}
	return nil
}

// compareAndRewindAll calls compareAndRewind for every pair of a start stream and a report
// stream, and continues after errors. behind reports whether the database has lost transactions
// with messages of any pair.
func (r *Recorder) compareAndRewindAll(ctx context.Context) (behind bool, err error) {
	pairs, err := r.existingPairs(ctx)
	if err != nil {
		pairs = []streamPair{sharedStreamPair}
	}
	for _, p := range pairs {
		lacks, failed := r.compareAndRewind(ctx, p)
		behind, err = behind || lacks, errors.Join(err, failed)
	}
	return behind, err
}

// compareAndRewind compares a pair of streams with the database. If a stream was rolled back or
// the database has lost transactions, the recorder's consumer of that stream would skip messages
// that are not recorded. compareAndRewind then rewinds the consumer to the first such message.
// behind reports whether the database has lost transactions.
func (r *Recorder) compareAndRewind(
	ctx context.Context,
	at streamPair,
) (behind bool, err error) {
	r.databaseRecovery.compareMu.Lock()
	defer r.databaseRecovery.compareMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, databaseCompareTimeout)
	defer cancel()
	starts, err := r.positionOf(ctx, at.starts)
	if err != nil {
		return false, err
	}
	reports, err := r.positionOf(ctx, at.progress)
	if err != nil {
		return false, err
	}
	if err := r.setFirstReusedSequence(ctx, starts); err != nil {
		return false, err
	}
	if err := r.setFirstMissingSequence(ctx, starts, reports); err != nil {
		return false, err
	}
	if starts.firstMissingSequence == 0 && reports.firstMissingSequence == 0 &&
		!r.databaseRecovery.isBehind() {
		err = r.setFirstReusedSequence(ctx, reports)
	}
	for _, p := range []*consumerPosition{starts, reports} {
		if err == nil {
			err = r.rewindIfBehind(ctx, p)
		}
	}
	if err != nil {
		return false, err
	}
	behind = starts.firstMissingSequence > 0 || reports.firstMissingSequence > 0
	if behind {
		trySend(r.recoveryStarted)
		r.reapplyReportsAndAudit(ctx)
	}
	return behind, nil
}

// consumerPosition is the position of the recorder's consumer in a stream.
type consumerPosition struct {
	// stream is nil if the stream or the consumer does not exist, which means that nothing is
	// acknowledged.
	stream     jetstream.Stream
	streamName string
	ackFloor   uint64 // the sequence up to which every message is acknowledged
	// firstReusedSequence is the sequence of the first message that the consumer would skip because
	// the stream was rolled back: the message has the sequence of an earlier message that was
	// acknowledged. It is 0 if there is none.
	firstReusedSequence uint64
	// firstMissingSequence is the sequence of the first acknowledged message that is missing from
	// the database. It is 0 if there is none.
	firstMissingSequence uint64
}

// positionOf returns the position of the recorder's consumer in a stream. Call it before reading
// the handled ranges from the database. The ranges then include every message that the position
// counts as acknowledged, because a message is acknowledged only after its transaction.
func (r *Recorder) positionOf(ctx context.Context, name string) (*consumerPosition, error) {
	p := &consumerPosition{streamName: name}
	ctx, cancel := context.WithTimeout(ctx, natsRequestTimeout) // the connection may get lost
	defer cancel()
	consumer, err := r.js.Consumer(ctx, name, stream.RecorderConsumerName)
	if errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrStreamNotFound) {
		r.databaseRecovery.setDelivered(name, 0)
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of %s: %w", stream.RecorderConsumerName, name, err)
	}
	info := consumer.CachedInfo()
	p.ackFloor = info.AckFloor.Stream
	delivered := info.Delivered.Stream
	if info.NumAckPending == 0 {
		delivered = 0
	}
	r.databaseRecovery.setDelivered(name, delivered)
	if p.stream, err = r.js.Stream(ctx, name); err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	return p, nil
}

// setFirstMissingSequence sets firstMissingSequence in each position. If the database has no ranges
// for a stream, it assumes that all messages of the stream are missing. It does not use the records
// to find out which messages are missing: because executors record in parallel, a record does not
// prove that the messages before it are recorded.
func (r *Recorder) setFirstMissingSequence(
	ctx context.Context, positions ...*consumerPosition,
) error {
	for _, p := range positions {
		if p.stream == nil {
			continue
		}
		ranges, err := r.store.HandledRanges(ctx, p.streamName,
			streamIdentityOf(p.stream.CachedInfo()))
		if err != nil {
			return err
		}
		if p.firstReusedSequence > 0 {
			ranges = store.RangesBefore(ranges, p.firstReusedSequence)
		}
		if p.firstMissingSequence, err = findFirstMissing(ctx, p, ranges); err != nil {
			return err
		}
	}
	return nil
}

// acknowledgedRange returns the first and the last sequence of the acknowledged messages, without
// those that were replaced when the stream was rolled back.
func (p *consumerPosition) acknowledgedRange() (first, last uint64) {
	state := p.stream.CachedInfo().State
	last = min(p.ackFloor, state.LastSeq)
	if p.firstReusedSequence > 0 {
		last = min(last, p.firstReusedSequence-1)
	}
	return max(state.FirstSeq, 1), last
}

// findFirstMissing returns the sequence of the first acknowledged message that none of the ranges
// contains, or 0 if they contain all.
func findFirstMissing(
	ctx context.Context, p *consumerPosition, ranges []store.HandledRange,
) (uint64, error) {
	next, last := p.acknowledgedRange()
	for i := 0; next <= last; {
		for i < len(ranges) && ranges[i].Last < next {
			i++
		}
		if i < len(ranges) && ranges[i].First <= next {
			next = ranges[i].Last + 1
			continue
		}
		// The stream may have deleted or dropped this message before it was delivered. It is then
		// in none of the ranges, but not missing. Skip to the first message that still exists.
		sequence, err := firstSequenceFrom(ctx, p.stream, next)
		if err != nil || sequence == 0 || sequence > last {
			return 0, err
		}
		if i == len(ranges) || sequence < ranges[i].First {
			return sequence, nil
		}
		next = sequence
	}
	return 0, nil
}

// firstSequenceFrom returns the sequence of the first message at or after the given sequence, or 0
// if there is none.
func firstSequenceFrom(ctx context.Context, s jetstream.Stream, sequence uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, natsRequestTimeout)
	defer cancel()
	msg, err := s.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("the message from %d on: %w", sequence, err)
	}
	return msg.Sequence, nil
}

// rewindIfBehind makes the recorder's consumer of a stream deliver messages again, beginning with
// the first one that it would otherwise skip.
func (r *Recorder) rewindIfBehind(ctx context.Context, p *consumerPosition) error {
	first, cause := p.firstMissingSequence, rewindCauseDatabase
	if p.firstReusedSequence > 0 {
		if p.streamName == pairOfStream(p.streamName).starts {
			if err := r.redeliverSkippedStarts(ctx, p); err != nil {
				return err
			}
		}
		if err := r.store.ForgetHandled(ctx, p.streamName, streamIdentityOf(p.stream.CachedInfo()),
			p.firstReusedSequence); err != nil {
			return err
		}
		if first == 0 {
			first, cause = p.firstReusedSequence, rewindCauseStream
		}
	}
	if first == 0 {
		if p.stream != nil {
			r.lastAcked.keepNewest(p.streamName)
		}
		return nil
	}
	if p.firstMissingSequence > 0 {
		r.databaseRecovery.start(p.streamName, p.ackFloor, r.ready)
	}
	consumer := stream.RecorderConsumerName
	if _, err := r.js.ResetConsumerToSequence(ctx, p.streamName, consumer, first); err != nil {
		return fmt.Errorf("rewind the consumer %s of %s to %d: %w", consumer, p.streamName, first,
			err)
	}
	r.fullSearchDue.Store(true) // executions that had ended, or were pruned, may come back
	r.lastAcked.keepNewest(p.streamName)
	r.databaseRecovery.updateAckFloor(
		p.streamName,
		ackFloor{streamIdentityOf(p.stream.CachedInfo()), first - 1},
	)
	r.metrics.rewinds.WithLabelValues(cause).Inc()
	why := "the database is behind what was acknowledged, after a failover to a standby that " +
		"lagged, or because an older copy was put back, or because an executor of an earlier " +
		"version runs beside this one; it is recorded again from there"
	if cause == rewindCauseStream {
		why = "the stream was taken back behind what was acknowledged, by a power cut or a " +
			"restored copy; it is recorded from there"
	}
	r.log.WithFields(logrus.Fields{
		"stream": p.streamName, "acknowledged": p.ackFloor,
		"first": first,
	}).Error(why)
	return nil
}

// reapplyReportsAndAudit makes executors apply the ingresses' reports and the audit entries again,
// because a database that lacks messages may also lack some of these. Reports and entries that the
// database already has are not applied twice.
func (r *Recorder) reapplyReportsAndAudit(ctx context.Context) {
	_, err := r.js.ResetConsumerToSequence(ctx, stream.ReportsName, stream.RecorderConsumerName, 1)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		r.log.WithError(err).Warn("the ingresses' reports are not applied again; counts of " +
			"before the database's loss stay too low")
	}
	if r.config.OnDatabaseBehind != nil {
		r.config.OnDatabaseBehind(ctx)
	}
}
