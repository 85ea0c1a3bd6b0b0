package agree

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/retry"
)

// presenceSubject is where every process that follows the registry says how far it is.
const presenceSubject = "hookstart.presence"

// The roles of those who announce themselves.
const (
	RoleIngress  = "ingress"
	RoleExecutor = "executor"
)

// Announcer tells the others that this process lives, and which revision of the
// registry it has applied.
type Announcer struct {
	nc       *nats.Conn
	follower *Follower
	log      logrus.FieldLogger
	self     presence

	stop context.CancelFunc
	done chan struct{}
}

// Announce makes this process one that changes wait for, and returns when what the
// follower has applied is surely what is in force: from here on the process may
// answer from it. settings is nil but for an ingress.
//
// The order matters. A change that was stored before the announcement is in the
// registry that is read after it; whoever makes a change later has heard of us.
func Announce(ctx context.Context, nc *nats.Conn, f *Follower, role string, settings *IngressSettings, log logrus.FieldLogger) (*Announcer, error) {
	if err := f.waitLoaded(ctx); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &Announcer{
		nc: nc, follower: f, log: log, stop: stop, done: make(chan struct{}),
		self: presence{instance: uuid.NewString(), role: role, serving: true, settings: settings},
	}
	// A server that restarts loses what was said before: it is said again until it surely was heard.
	heard := func(ctx context.Context) error {
		if err := a.say(); err != nil {
			return err
		}
		return nc.FlushWithContext(ctx)
	}
	err := retry.Ask(ctx, heard)
	go a.run(running) // from now on: to catch up may take longer than lifetime
	if err == nil {
		err = retry.Ask(ctx, f.CatchUp)
	}
	if err != nil {
		a.Stop()
		return nil, fmt.Errorf("announce this %s: %w", role, err)
	}
	return a, nil
}

// Stop says goodbye: nobody need wait for this process any more.
func (a *Announcer) Stop() {
	a.stop()
	<-a.done
	a.self.leaving = true
	a.sayAgain()
	_ = a.nc.FlushTimeout(time.Second) // a goodbye that is not heard costs the others a wait, nothing more
}

func (a *Announcer) run(ctx context.Context) {
	defer close(a.done)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		moved := a.follower.untilMoved()
		a.sayAgain()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-moved:
		}
	}
}

func (a *Announcer) say() error {
	a.self.revision = a.follower.Revision()
	data, err := a.self.encode()
	if err != nil {
		return err
	}
	return a.nc.Publish(presenceSubject, data)
}

// sayAgain is say, when the next heartbeat makes up for one that failed.
func (a *Announcer) sayAgain() {
	if err := a.say(); err != nil {
		a.log.WithError(err).Debug("presence was not announced")
	}
}
