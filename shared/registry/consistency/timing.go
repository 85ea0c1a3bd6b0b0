package consistency

import "time"

// These are the times that the argument of this package relies on. TestTimings checks the
// inequalities between them.
const (
	// heartbeat is the interval between the announcements of a process while nothing changes.
	heartbeat = 250 * time.Millisecond
	// lifetime is the silence after which a process is presumed dead.
	lifetime = 3 * time.Second
	// forgetAfter is the time for which a membership remembers a process that fell silent without a
	// Stop.
	forgetAfter = 10 * time.Minute
	// relyFor is the length of a lease: the time for which a process may answer from its copy of
	// the registry.
	relyFor = 2 * time.Second
	// heardWithin is the maximum time since a majority of the servers has answered the registry's
	// leader for the leader's answer to renew a lease.
	heardWithin = 2 * time.Second
	// electionTimeout is the minimum time for which a server of a cluster waits for its leader
	// before it calls an election (minElectionTimeoutDefault in nats-server 2.15).
	electionTimeout = 4 * time.Second
	// renewEvery is the interval at which a process renews its lease.
	renewEvery = 500 * time.Millisecond
	// renewWithin is the maximum duration of one renewal.
	renewWithin = relyFor / 2
	// listenFor is the time for which a new membership collects announcements before its first use:
	// every live process sends one in it.
	listenFor = heartbeat + 100*time.Millisecond
	// stallTimeout is the maximum time that a stored change may take to arrive. After it the
	// consumer is recreated: messages that the server has sent into a dead connection count as
	// delivered, and are not sent again.
	stallTimeout = 300 * time.Millisecond
)
