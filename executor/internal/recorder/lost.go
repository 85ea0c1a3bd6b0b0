package recorder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// lostAfter is the delay of the search after the process started or reconnected. The recorder
	// catches up first, and a runner that has the message may finish.
	lostAfter = 10 * time.Second
	// lostAgain is the delay of the second search for a start that was not found, because a replica
	// may lag behind.
	lostAgain = 5 * time.Second
	// lostAtOnce is the maximum number of concurrent requests for messages.
	lostAtOnce = 8
	// unendedAfter is the minimum time since the start of a running execution after which the
	// execution counts as expired, once its start message has expired. Until then its handler may
	// still work.
	unendedAfter = 24 * time.Hour
)

// lostEvery returns the interval between searches for executions that no runner will end: one hour,
// or maxAge if that is shorter, but at least one minute.
func lostEvery(maxAge time.Duration) time.Duration { return max(time.Minute, min(maxAge, time.Hour)) }

// end is the reason why an execution is ended that no runner will end.
type end struct {
	label  string // label of the metric
	reason string // error of the execution
}

var (
	endLost    = end{"lost", "its start was lost: the stream no longer has the message, after a power cut or a restored copy; nothing can run it"}
	endExpired = end{"expired", "no runner took it, or ended it, within the age of the stream, which no longer has its start; nothing can run it"}
	endUnheard = end{"unreported", "a runner acknowledged it without a report that can be read, so how it ended is not known"}

	ends = []end{endLost, endExpired, endUnheard}
)

// EndLost marks executions as failed that no runner will end: the stream has lost their starts, no
// runner took them before they expired, or a runner has acknowledged them without a report. It
// searches for them now, after each reconnect to NATS, and at the interval lostEvery, until the
// context ends.
func (r *Recorder) EndLost(ctx context.Context) {
	connected := r.js.Conn().StatusChanged(nats.CONNECTED)
	defer r.js.Conn().RemoveStatusListener(connected)
	for ctx.Err() == nil {
		retry.Sleep(ctx, r.lostAfter)
		every := time.Hour
		for ctx.Err() == nil {
			maxAge, err := r.endLost(ctx)
			if err == nil {
				every = r.lostEvery(maxAge)
				break
			}
			r.log.WithError(err).Debug("executions that no runner will end could not be looked for; it is tried again")
			retry.Sleep(ctx, time.Second)
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
		case <-connected:
		case <-r.search:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// endLost ends executions that were accepted a while ago and that no runner will end. It returns
// the stream's maximum age.
func (r *Recorder) endLost(ctx context.Context) (maxAge time.Duration, err error) {
	now := time.Now()
	s, err := r.js.Stream(ctx, stream.Name)
	if err != nil {
		return 0, err
	}
	maxAge = s.CachedInfo().Config.MaxAge
	// The groups are read first: runners report before they acknowledge, so the reports of everything
	// that they have acknowledged by now are recorded as soon as the recorder has caught up.
	groups, err := runnersOf(ctx, s)
	if err == nil {
		err = r.complete(ctx)
	}
	if err != nil {
		return 0, err
	}
	found, subjects, err := r.findUnended(ctx, s, now, groups)
	if err == nil {
		found[endUnheard], err = r.givePassedOver(ctx, s, groups, found[endUnheard], subjects)
	}
	if err != nil || len(found[endLost])+len(found[endExpired])+len(found[endUnheard]) == 0 {
		return maxAge, err
	}
	retry.Sleep(ctx, r.lostAgain)
	for why, some := range found {
		if why != endUnheard {
			if some, _, err = r.stillLost(ctx, s, some); err != nil {
				return 0, err
			}
		}
		if err := r.end(ctx, why, some); err != nil {
			return 0, err
		}
	}
	return maxAge, nil
}

// complete returns an error until the database has everything that the streams hold.
func (r *Recorder) complete(ctx context.Context) error {
	for _, name := range []string{stream.Name, stream.ProgressName} {
		if err := r.caughtUp(ctx, name); err != nil {
			return err
		}
	}
	behind, err := r.compare(ctx)
	if err == nil && (behind || r.recovery.underWay()) {
		err = errBehind
	}
	return err
}

// end marks executions as failed, unless the database has been replaced meanwhile by a database
// that is behind.
func (r *Recorder) end(ctx context.Context, why end, some []store.Lost) error {
	const page = 500
	for len(some) > 0 {
		if err := r.complete(ctx); err != nil {
			return err
		}
		ended, err := r.store.EndLost(ctx, some[:min(page, len(some))], time.Now(), why.reason)
		if err != nil {
			return err
		}
		some = some[min(page, len(some)):]
		if len(ended) == 0 {
			continue
		}
		r.metrics.ended.WithLabelValues(why.label).Add(float64(len(ended)))
		r.log.WithFields(logrus.Fields{"executions": len(ended), "first": ended[0]}).Error("executions were ended as failed: " + why.reason)
		if err := r.changes.Publish(ended); err != nil {
			r.log.WithError(err).Debug("watchers were not told of changes")
		}
	}
	return nil
}

var errBehind = errors.New("the recorder has not caught up")

const (
	// catchUpFor is the maximum time that a search waits for the recorder.
	catchUpFor = 10 * time.Second
	// catchUpEvery is the interval at which it asks how far the recorder is.
	catchUpEvery = 100 * time.Millisecond
)

// caughtUp waits until everything that the stream holds at the call is recorded, at most for
// catchUpFor. A delivery that was sent again is then recorded with its new sequence, and an end that
// was reported is known. It does not wait for messages that arrive after the call, so that it returns
// under steady load, too.
func (r *Recorder) caughtUp(ctx context.Context, name string) error {
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	last := s.CachedInfo().State.LastSeq
	for deadline := time.Now().Add(catchUpFor); ; {
		consumer, err := s.Consumer(ctx, Durable)
		if err != nil {
			return err
		}
		info := consumer.CachedInfo()
		if info.AckFloor.Stream >= last || info.NumPending+uint64(info.NumAckPending) == 0 { //nolint:gosec // a count
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return errBehind
		}
		retry.Sleep(ctx, r.catchUpEvery)
	}
}

// findUnended returns the unfinished executions that no runner will end, by reason, and the subjects
// of the starts of those that runners have acknowledged, by ID.
func (r *Recorder) findUnended(ctx context.Context, s jetstream.Stream, now time.Time, groups []runners) (found map[end][]store.Lost, unheard map[string]string, err error) {
	const page = 500
	found, unheard = map[end][]store.Lost{}, map[string]string{}
	filter := store.Filter{Until: now.Add(-r.lostAgain)}
	for _, filter.Status = range []execution.Status{execution.Queued, execution.Running} {
		var after store.Position
		for {
			records, err := r.store.List(ctx, filter, after, page)
			if err != nil {
				return nil, nil, err
			}
			subjects, err := r.subjectsOf(ctx, s, records)
			if err != nil {
				return nil, nil, err
			}
			// The ages are those after the stream was asked. With an earlier time, a start that expired
			// meanwhile would seem to be lost.
			asked := time.Now()
			for _, record := range records {
				after = store.Position{AcceptedAt: record.AcceptedAt, ID: record.ID}
				subject := subjects[record.ID]
				if why, ok := whyUnended(record, subject, asked, s.CachedInfo().Config.MaxAge, groups); ok {
					if why == endUnheard {
						unheard[record.ID] = subject
					}
					found[why] = append(found[why], store.Lost{ID: record.ID, StreamSequence: record.StreamSequence})
				}
			}
			if len(records) < page {
				break
			}
		}
	}
	return found, unheard, nil
}

// subjectsOf returns the subjects of the records' starts, by ID, without the starts that are no longer
// in the stream.
func (r *Recorder) subjectsOf(ctx context.Context, s jetstream.Stream, records []store.Record) (map[string]string, error) {
	var asked []store.Lost
	for _, one := range messagesOf(records) {
		if one.StreamSequence >= s.CachedInfo().State.FirstSeq {
			asked = append(asked, one)
		}
	}
	_, subjects, err := r.stillLost(ctx, s, asked)
	return subjects, err
}

// whyUnended returns the reason why no runner will end an unfinished execution. ok is false if a
// runner may end it. subject is the subject of its start, or "" if the stream no longer has it.
func whyUnended(record store.Record, subject string, now time.Time, maxAge time.Duration, groups []runners) (why end, ok bool) {
	// The margin is for a start that is missing when it is about as old as the stream's maximum age:
	// it has expired, and a runner may have begun it at the last moment.
	margin := min(time.Minute, maxAge/10)
	age := now.Sub(record.AcceptedAt)
	switch {
	case subject != "":
		return endUnheard, areDoneWith(groups, subject, record.StreamSequence)
	case age < maxAge-margin:
		return endLost, true
	case record.Status == execution.Running:
		return endExpired, now.Sub(record.StartedAt) > max(maxAge, unendedAfter)
	default:
		return endExpired, age > maxAge+margin
	}
}

// stillLost returns the candidates whose start is not in the stream at their sequence, and the
// subjects of the other starts by ID.
func (r *Recorder) stillLost(ctx context.Context, s jetstream.Stream, candidates []store.Lost) (lost []store.Lost, subjects map[string]string, err error) {
	var (
		asking sync.WaitGroup
		next   = make(chan store.Lost)
		mu     sync.Mutex
		failed error
	)
	subjects = map[string]string{}
	for range min(lostAtOnce, len(candidates)) {
		asking.Go(func() {
			for one := range next {
				subject, err := r.subjectOf(ctx, s, one)
				mu.Lock()
				failed = errors.Join(failed, err)
				switch {
				case err != nil:
				case subject == "":
					lost = append(lost, one)
				default:
					subjects[one.ID] = subject
				}
				mu.Unlock()
			}
		})
	}
	for _, one := range candidates {
		next <- one
	}
	close(next)
	asking.Wait()
	return lost, subjects, failed
}

func (r *Recorder) isLost(ctx context.Context, s jetstream.Stream, one store.Lost) (bool, error) {
	subject, err := r.subjectOf(ctx, s, one)
	return err == nil && subject == "", err
}

// subjectOf returns the subject of the message at the sequence of one, or "" if it is not the start of
// that execution, or there is none.
func (r *Recorder) subjectOf(ctx context.Context, s jetstream.Stream, one store.Lost) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	msg, err := r.getMessage(ctx, s, one.StreamSequence)
	if errors.Is(err, errNotStored) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if msg.Header.Get(stream.HeaderExecutionID) != one.ID {
		return "", nil
	}
	return msg.Subject, nil
}
