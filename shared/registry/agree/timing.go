package agree

import "time"

// The times that the argument of this package rests on; TestTimings has the inequalities between them.
const (
	// heartbeat is how often a process says how far it is when nothing changes.
	heartbeat = 250 * time.Millisecond
	// lifetime is how long changes wait for a process that was not heard.
	lifetime = 3 * time.Second
	// forgetAfter is how long a process is remembered that fell silent without a goodbye. It may be cut from here only, and a
	// change waits until its lease has surely run out.
	forgetAfter = 10 * time.Minute
	// relyFor is how long a process may rely on what it has applied: the length of its lease.
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
	// listenFor is how long a new roll listens before it is asked: everybody who lives is heard once.
	listenFor = heartbeat + 100*time.Millisecond
	// stallTimeout is how long a change that is stored may take to arrive. After it the consumer is
	// made anew: what the server has sent into a dead connection counts as delivered, and does not
	// come again.
	stallTimeout = 300 * time.Millisecond
)
