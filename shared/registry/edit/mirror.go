package edit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// originalAPIPrefix and originalDeliverPrefix are the subject prefixes under which
// deploy/nats/accounts.conf exports the original bucket to the account of the mirror: the first for
// the bucket's API, the second for its messages.
const (
	originalAPIPrefix     = "HOOKSTART.API"
	originalDeliverPrefix = "feed.deliver"
)

// EnsureMirror creates a NATS mirror of the registry's bucket, in a separate account, for ingresses
// that may not read the original. js must use the API prefix under which the executors' account
// imports the JetStream API of the mirror's account. EnsureMirror leaves an existing mirror
// unchanged.
func EnsureMirror(ctx context.Context, js jetstream.JetStream, replicas int) error {
	_, err := js.Stream(ctx, registry.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        registry.Stream,
			Description: "hookstart: the copy of the registry that ingresses read",
			Mirror: &jetstream.StreamSource{
				Name: registry.Stream,
				External: &jetstream.ExternalStream{
					APIPrefix:     originalAPIPrefix,
					DeliverPrefix: originalDeliverPrefix,
				},
			},
			Retention:         jetstream.LimitsPolicy,
			Storage:           jetstream.FileStorage,
			MaxMsgsPerSubject: 1,
			Replicas:          replicas,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil // another executor has created it
		}
	}
	if err != nil {
		return fmt.Errorf("the registry's copy: %w", err)
	}
	return nil
}

// mirrorCheckInterval is the interval at which a MirrorWatchdog checks the mirror.
// mirrorStallTimeout is how long the mirror may receive nothing before it counts as stopped. The
// original sends a heartbeat every second, even when nothing changes.
const (
	mirrorCheckInterval = 500 * time.Millisecond
	mirrorStallTimeout  = 2 * time.Second
)

// MirrorWatchdog makes the mirror of the registry follow the original again when the mirror has
// stopped receiving changes.
//
// Ingresses that read the mirror refuse all requests while it lags behind a change. Without a
// MirrorWatchdog, the mirror may lag for 40 s after an ordinary failure. When a server fails or a
// partition ends, the mirror and the original elect their leaders at the same time. If the mirror's
// leader requests a consumer while the original has no leader, nobody responds. The mirror's leader
// then waits 30 s for the response, and 10 s more before it tries again (setupMirrorConsumer of
// nats-server 2.15.2). A new leader of the mirror requests a consumer immediately, so
// MirrorWatchdog makes the current leader step down.
type MirrorWatchdog struct {
	conn      *nats.Conn
	apiPrefix string // JetStream API prefix of the mirror's account
	mirrorJS  jetstream.JetStream
	// checkOriginal waits until this process has applied everything in the original. MirrorWatchdog
	// calls it only to learn whether the original has a leader that reaches a majority. If there is
	// no such leader, checkOriginal fails.
	checkOriginal func(context.Context) error
	log           logrus.FieldLogger

	lastLeader string // the mirror's leader at the last check
	// lastProgress is when the mirror last got a new leader or received something from the
	// original, or when MirrorWatchdog last asked the leader to step down.
	lastProgress time.Time
}

// NewMirrorWatchdog returns a watchdog of the mirror. prefix is the API prefix under which the
// JetStream API of the mirror's account is imported. catchUp must be the CatchUp method of a
// Follower of the original, or another function that fails unless the original has a leader that
// reaches a majority.
func NewMirrorWatchdog(
	nc *nats.Conn, prefix string, catchUp func(context.Context) error, log logrus.FieldLogger,
) (*MirrorWatchdog, error) {
	mirrors, err := jetstream.NewWithAPIPrefix(nc, prefix)
	if err != nil {
		return nil, err
	}
	return &MirrorWatchdog{
		conn: nc, apiPrefix: prefix, mirrorJS: mirrors, checkOriginal: catchUp, log: log,
		lastProgress: time.Now(),
	}, nil
}

// Run checks the mirror until ctx is done.
func (m *MirrorWatchdog) Run(ctx context.Context) {
	tick := time.NewTicker(mirrorCheckInterval)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		trying, cancel := context.WithTimeout(ctx, mirrorStallTimeout)
		err := m.stepDownIfStalled(trying)
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			m.log.WithError(err).Warn("the registry's copy has stopped, and its leader does not " +
				"step down: NATS starts the copy again within 40 s")
		}
		failing = err != nil
	}
}

// stepDownIfStalled makes the mirror's leader step down if the mirror has received nothing for
// mirrorStallTimeout although the original has a leader. It returns an error only if the mirror's
// leader does not step down.
func (m *MirrorWatchdog) stepDownIfStalled(ctx context.Context) error {
	s, err := m.mirrorJS.Stream(ctx, registry.Stream)
	if err != nil {
		return nil //nolint:nilerr // the copy has no leader, so none can step down
	}
	info := s.CachedInfo()
	if info.Cluster == nil || len(info.Cluster.Replicas) == 0 {
		return nil // no other server could take over
	}
	// If the mirror's leader has not received anything yet, Mirror is nil, or its Active is -1.
	receives := info.Mirror != nil && info.Mirror.Active >= 0 &&
		info.Mirror.Active < mirrorStallTimeout
	if receives || info.Cluster.Leader != m.lastLeader {
		m.lastLeader, m.lastProgress = info.Cluster.Leader, time.Now()
		return nil
	}
	if time.Since(m.lastProgress) < mirrorStallTimeout {
		return nil
	}
	if err := m.checkOriginal(ctx); err != nil {
		return nil //nolint:nilerr // the original has no leader that could send
	}
	m.lastProgress = time.Now()
	if err := leader.StepDown(ctx, m.conn, m.apiPrefix+".", registry.Stream, ""); err != nil {
		return err
	}
	m.log.WithField("server", m.lastLeader).Warn("the registry's copy received nothing from the " +
		"registry; another server leads it now")
	return nil
}
