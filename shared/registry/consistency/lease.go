package consistency

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Lease reports whether a follower's copy of the registry is current: it is valid for leaseDuration
// after the copy was last known to be complete. The lease of a process that was frozen or
// disconnected from NATS expires, which keeps the process from using a stale copy.
type Lease struct {
	nc          *nats.Conn
	follower    *Follower
	clockOrigin time.Time
	expiresAt   atomic.Int64 // end of the lease, in nanoseconds after clockOrigin
	validSince  atomic.Int64 // when the lease last became valid, in nanoseconds after clockOrigin

	mu               sync.Mutex
	renewed          chan struct{} // closed and replaced at each renewal
	lastRenewalError error         // error of the last renewal; nil if it succeeded

	stop context.CancelFunc
	done chan struct{}
}

// NewLease starts a lease and renews it until Stop. The follower must have caught up. If the
// registry has an identity that the follower can rely on, the lease is valid from the start.
func NewLease(nc *nats.Conn, f *Follower) *Lease {
	ctx, stop := context.WithCancel(context.Background())
	l := &Lease{
		nc:          nc,
		follower:    f,
		clockOrigin: time.Now(),
		renewed:     make(chan struct{}),
		stop:        stop,
		done:        make(chan struct{}),
	}
	if f.hasTrustedIdentity() {
		l.expiresAt.Store(int64(leaseDuration))
	}
	go l.run(ctx)
	return l
}

// Stop stops renewing the lease. It cancels a renewal that is in progress, and waits until the
// renewing goroutine has exited. The lease stays valid until it expires.
func (l *Lease) Stop() {
	l.stop()
	<-l.done
}

// IsValid reports, without waiting, whether the lease is valid at now. It returns false while a
// backup is being restored, even right after a renewal, because the registry is then incomplete.
func (l *Lease) IsValid(now time.Time) bool {
	return int64(now.Sub(l.clockOrigin)) < l.expiresAt.Load() && !l.follower.restoring.Load()
}

// IsValidSince reports, without waiting, whether the lease is valid at now and has been valid
// without interruption since start.
func (l *Lease) IsValidSince(start, now time.Time) bool {
	// IsValid reads expiresAt. validSince must be read after that, because renew writes validSince
	// before expiresAt.
	return l.IsValid(now) && l.validSince.Load() <= int64(start.Sub(l.clockOrigin))
}

// AwaitValid reports whether the lease is valid, like IsValid. If it has expired, AwaitValid waits
// up to 1 s for its renewal, unless the connection to NATS is lost.
func (l *Lease) AwaitValid(now time.Time) bool {
	if l.IsValid(now) {
		return true
	}
	timeout := time.NewTimer(leaseRenewInterval + leaseDuration/4)
	defer timeout.Stop()
	for l.nc.IsConnected() {
		l.mu.Lock()
		renewed := l.renewed
		l.mu.Unlock()
		if l.IsValid(time.Now()) {
			return true
		}
		select {
		case <-renewed:
		case <-timeout.C:
			return false
		}
	}
	return false
}

// RenewalError returns why the last attempt to renew the lease failed, or nil if it succeeded.
func (l *Lease) RenewalError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastRenewalError
}

// SinceCaughtUp returns how long before now the follower was last known to have applied everything.
func (l *Lease) SinceCaughtUp(now time.Time) time.Duration {
	return now.Sub(l.clockOrigin) - time.Duration(l.expiresAt.Load()) + leaseDuration
}

func (l *Lease) run(ctx context.Context) {
	defer close(l.done)
	connected := l.nc.StatusChanged(nats.CONNECTED)
	defer l.nc.RemoveStatusListener(connected)
	tick := time.NewTicker(leaseRenewInterval)
	defer tick.Stop()
	for {
		if l.renew(ctx, connected) {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-connected:
		}
	}
}

// renew makes the follower catch up, and then extends the lease to leaseDuration after the time at
// which renew was called. It returns true if the connection was lost and re-established during the
// call. The server's response may then have been lost, so the caller should call renew again
// immediately.
func (l *Lease) renew(ctx context.Context, connected <-chan nats.Status) (again bool) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, leaseRenewTimeout)
	defer cancel()
	caughtUp := make(chan error, 1)
	go func() { caughtUp <- l.follower.CatchUp(ctx) }()
	select {
	case err := <-caughtUp:
		if err != nil {
			l.mu.Lock()
			l.lastRenewalError = err
			l.mu.Unlock()
			return false
		}
	case <-connected:
		return l.nc.IsConnected()
	}
	if now := int64(time.Since(l.clockOrigin)); now >= l.expiresAt.Load() {
		l.validSince.Store(now)
	}
	l.expiresAt.Store(int64(asked.Add(leaseDuration).Sub(l.clockOrigin)))
	l.mu.Lock()
	l.lastRenewalError = nil
	close(l.renewed)
	l.renewed = make(chan struct{})
	l.mu.Unlock()
	return false
}
