package consistency

import "time"

// The durations on which the reasoning in this package's documentation relies. TestTimings checks
// the inequalities between them.
const (
	// heartbeat is the interval between the announcements of a process while nothing changes.
	heartbeat = 250 * time.Millisecond
	// lifetime is how long a process must be silent before it is presumed dead.
	lifetime = 3 * time.Second
	// forgetAfter is how long a membership keeps track of a process that fell silent without
	// calling Stop.
	forgetAfter = 10 * time.Minute
	// relyFor is the length of a lease: how long a process may serve requests from its copy of the
	// registry without confirming that the copy is current.
	relyFor = 2 * time.Second
	// heardWithin is how recently a majority of the servers must have replied to the registry's
	// leader for the leader's response to renew a lease.
	heardWithin = 2 * time.Second
	// electionTimeout is the minimum time that a server of a cluster waits for its leader before it
	// calls an election (minElectionTimeoutDefault in nats-server 2.15).
	electionTimeout = 4 * time.Second
	// renewEvery is the interval at which a process renews its lease.
	renewEvery = 500 * time.Millisecond
	// renewWithin is the maximum duration of one renewal.
	renewWithin = relyFor / 2
	// listenFor is how long a new membership collects announcements before its first use. Every
	// live process sends at least one in that time.
	listenFor = heartbeat + 100*time.Millisecond
	// stallTimeout is how long a stored change may take to arrive before the consumer is recreated:
	// messages that the server has sent into a dead connection count as delivered and are not sent
	// again.
	stallTimeout = 300 * time.Millisecond
)
