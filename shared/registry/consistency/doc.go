// Package consistency makes changes of the registry take effect everywhere before they are reported
// as done. When a call that changes the registry has returned without an error, every process that
// serves requests applies the change from the very next request on.
//
// # The parts
//
//   - A Follower applies the registry's changes to a Sink, in the order of their revisions.
//   - A Lease reports whether a follower's copy is current. To renew it, the process asks NATS for
//     the newest revision and applies everything up to it. The lease runs from the moment when the
//     request was sent.
//   - A Heartbeat announces to the other processes, on core NATS, that its process is alive and
//     which revision it has applied. It does so at regular intervals and after every change.
//   - A Membership is the set of processes, as known from their announcements.
//     Membership.AwaitInForce is the barrier: it returns once every live process has announced a
//     given revision.
//
// # Why it holds
//
// A change is stored as revision R. Membership.AwaitInForce(R) returns without an error only if
// each process P that serves requests is in one of three cases.
//
//  1. P has announced R or a later revision. It announces a revision after the sink has applied it,
//     so the next request at P sees the change.
//
//  2. P has been silent for livenessTimeout and is presumed dead. Call a lease stale if P requested
//     it before the change was stored. Any later lease is not stale: P has applied the change, as
//     in case 1, and only its announcement was lost. Let T be when P requested its last stale
//     lease, and let H be when the last announcement from P was received. The stale lease expires
//     at T+leaseDuration, and P is presumed dead from H+livenessTimeout on. P sends heartbeats as
//     long as it can renew its lease, and at most three heartbeats in a row are lost, so
//     H ≥ T - 4 × heartbeatInterval. So the stale lease has expired by the time P is presumed dead,
//     because
//
//     leaseDuration + 4 × heartbeatInterval ≤ livenessTimeout
//
//     P may also be silent because two servers of a cluster are partitioned while both reach the
//     leader of the registry: then P still renews its lease. So Membership.AwaitInForce keeps track
//     of a silent process for forgetMemberAfter, and waits until leaseDuration after the change was
//     stored: by then every lease that does not cover the change has expired. A single server
//     cannot be partitioned: there, AwaitInForce does not wait for a process that has been silent
//     for livenessTimeout.
//
//     A process that was frozen and resumes finds its lease expired, too: Lease.IsValid reads the
//     clock for each request, and the process responds with 503 until the lease is renewed.
//
//  3. P had not announced itself when Membership.AwaitInForce was called. P serves only once it has
//     announced itself, then requested the newest revision, and then applied it (StartHeartbeat).
//     If the announcement was made before the change was stored, this process has received it:
//     AwaitInForce first sends a message to itself, which arrives after everything that NATS had
//     accepted by then. If the announcement was made later, the response to the request that
//     followed it was R or a later revision, and P serves only with R applied.
//
// A membership receives nothing before it starts or while its connection is lost. Let S be when it
// started or last reconnected. AwaitInForce returns no earlier than S+livenessTimeout. By then the
// membership has received an announcement from every process that is connected to NATS or that lost
// its connection after S, even if up to three announcements in a row were lost. The lease of a
// process that lost its connection before S has expired, by the same inequality. A caller that has
// just started NATS itself skips this wait (JoinAsFirst), because no other process can have existed
// before.
//
// If the bucket is recreated, or restored from an older copy, the new bucket reuses revisions of
// the old one. A Follower detects this, and switches to the new bucket only after leaseDuration. By
// then all leases on the old bucket have expired, so no process uses the old bucket when the new
// one accepts its first change.
//
// A process that may not read the bucket reads a copy of it, a NATS mirror. CatchUp then compares
// the last revision that the follower has applied from the copy with the last sequence of the
// original.
//
// A follower knows in one of two ways that it has applied everything:
//
//   - Usually, the revision that it applied last reaches the last sequence of the stream. If the
//     newest message is missing, for example after a power cut, that never happens.
//   - Otherwise, its consumer has nothing more to deliver. This is reliable only if the consumer's
//     stream is on one server and had reached that sequence before the consumer was created. So the
//     follower determines the last sequence of the stream, which may be a copy, before it creates a
//     consumer.
//
// Until it knows in one of these ways, the follower does not count as current. The next change of
// the registry lets it know.
//
// The registry's identity (registry.InstallationKey) is the last record to be written when the
// registry is created or restored. While there is no identity, and while the identity states that a
// backup is being restored, no follower counts as current and no lease is renewed, because records
// may be missing. A follower that sees the registry go back to an earlier state does not rely on it
// again until the WriteID of the identity has changed. A new WriteID means that an executor has
// compared the registry with the newest confirmed state. If the identity shows that the registry
// has been restored since a follower loaded it, the follower reloads all of it, because the loaded
// records may include some that were never confirmed.
//
// # Assumptions
//
//   - The clocks of the processes run at about the same rate; their time of day does not matter. A
//     virtual machine that is suspended as a whole, including its monotonic clock, and resumed
//     elsewhere may go on using its lease for the rest of leaseDuration.
//   - NATS delivers the messages of one connection in order.
//   - If two servers of a cluster both reach the leader of the registry, they are not partitioned
//     from each other for longer than forgetMemberAfter, and no process starts at one of them
//     meanwhile.
//   - The response to the request of Follower.CatchUp, which renews leases and on which executors
//     base decisions, comes from the leader of the registry's stream. A leader that is partitioned
//     from the other servers goes on responding (with nats-server 2.15.2 for more than ten
//     minutes), while the others may elect another leader and store changes. So a leader's response
//     counts only if a majority has replied to the leader within maxPeerSilence: those servers
//     elect no other leader before electionTimeout, and maxPeerSilence + leaseDuration ≤
//     electionTimeout. One case remains: a server that has lost contact with the leader calls an
//     election, and another server votes for the caller although the voter has only just heard from
//     the old leader. The old leader learns of the election at its next heartbeat, within 1 s. If
//     the old leader is partitioned from the voter before that, a process on its side may refuse
//     requests according to an outdated registry, for at most maxPeerSilence + leaseDuration. That
//     process cannot wrongly accept a request, because it cannot store anything.
//   - If AwaitInForce fails with an UnconfirmedError, the change is stored. It is in force at every
//     process within livenessTimeout: by then each process has either applied it or responds with
//     503.
package consistency
