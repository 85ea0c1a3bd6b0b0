package recorder

import (
	"context"
	"errors"
	"fmt"
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
	// lostAfter is the delay of the search after the process started or reconnected: the recorder catches up first, and a
	// runner that has the message may finish.
	lostAfter = 10 * time.Second
	// lostAgain is the delay of the second search for a start that was not found: a replica may lag behind.
	lostAgain = 5 * time.Second
	// lostAtOnce is the number of concurrent requests for messages.
	lostAtOnce = 8
	// unendedAfter is the time after which a running execution counts as expired once its start has: its handler may still work.
	unendedAfter = 24 * time.Hour
)

// lostEvery is how often executions are searched for that no runner will end: every hour, or as often as a shorter age of the
// stream, at least a minute.
func lostEvery(maxAge time.Duration) time.Duration { return max(time.Minute, min(maxAge, time.Hour)) }

// end is why an execution is ended that no runner will end.
type end struct {
	label  string // of the metric
	reason string // the execution's error
}

var (
	endLost    = end{"lost", "its start was lost: the stream no longer has the message, after a power cut or a restored copy; nothing can run it"}
	endExpired = end{"expired", "no runner took it, or ended it, within the age of the stream, which no longer has its start; nothing can run it"}
	endUnheard = end{"unreported", "a runner acknowledged it without a report that can be read, so how it ended is not known"}

	ends = []end{endLost, endExpired, endUnheard}
)

// EndLost marks executions as failed that no runner will end: the stream has lost their starts, no runner took them before
// they expired, or a runner has acknowledged them without a report. It looks for them now, after each reconnect to NATS, and
// every lostEvery, until the context ends.
func (r *Recorder) EndLost(ctx context.Context) {
	connected := r.js.Conn().StatusChanged(nats.CONNECTED)
	defer r.js.Conn().RemoveStatusListener(connected)
	for ctx.Err() == nil {
		retry.Wait(ctx, r.lostAfter)
		every := time.Hour
		for ctx.Err() == nil {
			maxAge, err := r.endLost(ctx)
			if err == nil {
				every = r.lostEvery(maxAge)
				break
			}
			r.log.WithError(err).Debug("executions that no runner will end could not be looked for; it is tried again")
			retry.Wait(ctx, time.Second)
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

// endLost ends what was accepted a while ago and no runner will end. It returns the stream's age.
func (r *Recorder) endLost(ctx context.Context) (maxAge time.Duration, err error) {
	now := time.Now()
	s, err := r.js.Stream(ctx, stream.Name)
	if err != nil {
		return 0, err
	}
	maxAge = s.CachedInfo().Config.MaxAge
	// First of all: runners report before they acknowledge, so what they have acknowledged by now is recorded as
	// soon as the recorder has caught up.
	groups, err := runnersOf(ctx, s)
	if err == nil {
		err = r.complete(ctx)
	}
	if err != nil {
		return 0, err
	}
	found, err := r.findUnended(ctx, s, now, groups)
	if err == nil {
		found[endUnheard], err = r.givePassedOver(ctx, s, groups, found[endUnheard])
	}
	if err != nil || len(found[endLost])+len(found[endExpired])+len(found[endUnheard]) == 0 {
		return maxAge, err
	}
	retry.Wait(ctx, r.lostAgain)
	for why, some := range found {
		if why != endUnheard {
			if some, err = r.stillLost(ctx, s, some); err != nil {
				return 0, err
			}
		}
		if err := r.end(ctx, why, some); err != nil {
			return 0, err
		}
	}
	return maxAge, nil
}

// complete fails until the database has what the streams hold.
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

// end ends executions as failed, unless the database has been exchanged meanwhile for one that is behind.
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
		if err := r.changes.Tell(ended); err != nil {
			r.log.WithError(err).Debug("watchers were not told of changes")
		}
	}
	return nil
}

var errBehind = errors.New("the recorder has not caught up")

// caughtUp fails until what a stream holds now is recorded: a delivery that was sent again is then recorded
// under its new sequence, and an end that was reported is known.
func (r *Recorder) caughtUp(ctx context.Context, name string) error {
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	consumer, err := s.Consumer(ctx, Durable)
	if err != nil {
		return err
	}
	if info := consumer.CachedInfo(); info.AckFloor.Stream < s.CachedInfo().State.LastSeq && info.NumPending+uint64(info.NumAckPending) > 0 { //nolint:gosec // a count
		return errBehind
	}
	return nil
}

// findUnended returns unfinished executions that no runner will end, by the reason.
func (r *Recorder) findUnended(ctx context.Context, s jetstream.Stream, now time.Time, groups []runners) (map[end][]store.Lost, error) {
	const page = 500
	found := map[end][]store.Lost{}
	filter := store.Filter{Until: now.Add(-r.lostAgain)}
	for _, filter.Status = range []execution.Status{execution.Queued, execution.Running} {
		var after store.Position
		for {
			records, err := r.store.List(ctx, filter, after, page)
			if err != nil {
				return nil, err
			}
			gone, err := r.goneOf(ctx, s, records)
			if err != nil {
				return nil, err
			}
			for _, record := range records {
				after = store.Position{AcceptedAt: record.AcceptedAt, ID: record.ID}
				if why, ok := whyUnended(record, gone[record.ID], now, s.CachedInfo().Config.MaxAge, groups); ok {
					found[why] = append(found[why], store.Lost{ID: record.ID, StreamSequence: record.StreamSequence})
				}
			}
			if len(records) < page {
				break
			}
		}
	}
	return found, nil
}

// goneOf returns the IDs of the records whose starts are not in the stream.
func (r *Recorder) goneOf(ctx context.Context, s jetstream.Stream, records []store.Record) (map[string]bool, error) {
	gone := map[string]bool{}
	var asked []store.Lost
	for _, one := range messagesOf(records) {
		if one.StreamSequence < s.CachedInfo().State.FirstSeq {
			gone[one.ID] = true
		} else {
			asked = append(asked, one)
		}
	}
	lost, err := r.stillLost(ctx, s, asked)
	for _, one := range lost {
		gone[one.ID] = true
	}
	return gone, err
}

// whyUnended returns why no runner will end an unfinished execution; ok is false if one may.
func whyUnended(record store.Record, gone bool, now time.Time, maxAge time.Duration, groups []runners) (why end, ok bool) {
	// Around its age, a start that is gone has expired, and a runner may have begun it at the last moment.
	margin := min(time.Minute, maxAge/10)
	age := now.Sub(record.AcceptedAt)
	switch {
	case !gone:
		return endUnheard, areDoneWith(groups, record.Queue, record.StreamSequence)
	case age < maxAge-margin:
		return endLost, true
	case record.Status == execution.Running:
		return endExpired, now.Sub(record.StartedAt) > max(maxAge, unendedAfter)
	default:
		return endExpired, age > maxAge+margin
	}
}

// stillLost returns the executions whose start is not in the stream at their sequence.
func (r *Recorder) stillLost(ctx context.Context, s jetstream.Stream, candidates []store.Lost) ([]store.Lost, error) {
	var (
		asking sync.WaitGroup
		next   = make(chan store.Lost)
		mu     sync.Mutex
		lost   []store.Lost
		failed error
	)
	for range min(lostAtOnce, len(candidates)) {
		asking.Go(func() {
			for one := range next {
				gone, err := isLost(ctx, s, one)
				mu.Lock()
				if failed = errors.Join(failed, err); gone {
					lost = append(lost, one)
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
	return lost, failed
}

func isLost(ctx context.Context, s jetstream.Stream, one store.Lost) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	msg, err := s.GetMsg(ctx, one.StreamSequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("message %d: %w", one.StreamSequence, err)
	}
	return msg.Header.Get(stream.HeaderExecutionID) != one.ID, nil
}
