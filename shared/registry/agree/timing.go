package agree

import "time"

// The times that the argument of this package rests on. TestTimings checks the inequalities between them.
const (
	// heartbeat is the interval of a process's announcements while nothing changes.
	heartbeat = 250 * time.Millisecond
	// lifetime is the silence after which a process is presumed dead.
	lifetime = 3 * time.Second
	// forgetAfter is how long a roll remembers a process that fell silent without a Stop. That process may be alive and only
	// partitioned from this one, so a change waits until its lease has surely expired.
	forgetAfter = 10 * time.Minute
	// relyFor is the length of a lease: how long a process may answer from its copy of the registry.
	relyFor = 2 * time.Second
	// heardWithin is how recently a majority of the servers must have answered the registry's leader for its answer to renew a lease.
	heardWithin = 2 * time.Second
	// electionTimeout is how long a server of a cluster waits for its leader before it calls an election: at least this
	// (minElectionTimeoutDefault in nats-server 2.15).
	electionTimeout = 4 * time.Second
	// renewEvery is how often a process renews its lease.
	renewEvery = 500 * time.Millisecond
	// renewWithin is how long one renewal may take.
	renewWithin = relyFor / 2
	// listenFor is how long a new roll collects announcements before its first use: every live process sends one.
	listenFor = heartbeat + 100*time.Millisecond
	// stallTimeout is how long a stored change may take to arrive. After it the consumer is recreated: messages that the
	// server has sent into a dead connection count as delivered, and are not sent again.
	stallTimeout = 300 * time.Millisecond
)
