package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/retry"
)

// Replication is the state of a stream's replicas.
type Replication struct {
	Stream  string // the name of the stream
	Want    int    // the configured number of replicas
	Current int    // number of replicas that are complete
	Lag     uint64 // number of operations by which the slowest replica lags
}

// Done reports whether all replicas are complete.
func (r Replication) Done() bool { return r.Current == r.Want }

// SetReplicas changes the number of replicas of existing streams, one stream after another, and
// waits until the replicas are complete. It calls progress twice a second while it waits. It is
// idempotent, and an interrupted call loses nothing.
func SetReplicas(
	ctx context.Context, js jetstream.JetStream, names []string, replicas int, progress func(
		Replication,
	),
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
				return fmt.Errorf("stream %s: %w", name, explainTooFewServers(err, replicas))
			}
		}
		if err := awaitReplicas(ctx, s, replicas, progress); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

// ErrTooFewServers means that the cluster has fewer NATS servers than the requested number of
// replicas.
var ErrTooFewServers = errors.New("too few NATS servers")

// explainTooFewServers replaces the server's errors about missing servers with an ErrTooFewServers
// that explains them to people. It returns other errors unchanged.
func explainTooFewServers(err error, replicas int) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case ok && uint16(api.ErrorCode) == CodeNoCluster:
		return fmt.Errorf("%w: %d replicas need a cluster of %d servers, but this server is not "+
			"in a cluster", ErrTooFewServers, replicas, replicas)
	case ok && uint16(api.ErrorCode) == CodeNoPeers:
		return fmt.Errorf("%w: %d replicas need a cluster of %d servers that are all up (%s)",
			ErrTooFewServers, replicas, replicas, api.Description)
	default:
		return err
	}
}

func awaitReplicas(
	ctx context.Context, s jetstream.Stream, replicas int, progress func(Replication),
) (err error) {
	var last Replication
	retry.Until(ctx, 500*time.Millisecond, func() bool {
		var info *jetstream.StreamInfo
		if info, err = s.Info(ctx); err != nil {
			return false // the leader is changing: the next one will respond
		}
		last = replication(info, replicas)
		progress(last)
		return last.Done()
	})
	if err == nil && !last.Done() {
		err = ctx.Err()
	}
	return err
}

func replication(info *jetstream.StreamInfo, want int) Replication {
	r := Replication{Stream: info.Config.Name, Want: want}
	if info.Cluster == nil { // a single server
		r.Current = 1
		return r
	}
	if info.Cluster.Leader != "" {
		r.Current = 1
	}
	for _, peer := range info.Cluster.Replicas {
		if peer.Current && !peer.Offline {
			r.Current++
		}
		r.Lag = max(r.Lag, peer.Lag)
	}
	return r
}
