package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// ensure creates what is kept in NATS, trying until the context ends: a cluster that has
// just started has no leader yet. Settings that do not match are final.
func ensure(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, c Config) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		trying, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := ensureAll(trying, nc, js, c)
		cancel()
		if err == nil || errors.Is(err, stream.ErrMismatch) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("NATS does not let the streams, buckets and consumers be created within %s (%w); is JetStream on, and are there %d servers for as many replicas?",
				c.ConnectTimeout, err, c.Replicas)
		case <-tick.C:
		}
	}
}

func ensureAll(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, c Config) error {
	if err := ensureStreams(ctx, js, c); err != nil {
		return err
	}
	if err := registry.EnsureBuckets(ctx, js, c.Replicas); err != nil {
		return err
	}
	if c.RegistryCopy != "" {
		copies, err := jetstream.NewWithAPIPrefix(nc, c.RegistryCopy)
		if err != nil {
			return fmt.Errorf("--registry-copy: %w", err)
		}
		if err := registry.EnsureCopy(ctx, copies, c.Replicas); err != nil {
			return err
		}
	}
	return nil
}

// streams are the names of those that ensureStreams creates.
var streams = []string{stream.Name, stream.ReportsName}

// ensureStreams creates the streams, and the consumers that are the executor's to create.
func ensureStreams(ctx context.Context, js jetstream.JetStream, c Config) error {
	if err := stream.Ensure(ctx, js, c.streamSettings()); err != nil {
		return err
	}
	if err := stream.EnsureReports(ctx, js, c.Replicas); err != nil {
		return err
	}
	groups, err := c.runnerGroups()
	if err != nil {
		return err
	}
	for _, group := range groups {
		if _, err := stream.EnsureConsumer(ctx, js, group.ConsumerConfig(stream.RunnerAckWait)); err != nil {
			return err
		}
	}
	return nil
}
