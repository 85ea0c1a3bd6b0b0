package consistency

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// Membership tracks the processes that follow the registry and, for each of them, the last revision
// that is in force there. It learns both from the heartbeats of the processes.
type Membership struct {
	nc     *nats.Conn
	echoID string // ID in the echo messages that AwaitInForce publishes and receives back
	sub    *nats.Subscription

	mu             sync.Mutex
	members        map[string]member // by instance ID
	receivedEcho   uint64            // the highest echo number that was received back
	sentEcho       uint64            // the last echo number that was sent
	changed        chan struct{}
	listeningSince time.Time // when the subscription began, or nc last reconnected
	reconnects     uint64    // number of reconnects of nc at listeningSince
	clustered      bool      // whether nc has ever been connected to a cluster
}

type member struct {
	heartbeatMessage
	// lastHeard is when the last heartbeat was received.
	lastHeard time.Time
}

// isAlive reports whether a heartbeat of the process was received within livenessTimeout.
func (m member) isAlive() bool { return time.Since(m.lastHeard) < livenessTimeout }

// Join subscribes to the heartbeats. It returns once every connected process has had time to
// announce itself.
func Join(ctx context.Context, nc *nats.Conn) (*Membership, error) {
	return join(ctx, nc, time.Now())
}

// JoinAsFirst is like Join, for a caller that has just started NATS itself. No other process can
// have followed the registry before that, so the caller's first change need not wait for the leases
// of disconnected processes.
func JoinAsFirst(ctx context.Context, nc *nats.Conn) (*Membership, error) {
	return join(ctx, nc, time.Time{})
}

func join(ctx context.Context, nc *nats.Conn, since time.Time) (*Membership, error) {
	r := &Membership{
		nc:             nc,
		echoID:         uuid.NewString(),
		members:        map[string]member{},
		changed:        make(chan struct{}),
		listeningSince: since,
		reconnects:     nc.Stats().Reconnects,
	}
	var err error
	if r.sub, err = nc.Subscribe(heartbeatSubject, r.receive); err != nil {
		return nil, fmt.Errorf("listen for the other processes: %w", err)
	}
	timer := time.NewTimer(joinListenTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Stop unsubscribes from the heartbeats. It does not wait for a heartbeat that is being handled,
// and does not make a running AwaitInForce return.
func (r *Membership) Stop() { _ = r.sub.Unsubscribe() }

func (r *Membership) receive(msg *nats.Msg) {
	p, err := decodeHeartbeat(msg.Data)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case p.echoNumber > 0:
		if p.instanceID == r.echoID {
			r.receivedEcho = max(r.receivedEcho, p.echoNumber)
		}
	case p.leaving:
		delete(r.members, p.instanceID)
	default:
		r.members[p.instanceID] = member{heartbeatMessage: p, lastHeard: time.Now()}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// UnconfirmedError means that a change is stored but was not confirmed in time, by a live process
// or by the registry's copy in the database.
type UnconfirmedError struct {
	Revision         uint64
	LaggingProcesses []string // role and instance ID of each process, or a description
}

func (e *UnconfirmedError) Error() string {
	return fmt.Sprintf("the change is stored (revision %d) but not confirmed by %s", e.Revision,
		strings.Join(e.LaggingProcesses, ", "))
}

// AwaitInForce waits until a revision is in force at every process that may serve requests. If the
// membership started or reconnected less than livenessTimeout ago, AwaitInForce first waits for the
// rest of that time, because until then a process whose heartbeats were not received may still have
// a valid lease. If ctx is done first, AwaitInForce returns an *UnconfirmedError.
func (r *Membership) AwaitInForce(ctx context.Context, revision uint64) error {
	// An announcement that was made before the change may still be on its way. Send a message to
	// ourselves, and wait below until it arrives: all earlier announcements arrive before it.
	r.mu.Lock()
	r.sentEcho++
	number := r.sentEcho
	r.mu.Unlock()
	data, err := heartbeatMessage{instanceID: r.echoID, echoNumber: number}.encode()
	if err != nil {
		return err
	}
	if err := r.nc.Publish(heartbeatSubject, data); err != nil {
		return &UnconfirmedError{
			Revision:         revision,
			LaggingProcesses: []string{"any process: NATS is unavailable"},
		}
	}

	stored := time.Now() // the change was stored at this instant or earlier
	for {
		r.mu.Lock()
		heard, changed := r.receivedEcho >= number, r.changed
		behind, next := r.laggingProcesses(revision, stored, time.Now())
		r.mu.Unlock()
		if heard && len(behind) == 0 {
			return nil
		}
		// Compute the list of lagging processes again after each heartbeat. Also do so once the
		// duration next has passed, because a lagging process may then be presumed dead.
		timer := time.NewTimer(max(next, time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			if !heard {
				behind = append(behind, "NATS")
			}
			return &UnconfirmedError{Revision: revision, LaggingProcesses: behind}
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// laggingProcesses returns the processes that may serve requests but where a revision is not in
// force yet. The revision was stored at the time stored or earlier. next is how long the list stays
// the same if no heartbeat arrives: after that time, a process may be presumed dead and its lease
// expired, so that it is no longer in the list. laggingProcesses also forgets processes that have
// been silent for forgetMemberAfter. The caller must hold mu.
func (r *Membership) laggingProcesses(
	revision uint64, stored, now time.Time,
) (list []string, next time.Duration) {
	if n := r.nc.Stats().Reconnects; n != r.reconnects {
		r.listeningSince, r.reconnects = now, n
	}
	// The cluster's name is also "" while nc is disconnected. So remember whether nc has ever been
	// connected to a cluster.
	r.clustered = r.clustered || r.nc.ConnectedClusterName() != ""
	next = livenessTimeout
	if deaf := livenessTimeout - now.Sub(r.listeningSince); deaf > 0 {
		list, next = append(list, "a process that was not heard yet"), deaf
	}
	for id, m := range r.members {
		left := livenessTimeout - now.Sub(m.lastHeard)
		if r.clustered { // the process may be cut off from this one but still renew its lease
			left = max(left, leaseDuration-now.Sub(stored))
		}
		switch {
		case now.Sub(m.lastHeard) > forgetMemberAfter:
			delete(r.members, id)
		case m.serving && m.revision < revision && left > 0:
			list = append(list, m.role+" "+id)
			next = min(next, left)
		}
	}
	sort.Strings(list)
	return list, next
}

// IngressSettings returns the settings of the live ingresses, in no particular order.
func (r *Membership) IngressSettings() []*IngressSettings {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*IngressSettings
	for _, m := range r.members {
		if m.role == RoleIngress && m.settings != nil && m.isAlive() {
			list = append(list, m.settings)
		}
	}
	return list
}

// Process describes a live process that follows the registry, according to its last heartbeat.
type Process struct {
	InstanceID string // a random UUID
	Role       string
	Revision   uint64 // the last registry revision that is in force at the process
	Info       ProcessInfo
}

// Members returns the live processes, sorted by role and then by instance.
func (r *Membership) Members() []Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Process
	for id, m := range r.members {
		if time.Since(m.lastHeard) < livenessTimeout {
			list = append(list, Process{
				InstanceID: id,
				Role:       m.role,
				Revision:   m.revision,
				Info:       m.info,
			})
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		return a.Role < b.Role || a.Role == b.Role && a.InstanceID < b.InstanceID
	})
	return list
}
