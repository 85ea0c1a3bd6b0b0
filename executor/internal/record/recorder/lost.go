package recorder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

const (
	// lostSearchDelay is how long EndLostExecutions waits before it searches, after it has started
	// or the process has reconnected to NATS. The recorder can catch up in that time, and runners
	// can report on the start messages that they have received.
	lostSearchDelay = 10 * time.Second
	// lostRecheckDelay is the delay before a missing start message is looked up again, because the
	// first lookup may have reached a replica that lags behind.
	lostRecheckDelay = 5 * time.Second
	// maxConcurrentLookups is the maximum number of concurrent message lookups.
	maxConcurrentLookups = 8
	// minRunTimeToExpire is how long an execution must have been running before it is ended because
	// its start message has expired. Until then, its handler may still be running.
	minRunTimeToExpire = 24 * time.Hour
)

// lostSearchInterval returns the interval between searches for executions that no runner will end:
// one hour, or maxAge if that is shorter, but at least one minute. maxAge is the shortest maximum
// age of the streams of start messages, or 0 if one of them could not be read.
func lostSearchInterval(maxAge time.Duration) time.Duration {
	return max(time.Minute, min(maxAge, time.Hour))
}

// endReason is the reason why no runner will end an execution. The recorder then marks the
// execution as failed.
type endReason struct {
	metricLabel string // the value of the metric's label
	errorText   string // the error that is stored in the record
}

var (
	endReasonLost = endReason{
		"lost",
		"its start was lost: the stream no longer has the message, after a power cut or a " +
			"restored copy; nothing can run it",
	}
	endReasonExpired = endReason{
		"expired",
		"no runner took it, or ended it, within the age of the stream, which no longer has its " +
			"start; nothing can run it",
	}
	endReasonUnreported = endReason{
		"unreported",
		"a runner acknowledged it without a report that can be read, so how it ended is not " +
			"known; or NATS skipped it, and no runner received it",
	}

	endReasons = []endReason{endReasonLost, endReasonExpired, endReasonUnreported}
)

// EndLostExecutions marks executions as failed if no runner will end them. There are three reasons:
// the stream has lost the start message, the start message expired before a runner received it, or
// a runner acknowledged the start message without a report. EndLostExecutions searches for such
// executions lostSearchDelay after its start and after each reconnect to NATS, and every
// lostSearchInterval, until the context is done.
func (r *Recorder) EndLostExecutions(ctx context.Context) {
	connected := r.js.Conn().StatusChanged(nats.CONNECTED)
	defer r.js.Conn().RemoveStatusListener(connected)
	search := lostSearch{windowLength: firstLostWindow}
	var lastLogged time.Time
	for ctx.Err() == nil {
		retry.Sleep(ctx, r.timings.lostSearchDelay)
		every := time.Hour
		search.begin(time.Now(), r.oldestLateAcceptance.take())
		for ctx.Err() == nil {
			if r.fullSearchDue.Swap(false) {
				search.beginFull(time.Now())
			}
			maxAge, err := r.searchAndEndLost(ctx, &search)
			if err == nil {
				every = r.timings.lostSearchInterval(maxAge)
				break
			}
			level := logrus.DebugLevel
			if !errors.Is(err, errNotCaughtUp) && ctx.Err() == nil &&
				time.Since(lastLogged) >= logInterval {
				level, lastLogged = logrus.WarnLevel, time.Now()
			}
			r.log.WithError(err).Log(level, "could not look for executions that no runner will "+
				"end; retrying")
			retry.Sleep(ctx, time.Second)
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
		case <-connected:
		case <-r.searchNow:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// searchAndEndLost makes one search for executions that no runner will end, and marks them as
// failed. search holds the state of the search: after an error, call searchAndEndLost again with
// the same search, and the search continues where it stopped. Executions that were accepted within
// the last lostRecheckDelay are ignored. The result is the shortest maximum age of the streams of
// start messages. It is 0 if a stream could not be read at some point of the search. The next
// search then begins soon, and reads the executions that this one ignored.
func (r *Recorder) searchAndEndLost(
	ctx context.Context, search *lostSearch,
) (maxAge time.Duration, err error) {
	until := time.Now().Add(-r.timings.lostRecheckDelay)
	streams, err := r.readStartStreams(ctx, search)
	if err != nil {
		return 0, err
	}
	if search.upperBound.IsZero() {
		if r.config.SkippingConsumers != nil {
			if search.skippingConsumers, err = r.config.SkippingConsumers(); err != nil {
				return 0, err
			}
		}
		search.upperBound, search.readDownTo = until, until
	}
	for {
		filter := store.RecordFilter{Since: search.lowerBound, Until: search.readDownTo}
		newest, err := r.store.List(ctx, filter, store.RecordPosition{}, 1)
		if err != nil {
			return 0, err
		}
		if len(newest) == 0 {
			break
		}
		window := search.nextWindow(newest[0].AcceptedAt)
		found, slowest, err := r.findLostCandidates(ctx, streams, search, window)
		search.adjustWindowLength(slowest, err)
		if err == nil && len(found) > 0 {
			streams, err = r.recheckAndEndLost(ctx, search, found)
		}
		if err != nil {
			return 0, err
		}
		search.readDownTo = window.Since
		retry.Sleep(ctx, slowest) // leave half of the time to other users of the database
	}
	for len(search.skippingConsumers) > 0 {
		consumer := search.skippingConsumers[0]
		if !search.unreadableStreams[consumer.Stream] {
			if err := r.config.OnRedelivered(consumer); err != nil {
				return 0, err
			}
		}
		search.skippingConsumers = search.skippingConsumers[1:]
	}
	search.end()
	if len(search.unreadableStreams) > 0 {
		return 0, nil
	}
	return streams.shortestMaxAge(), nil
}

// recheckAndEndLost ends the executions in found that no runner will end. It first waits for
// lostRecheckDelay and looks up their start messages again, because a runner may be able to end
// some of them after all. It returns the streams of start messages, which it has read again, with
// their groups of runners.
func (r *Recorder) recheckAndEndLost(
	ctx context.Context, search *lostSearch, found []lostCandidate,
) (startStreams, error) {
	retry.Sleep(ctx, r.timings.lostRecheckDelay)
	// Read the streams again: since they were last read, a queue's own stream may have been
	// created, or a group of runners may have begun.
	streams, err := r.readStartStreams(ctx, search)
	if err != nil {
		return nil, err
	}
	byReason, err := r.groupByEndReason(ctx, streams, found)
	if err != nil {
		return nil, err
	}
	byReason[endReasonUnreported], err = r.republishSkippedStarts(ctx, streams,
		search.skippingConsumers, byReason[endReasonUnreported])
	if err != nil {
		return nil, err
	}
	for why, some := range byReason {
		if err := r.endAsFailed(ctx, streams, why, some); err != nil {
			return nil, err
		}
	}
	return streams, nil
}

// readStartStreams returns the streams of start messages that currently exist, with their groups of
// runners. It adds those that could not be read to search.unreadableStreams.
func (r *Recorder) readStartStreams(ctx context.Context, search *lostSearch) (startStreams, error) {
	streams, err := r.listStartStreams(ctx)
	if err == nil {
		err = r.readRunnerGroups(ctx, streams)
	}
	if err != nil {
		return nil, err
	}
	for name, at := range streams {
		if at.err != nil {
			search.unreadableStreams[name] = true
		}
	}
	return streams, nil
}

// readRunnerGroups reads the groups of runners of each stream. It returns an error if not
// everything in the shared streams is recorded in the database. If a queue's own stream is
// unreachable or not fully recorded, readRunnerGroups only sets the err field of that stream. The
// search then ignores executions whose start messages may be in the stream.
func (r *Recorder) readRunnerGroups(ctx context.Context, streams startStreams) error {
	if err := r.readRunnerGroupsOf(ctx, streams, sharedStreamPair.starts); err != nil {
		return err
	}
	var preparing sync.WaitGroup
	for name, at := range streams {
		if name != sharedStreamPair.starts && at.err == nil {
			preparing.Go(func() { at.err = r.readRunnerGroupsOf(ctx, streams, name) })
		}
	}
	preparing.Wait()
	return nil
}

func (r *Recorder) readRunnerGroupsOf(
	ctx context.Context, streams startStreams, name string,
) (err error) {
	// Read what the groups have acknowledged before waiting for the recorder. Runners report on an
	// execution before they acknowledge its start message. So once the recorder has caught up, it
	// has recorded the reports on everything that the groups had acknowledged.
	at := streams[name]
	if at.groups, err = runnerGroupsOf(ctx, at.stream); err != nil {
		return err
	}
	return r.checkAllRecorded(ctx, pairOfStream(name))
}

// checkAllRecorded returns an error if not everything in a pair of streams is recorded in the
// database.
func (r *Recorder) checkAllRecorded(ctx context.Context, at streamPair) error {
	for _, name := range at.streamNames() {
		if err := r.awaitCaughtUp(ctx, name); err != nil {
			return err
		}
	}
	// Call mayLackMessages both before and after compareAndRewind, because either result alone
	// may miss something. While a stream has an ack goal (databaseRecovery.ackGoalByStream), the
	// database may lack messages below the goal. If the stream reaches the goal during
	// compareAndRewind, only the earlier call still sees the goal. If a goal is set during
	// compareAndRewind, only the later call sees it.
	mayLack := r.databaseRecovery.mayLackMessages(at)
	behind, err := r.compareAndRewind(ctx, at)
	if err == nil && (mayLack || behind || r.databaseRecovery.mayLackMessages(at)) {
		err = errNotCaughtUp
	}
	return err
}

// endAsFailed marks executions as failed, in batches. Before each batch, it checks that everything
// in the streams is recorded, and returns an error if not: the database may have been replaced by
// one that lacks messages, and these may show that the executions have ended.
func (r *Recorder) endAsFailed(
	ctx context.Context, streams startStreams, why endReason, candidates []lostCandidate,
) error {
	const page = 500
	for len(candidates) > 0 {
		for name, at := range streams {
			if at.err != nil {
				continue
			}
			if err := r.checkAllRecorded(ctx, pairOfStream(name)); err != nil {
				return err
			}
		}
		var now []store.LostExecution
		for _, c := range candidates[:min(page, len(candidates))] {
			now = append(now, c.LostExecution)
		}
		ended, err := r.store.EndLostExecutions(ctx, now, time.Now(), why.errorText)
		if err != nil {
			// The transaction may have been committed although its response was lost. These
			// executions are then marked as failed, and no later search would find and announce
			// them. So announce them now.
			r.announceChanges(lostIDs(now))
			return err
		}
		candidates = candidates[len(now):]
		if len(ended) == 0 {
			continue
		}
		r.metrics.endedLostExecutions.WithLabelValues(why.metricLabel).Add(float64(len(ended)))
		r.log.WithFields(logrus.Fields{
			"executions": len(ended),
			"first":      ended[0],
		}).Error("executions were ended as failed: " + why.errorText)
		r.announceChanges(ended)
	}
	return nil
}

func lostIDs(executions []store.LostExecution) []string {
	ids := make([]string, len(executions))
	for i, e := range executions {
		ids[i] = e.ID
	}
	return ids
}

var errNotCaughtUp = errors.New("the recorder has not caught up")

const (
	// catchUpTimeout is how long a search waits for the recorder to catch up.
	catchUpTimeout = 10 * time.Second
	// catchUpPollInterval is how often the search checks the recorder's progress.
	catchUpPollInterval = 100 * time.Millisecond
)

// awaitCaughtUp waits, for at most catchUpTimeout, until everything that the stream contains at the
// time of the call is recorded. The database then has every final state that was reported and, for
// each start message that was published again, the sequence of the copy. awaitCaughtUp does not
// wait for later messages, so it also returns under steady load.
func (r *Recorder) awaitCaughtUp(ctx context.Context, name string) error {
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	last := s.CachedInfo().State.LastSeq
	for deadline := time.Now().Add(catchUpTimeout); ; {
		consumer, err := s.Consumer(ctx, stream.RecorderConsumerName)
		if err != nil {
			return err
		}
		if stream.CaughtUp(consumer.CachedInfo(), last) {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return errNotCaughtUp
		}
		retry.Sleep(ctx, r.timings.catchUpPollInterval)
	}
}

// findLostCandidates returns the executions that were accepted within a window, have not ended, and
// will not be ended by any runner. It also returns the duration of the slowest query.
func (r *Recorder) findLostCandidates(
	ctx context.Context, streams startStreams, search *lostSearch, window store.RecordFilter,
) (found []lostCandidate, slowest time.Duration, err error) {
	const page = 500
	for _, window.Status = range []execution.Status{execution.Queued, execution.Running} {
		var after store.RecordPosition
		for {
			began := time.Now()
			records, err := r.store.List(ctx, window, after, page)
			slowest = max(slowest, time.Since(began))
			if err != nil {
				return nil, slowest, err
			}
			candidates := make([]lostCandidate, 0, len(records))
			for _, record := range records {
				after = store.RecordPosition{AcceptedAt: record.AcceptedAt, ID: record.ID}
				search.noteUnfinished(record.AcceptedAt)
				candidates = append(candidates, newLostCandidate(record))
			}
			byReason, err := r.groupByEndReason(ctx, streams, candidates)
			if err != nil {
				return nil, slowest, err
			}
			for _, some := range byReason {
				found = append(found, some...)
			}
			if len(records) < page {
				break
			}
		}
	}
	return found, slowest, nil
}

// groupByEndReason returns the candidates that no runner will end, grouped by reason. It leaves out
// candidates whose start message could not be looked up.
func (r *Recorder) groupByEndReason(
	ctx context.Context, streams startStreams, candidates []lostCandidate,
) (map[endReason][]lostCandidate, error) {
	if _, err := r.locateStartMessages(ctx, streams, candidates); err != nil {
		return nil, err
	}
	// Read the clock after the lookups. With an earlier time, a start message that expired during
	// the lookups would seem too young to have expired, and would be reported as lost.
	asked := time.Now()
	found := map[endReason][]lostCandidate{}
	for _, c := range candidates {
		maxAge, groups, ok := streams.maxAgeAndGroups(c)
		if !ok {
			continue
		}
		if why, ok := endReasonFor(c, asked, maxAge, groups); ok {
			found[why] = append(found[why], c)
		}
	}
	return found, nil
}

// endReasonFor returns why no runner will end an unfinished execution. ok is false if a runner may
// still end it. The caller must have called locateStartMessages for c. maxAge and groups
// describe the stream that holds or held the start message: the maximum age of its messages, and
// its groups of runners.
func endReasonFor(
	c lostCandidate, now time.Time, maxAge time.Duration, groups []runnerGroup,
) (why endReason, ok bool) {
	// Ages are not exact. The margin prevents a start message that has just expired from being
	// treated as lost, although a runner may have received it at the last moment.
	margin := min(time.Minute, maxAge/10)
	age := now.Sub(c.acceptedAt)
	switch {
	case c.startSubject != "":
		return endReasonUnreported, haveAcknowledged(groups, c)
	case age < maxAge-margin:
		return endReasonLost, true
	case c.status == execution.Running:
		return endReasonExpired, now.Sub(c.startedAt) > max(maxAge, minRunTimeToExpire)
	default:
		return endReasonExpired, age > maxAge+margin
	}
}

// startStream is a stream of start messages, together with the groups of runners that consume it.
type startStream struct {
	stream jetstream.Stream // nil if the stream is unreachable; err is then set
	groups []runnerGroup
	err    error // why the stream cannot be searched for start messages
}

// startStreams holds the streams of start messages, keyed by name. The shared stream is always
// present.
type startStreams map[string]*startStream

// listStartStreams returns the streams of start messages that currently exist.
func (r *Recorder) listStartStreams(ctx context.Context) (startStreams, error) {
	pairs, err := r.existingPairs(ctx)
	if err != nil {
		return nil, err
	}
	streams := startStreams{}
	for _, p := range pairs {
		asking, cancel := context.WithTimeout(ctx, natsRequestTimeout)
		s, err := r.js.Stream(asking, p.starts)
		cancel()
		switch {
		case err != nil && p == sharedStreamPair:
			return nil, fmt.Errorf("stream %s: %w", p.starts, err)
		case errors.Is(err, jetstream.ErrStreamNotFound):
		default:
			streams[p.starts] = &startStream{stream: s, err: err}
		}
	}
	return streams, nil
}

// forQueue returns the streams that may hold the start message of an execution in the queue: the
// shared stream and, if it exists, the queue's own stream. The queue may have moved from one to the
// other since the execution was accepted.
func (s startStreams) forQueue(queue string) []*startStream {
	if own := s[stream.OwnStreamName(queue)]; own != nil {
		return []*startStream{own, s[sharedStreamPair.starts]}
	}
	return []*startStream{s[sharedStreamPair.starts]}
}

// shortestMaxAge returns the shortest maximum age of the streams, all of which must have been read.
func (s startStreams) shortestMaxAge() time.Duration {
	age := time.Duration(math.MaxInt64)
	for _, at := range s {
		age = min(age, at.stream.CachedInfo().Config.MaxAge)
	}
	return age
}

// maxAgeAndGroups returns the maximum age of the stream that holds or held an execution's start
// message, and the groups of runners that consume that stream. ok is false if a stream that may
// hold the message could not be read.
func (s startStreams) maxAgeAndGroups(
	c lostCandidate,
) (maxAge time.Duration, groups []runnerGroup, ok bool) {
	if c.streamUnreadable {
		return 0, nil, false
	}
	at := s[c.startStreamName]
	if at == nil { // no stream has the start message
		at = s[sharedStreamPair.starts]
		for _, other := range s.forQueue(c.queue) {
			if other != at && c.StreamSequence < other.stream.CachedInfo().State.FirstSeq {
				at = other
			}
		}
	}
	return at.stream.CachedInfo().Config.MaxAge, at.groups, true
}

// lostCandidate is an unfinished execution, with the result of looking up its start message.
type lostCandidate struct {
	store.LostExecution
	queue      string // the queue of the execution
	status     execution.Status
	acceptedAt time.Time
	startedAt  time.Time

	startStreamName  string    // the stream that holds the start message; "" if none does
	startSubject     string    // the subject of the start message; "" if no stream has it
	startStoredAt    time.Time // when the stream stored the start message
	streamUnreadable bool      // whether a stream that may hold it could not be read
}

func newLostCandidate(record store.Record) lostCandidate {
	return lostCandidate{
		LostExecution: store.LostExecution{ID: record.ID, StreamSequence: record.StreamSequence},
		queue:         record.Queue,
		status:        record.Status,
		acceptedAt:    record.AcceptedAt,
		startedAt:     record.StartedAt,
	}
}

// locateStartMessages looks up the candidates' start messages and stores the results in the
// candidates. It returns the candidates whose start message is lost: no stream has it at the
// recorded sequence, and every stream that may hold it could be read.
func (r *Recorder) locateStartMessages(
	ctx context.Context, streams startStreams, candidates []lostCandidate,
) (lost []lostCandidate, err error) {
	var (
		asking sync.WaitGroup
		next   = make(chan *lostCandidate)
		mu     sync.Mutex
	)
	for range min(maxConcurrentLookups, len(candidates)) {
		asking.Go(func() {
			for one := range next {
				failed := r.locateStartMessage(ctx, streams, one)
				mu.Lock()
				err = errors.Join(err, failed)
				if failed == nil && one.startSubject == "" && !one.streamUnreadable {
					lost = append(lost, *one)
				}
				mu.Unlock()
			}
		})
	}
	for i := range candidates {
		next <- &candidates[i]
	}
	close(next)
	asking.Wait()
	return lost, err
}

// locateStartMessage looks up a candidate's start message and sets the fields startStreamName,
// startSubject, startStoredAt and streamUnreadable of the candidate.
func (r *Recorder) locateStartMessage(ctx context.Context, streams startStreams,
	c *lostCandidate,
) error {
	c.startStreamName, c.startSubject, c.startStoredAt, c.streamUnreadable = "", "", time.Time{},
		false
	for _, at := range streams.forQueue(c.queue) {
		if at.err != nil {
			c.streamUnreadable = true
			continue
		}
		if c.StreamSequence < at.stream.CachedInfo().State.FirstSeq {
			continue
		}
		msg, err := r.findStartMessage(ctx, at.stream, c.LostExecution)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // the stream was deleted after it was listed
		}
		if err != nil {
			return err
		}
		if msg != nil {
			c.startStreamName = at.stream.CachedInfo().Config.Name
			c.startSubject, c.startStoredAt = msg.Subject, msg.Time
			c.streamUnreadable = false
			return nil
		}
	}
	return nil
}

func (r *Recorder) isStartMissing(
	ctx context.Context,
	s jetstream.Stream,
	lost store.LostExecution,
) (bool, error) {
	msg, err := r.findStartMessage(ctx, s, lost)
	return err == nil && msg == nil, err
}

// findStartMessage returns the start message of an execution if the stream has it at the recorded
// sequence. It returns nil if there is no message at that sequence, or a message of another
// execution.
func (r *Recorder) findStartMessage(
	ctx context.Context, s jetstream.Stream, lost store.LostExecution,
) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	msg, err := r.readMessage(ctx, s, lost.StreamSequence)
	if errors.Is(err, leader.ErrNoMessage) {
		return nil, nil
	}
	if err != nil || msg.Header.Get(stream.HeaderExecutionID) != lost.ID {
		return nil, err
	}
	return msg, nil
}
