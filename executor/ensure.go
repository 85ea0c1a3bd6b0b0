package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// ensureJetStreamWithRetry creates the streams, buckets and consumers. It retries until ctx is
// done, because a cluster that has just started has no leader yet. Settings that conflict with
// existing ones are a permanent error.
func ensureJetStreamWithRetry(
	ctx context.Context,
	nc *nats.Conn,
	js jetstream.JetStream,
	c Config,
) error {
	var err error
	retry.Until(ctx, 250*time.Millisecond, func() bool {
		trying, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err = ensureJetStream(trying, nc, js, c)
		return err == nil || errors.Is(err, stream.ErrSettingsMismatch)
	})
	if err == nil || errors.Is(err, stream.ErrSettingsMismatch) {
		return err
	}
	return fmt.Errorf("NATS does not let the streams, buckets and consumers be created within %s "+
		"(%w); is JetStream on, and are there %d servers for as many replicas?",
		c.ConnectTimeout, err, c.Replicas)
}

func ensureJetStream(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, c Config) error {
	if err := ensureStreams(ctx, js, c); err != nil {
		return err
	}
	return ensureRegistry(ctx, nc, js, c, nil)
}

// ensureRegistry creates the registry's buckets and, if --registry-copy is set, the registry's
// copy. If missing is nil, ensureRegistry creates a missing copy immediately. If missing is not
// nil, it creates the copy only after several calls have found it missing for some time, because
// the server may still be deleting the previous copy. missing stores what the calls have found, so
// pass the same map in every call.
func ensureRegistry(
	ctx context.Context, nc *nats.Conn, js jetstream.JetStream, c Config,
	missing stream.MissingStreams,
) error {
	if err := edit.EnsureBuckets(ctx, js, c.Replicas); err != nil {
		return err
	}
	if c.RegistryCopy != "" {
		copies, err := jetstream.NewWithAPIPrefix(nc, c.RegistryCopy)
		if err != nil {
			return fmt.Errorf("--registry-copy: %w", err)
		}
		return ensureRegistryCopy(ctx, copies, c.Replicas, missing)
	}
	return nil
}

// ensureRegistryCopy creates the copy of the registry, which is in another NATS account. copies is
// the JetStream API of that account. If missing is not nil, ensureRegistryCopy creates the copy
// only after it has been missing for some time: see ensureRegistry.
func ensureRegistryCopy(
	ctx context.Context, copies jetstream.JetStream, replicas int, missing stream.MissingStreams,
) error {
	if missing != nil {
		_, err := copies.Stream(ctx, registry.Stream)
		exists := !errors.Is(err, jetstream.ErrStreamNotFound)
		creatable := missing.RecordCheck(registry.Stream, exists)
		if err == nil || !exists && !creatable {
			return nil
		}
	}
	return edit.EnsureMirror(ctx, copies, replicas)
}

// ensuredStreams lists the names of the streams that ensureStreams creates.
var ensuredStreams = []string{
	stream.ExecutionsName, stream.ProgressName, stream.ReportsName, stream.CancellationsStream,
}

// ensureStreams creates the streams in ensuredStreams, and the consumers of the configured runner
// groups.
func ensureStreams(ctx context.Context, js jetstream.JetStream, c Config) error {
	// Create the streams of fixed size first, and PROGRESS last: its size depends on the space that
	// they leave. REPORTS is created here, and stream.EnsureSharedStreams creates EXECUTIONS before
	// PROGRESS.
	if err := stream.EnsureReportsStream(ctx, js, c.Replicas); err != nil {
		return err
	}
	if err := stream.EnsureSharedStreams(ctx, js, c.streamSettings()); err != nil {
		return err
	}
	if err := stream.EnsureCancellationsBucket(ctx, js, c.streamSettings()); err != nil {
		return err
	}
	groups, err := c.runnerGroups()
	if err != nil {
		return err
	}
	for _, group := range groups {
		if _, err := stream.EnsureRunnerConsumer(ctx, js, group,
			group.ConsumerConfig(stream.RunnerAckWait)); err != nil {
			return err
		}
	}
	return nil
}

// planCheckInterval is how often the executor checks whether the registry still has a plan catalog.
const planCheckInterval = 3 * time.Second

// restorePlansPeriodically calls the function restore every planCheckInterval until ctx is done. It
// is needed because a registry without a plan catalog may be restored from a backup while this
// process is running.
func restorePlansPeriodically(
	ctx context.Context, log logrus.FieldLogger, restore func(context.Context) error,
) {
	tick := time.NewTicker(planCheckInterval)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		trying, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := restore(trying)
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			log.WithError(err).Warn("could not store the plan catalog in the registry; retrying")
		}
		failing = err != nil
	}
}
