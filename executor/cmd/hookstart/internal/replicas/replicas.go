// Package replicas changes how many NATS servers keep a copy of a stream.
package replicas

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// State says how many replicas of a stream are complete, and how far the slowest one lags.
type State struct {
	Stream           string // the name of the stream
	WantedReplicas   int    // number of replicas to wait for
	CompleteReplicas int    // number of replicas that are online and up to date
	LagOperations    uint64 // number of operations by which the slowest replica lags
}

// IsComplete reports whether all wanted replicas are online and up to date.
func (s State) IsComplete() bool { return s.CompleteReplicas == s.WantedReplicas }

// Set changes the number of replicas of existing streams, one stream after another, and waits until
// the replicas are complete. While it waits, it calls progress twice a second. Set is idempotent,
// so a call that was interrupted can simply be repeated.
func Set(
	ctx context.Context, js jetstream.JetStream, names []string, replicas int, progress func(State),
) error {
	for _, name := range names {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		config := s.CachedInfo().Config
		if config.Replicas != replicas {
			config.Replicas = replicas
			if s, err = js.UpdateStream(ctx, config); err != nil {
				return fmt.Errorf("stream %s: %w", name, stream.ExplainTooFewServers(err, replicas))
			}
		}
		if err := awaitComplete(ctx, s, replicas, progress); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

func awaitComplete(
	ctx context.Context, s jetstream.Stream, replicas int, progress func(State),
) (err error) {
	var last State
	retry.Until(ctx, 500*time.Millisecond, func() bool {
		var info *jetstream.StreamInfo
		if info, err = s.Info(ctx); err != nil {
			return false // the leader is changing: the next one will respond
		}
		last = replicaState(info, replicas)
		progress(last)
		return last.IsComplete()
	})
	if err == nil && !last.IsComplete() {
		err = ctx.Err()
	}
	return err
}

func replicaState(info *jetstream.StreamInfo, want int) State {
	state := State{Stream: info.Config.Name, WantedReplicas: want}
	if info.Cluster == nil { // a single server
		state.CompleteReplicas = 1
		return state
	}
	if info.Cluster.Leader != "" {
		state.CompleteReplicas = 1
	}
	for _, peer := range info.Cluster.Replicas {
		if peer.Current && !peer.Offline {
			state.CompleteReplicas++
		}
		state.LagOperations = max(state.LagOperations, peer.Lag)
	}
	return state
}
