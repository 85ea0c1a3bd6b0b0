package recorder

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// lostReason is the error of an execution whose start is lost.
	lostReason = "its start was lost: the stream no longer has the message, after a power cut or a restored copy; nothing can run it"
	// lostAfter is the delay of the search after the process started or reconnected: the recorder catches up first, and a
	// runner that has the message may finish.
	lostAfter = 10 * time.Second
	// lostAgain is the delay of the second search for a start that was not found: a replica may lag behind.
	lostAgain = 5 * time.Second
	// lostAtOnce is the number of concurrent requests for messages.
	lostAtOnce = 8
)

// EndLost marks executions as failed whose starts the stream has lost: no runner would ever get them. It looks for them now
// and after each reconnect to NATS, until the context ends.
func (r *Recorder) EndLost(ctx context.Context) {
	connected := r.js.Conn().StatusChanged(nats.CONNECTED)
	defer r.js.Conn().RemoveStatusListener(connected)
	for ctx.Err() == nil {
		retry.Wait(ctx, r.lostAfter)
		for ctx.Err() == nil {
			err := r.endLost(ctx)
			if err == nil {
				break
			}
			r.log.WithError(err).Debug("lost starts could not be looked for; it is tried again")
			retry.Wait(ctx, time.Second)
		}
		select {
		case <-ctx.Done():
		case <-connected:
		}
	}
}

// endLost looks for the starts of what was accepted a while ago.
func (r *Recorder) endLost(ctx context.Context) error {
	before := time.Now().Add(-r.lostAgain)
	s, err := r.js.Stream(ctx, stream.Name)
	if err != nil {
		return err
	}
	// First of all: runners report before they acknowledge, so what they have acknowledged by now is recorded as
	// soon as the recorder has caught up.
	runners, err := runnersOf(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range []string{stream.Name, stream.ProgressName} {
		if err := r.caughtUp(ctx, name); err != nil {
			return err
		}
	}
	lost, err := r.findLost(ctx, s, before, runners)
	if err != nil {
		return err
	}
	if err := r.rewindRunners(ctx, runners); err != nil {
		return err
	}
	if len(lost) == 0 {
		return nil
	}
	retry.Wait(ctx, r.lostAgain)
	if lost, err = r.stillLost(ctx, s, lost); err != nil || len(lost) == 0 {
		return err
	}
	ended, err := r.store.EndLost(ctx, lost, time.Now(), lostReason)
	if err != nil {
		return err
	}
	r.log.WithField("executions", len(ended)).Error("executions were ended as failed: the stream has lost their starts")
	if err := r.changes.Tell(ended); err != nil {
		r.log.WithError(err).Debug("watchers were not told of changes")
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

// findLost looks for the start of every unfinished execution, except those older than the stream's messages: their starts
// have expired, and were not lost. It passes the starts that it finds to runners' notOver.
func (r *Recorder) findLost(ctx context.Context, s jetstream.Stream, before time.Time, runners []*runners) (lost []store.Lost, err error) {
	const page = 500
	filter := store.Filter{Until: before, Since: before.Add(-r.maxAge(s.CachedInfo()))}
	for _, filter.Status = range []execution.Status{execution.Queued, execution.Running} {
		var after store.Position
		for {
			records, err := r.store.List(ctx, filter, after, page)
			if err != nil {
				return nil, err
			}
			gone, err := r.stillLost(ctx, s, messagesOf(records))
			if err != nil {
				return nil, err
			}
			isGone := map[string]bool{}
			for _, one := range gone {
				isGone[one.ID] = true
			}
			for _, record := range records {
				after = store.Position{AcceptedAt: record.AcceptedAt, ID: record.ID}
				for _, group := range runners {
					if !isGone[record.ID] {
						group.notOver(record)
					}
				}
			}
			if lost = append(lost, gone...); len(records) < page {
				break
			}
		}
	}
	return lost, nil
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
