package consistency

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/retry"
)

// heartbeatSubject is the subject of the heartbeats, with which every process that follows the
// registry announces the revision that is in force at that process.
const heartbeatSubject = "hookstart.presence"

// The roles of the processes that announce themselves.
const (
	RoleIngress  = "ingress"
	RoleExecutor = "executor"
)

// Heartbeat announces to the other processes that this process is alive and which revision of the
// registry is in force here.
type Heartbeat struct {
	nc       *nats.Conn
	follower *Follower
	log      logrus.FieldLogger
	message  heartbeatMessage

	stop context.CancelFunc
	done chan struct{}
}

// StartHeartbeat starts announcing this process, so that Membership.AwaitInForce waits for it after
// a change. It returns once the follower has caught up; the process may then serve requests from
// the follower's copy. settings must be nil unless the process is an ingress. info may be zero,
// which announces no version, keys or capabilities.
//
// It announces the process before it catches up, so that no change is missed: a change that was
// stored before the announcement is applied when the follower catches up, and for a later change,
// Membership.AwaitInForce includes this process.
func StartHeartbeat(
	ctx context.Context, nc *nats.Conn, f *Follower, role string, settings *IngressSettings,
	info ProcessInfo, log logrus.FieldLogger,
) (*Heartbeat, error) {
	if err := f.awaitLoaded(ctx); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &Heartbeat{
		nc: nc, follower: f, log: log, stop: stop, done: make(chan struct{}),
		message: heartbeatMessage{
			instanceID: uuid.NewString(),
			role:       role,
			serving:    true,
			settings:   settings,
			info:       info,
		},
	}
	// A server that restarts may lose the announcement. So repeat it until a flush shows that the
	// server has received it.
	heard := func(ctx context.Context) error {
		if err := a.announce(); err != nil {
			return err
		}
		return nc.FlushWithContext(ctx)
	}
	err := retry.Do(ctx, heard)
	go a.run(running) // start now, because catching up may take longer than livenessTimeout
	if err == nil {
		err = retry.Do(ctx, f.CatchUpWithoutIdentity)
	}
	if err != nil {
		a.Stop()
		return nil, fmt.Errorf("announce this %s: %w", role, err)
	}
	return a, nil
}

// Stop announces that this process is leaving, after which changes no longer wait for it. It waits
// until the goroutine that sends the heartbeats has exited, and then up to 1 s until the server has
// received the announcement.
func (a *Heartbeat) Stop() {
	a.stop()
	<-a.done
	a.message.leaving = true
	a.announceOrLog()
	_ = a.nc.FlushTimeout(time.Second) // if the message is lost, changes wait for livenessTimeout
}

func (a *Heartbeat) run(ctx context.Context) {
	defer close(a.done)
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		moved := a.follower.nextChange()
		_, settled := a.follower.revisionInForce()
		a.announceOrLog()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-moved:
		case <-settled:
		}
	}
}

func (a *Heartbeat) announce() error {
	a.message.revision, _ = a.follower.revisionInForce()
	data, err := a.message.encode()
	if err != nil {
		return err
	}
	return a.nc.Publish(heartbeatSubject, data)
}

// announceOrLog calls announce and logs its error. There is no need to retry, because the next
// heartbeat contains the same information.
func (a *Heartbeat) announceOrLog() {
	if err := a.announce(); err != nil {
		a.log.WithError(err).Debug("presence was not announced")
	}
}
