package consistency

import "time"

// The guarantees in doc.go depend on these durations. TestTimings checks the inequalities between
// them.
const (
	// heartbeatInterval is the interval between the announcements of a process while nothing
	// changes.
	heartbeatInterval = 250 * time.Millisecond
	// livenessTimeout is how long a process must be silent before it is presumed dead.
	livenessTimeout = 3 * time.Second
	// forgetMemberAfter is how long a membership keeps track of a process that fell silent without
	// calling Stop.
	forgetMemberAfter = 10 * time.Minute
	// leaseDuration is the length of a lease: how long a process may serve requests from its copy
	// of the registry without confirming that the copy is current.
	leaseDuration = 2 * time.Second
	// maxPeerSilence is the maximum time since a majority of the servers last replied to the
	// registry's leader. After that time, the leader's responses no longer renew leases.
	maxPeerSilence = 2 * time.Second
	// electionTimeout is the minimum time that a server of a cluster waits for its leader before it
	// calls an election (minElectionTimeoutDefault in nats-server 2.15).
	electionTimeout = 4 * time.Second
	// leaseRenewInterval is the interval at which a process renews its lease.
	leaseRenewInterval = 500 * time.Millisecond
	// leaseRenewTimeout is the maximum duration of one renewal.
	leaseRenewTimeout = leaseDuration / 2
	// joinListenTime is how long a new membership collects announcements before its first use. It
	// is longer than heartbeatInterval, so that every live process announces itself at least once
	// in that time.
	joinListenTime = heartbeatInterval + 100*time.Millisecond
	// deliveryStallTimeout is how long Follower.AwaitApplied waits for the next change before it
	// has the consumer recreated. Without that, a change might never arrive: messages that the
	// server has sent into a dead connection count as delivered and are not sent again.
	deliveryStallTimeout = 300 * time.Millisecond
)
