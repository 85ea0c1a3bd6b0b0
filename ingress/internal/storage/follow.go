package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// pollInterval is the interval at which the stream's usage is polled.
	pollInterval = time.Second
	// minPollInterval is the minimum interval between two polls. It applies while the stream is
	// nine tenths full and requests arrive, because each message then triggers a poll.
	minPollInterval = 100 * time.Millisecond
)

// Follower keeps a StreamSpace up to date with the usage of its stream, as reported by NATS and by
// executors.
type Follower struct {
	space   *StreamSpace
	stream  jetstream.Stream
	log     logrus.FieldLogger
	sumsSub *nats.Subscription
	cancel  context.CancelFunc
	done    chan struct{}
}

// Follow keeps space up to date with an existing stream until Stop is called. It returns once the
// current usage of the stream is known.
func Follow(
	ctx context.Context, js jetstream.JetStream, space *StreamSpace, log logrus.FieldLogger,
) (*Follower, error) {
	f := &Follower{space: space, log: log, done: make(chan struct{})}
	var err error
	if f.stream, err = stream.AwaitExecutionsStream(ctx, js); err != nil {
		return nil, fmt.Errorf("how much the stream holds: %w", err)
	}
	f.updateSpace(f.stream.CachedInfo())
	if f.sumsSub, err = js.Conn().Subscribe(stream.AccountStorageSubject,
		f.receiveSums); err != nil {
		return nil, fmt.Errorf("listen to what accounts hold: %w", err)
	}
	var running context.Context
	running, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go f.run(running)
	return f, nil
}

// Stop stops the updates. If an update is in progress, Stop waits until it has finished.
func (f *Follower) Stop() {
	_ = f.sumsSub.Unsubscribe()
	f.cancel()
	<-f.done
}

func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	soon := time.NewTimer(minPollInterval)
	defer soon.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-soon.C: // not earlier than minPollInterval after the last poll
		}
		select {
		case <-ctx.Done():
			return
		case <-f.space.RefreshUsage:
		case <-timer.C:
		}
		f.pollUsage(ctx)
		timer.Reset(pollInterval)
		soon.Reset(minPollInterval)
	}
}

func (f *Follower) pollUsage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	info, err := f.stream.Info(ctx)
	if err != nil {
		f.log.WithError(err).Debug("how much the stream holds is not known now")
		return
	}
	f.updateSpace(info)
}

func (f *Follower) updateSpace(info *jetstream.StreamInfo) {
	used := int64(min(info.State.Bytes, 1<<62))
	f.space.SetUsage(info.Config.MaxBytes, used, info.Config.MaxAge, time.Now())
}

func (f *Follower) receiveSums(msg *nats.Msg) {
	if name, sums, err := stream.DecodeAccountStorage(msg.Data); err == nil &&
		name == stream.ExecutionsName {
		f.space.SetAccountSums(sums)
	}
}
