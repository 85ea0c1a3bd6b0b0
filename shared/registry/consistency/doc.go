// Package consistency makes "active" mean active: when a change of the registry has returned
// without an error, every process that serves requests applies it from the very next request on.
//
// # The parts
//
//   - A Follower applies the registry's changes to a Sink, in the order of their revisions.
//   - A Lease reports whether a follower's copy is current. To renew it, the process asks NATS for
//     the newest revision and applies everything up to it. The lease runs from the moment when the
//     request was sent.
//   - A Heartbeat announces to the other processes, on core NATS, that its process is alive and
//     which revision it has applied. It does so at regular intervals and after every change.
//   - A Membership is the set of processes, as known from their announcements. Membership.Wait is
//     the barrier: it returns once every live process has announced a given revision.
//
// # Why it holds
//
// A change is stored as revision R. Membership.Wait(R) returns without an error only if each
// process P that serves requests is in one of three cases.
//
//  1. P has announced R or a later revision. It announces a revision after the sink has applied it,
//     so the next request at P sees the change.
//
//  2. P has been silent for livenessTimeout and is presumed dead. Let H be when the last
//     announcement from P was received; P is presumed dead from H+livenessTimeout on. If P
//     requested its lease after the change was stored, the lease covers the change: that is case 1,
//     except that the announcement was lost. So a stale lease was requested before the change was
//     stored, and expires leaseDuration after the request. P sends a heartbeat as long as it can
//     renew its lease. With up to three heartbeats in a row lost, H is at most four heartbeat
//     intervals before the request for the last stale lease. So that lease has expired by the time
//     P is presumed dead, because
//
//     leaseDuration + 4 × heartbeatInterval ≤ livenessTimeout
//
//     P may also be silent because two servers of a cluster are partitioned while both reach the
//     leader of the registry: then P still renews its lease. So Membership.Wait keeps track of a
//     silent process for forgetMemberAfter, and waits until leaseDuration after the change was
//     stored: by then every lease that does not cover the change has expired. A single server
//     cannot be partitioned: there, Wait does not wait for a process that has been silent for
//     livenessTimeout.
//
//     A process that was frozen and resumes finds its lease expired, too: Lease.IsValid reads the
//     clock for each request, and the process responds with 503 until the lease is renewed.
//
//  3. P had not announced itself when Membership.Wait was called. P serves only once it has
//     announced itself, then requested the newest revision, and then applied it (StartHeartbeat).
//     If the announcement was made before the change was stored, this process has received it: Wait
//     first sends a message to itself, which arrives after everything that NATS had accepted by
//     then. If the announcement was made later, the response to the request that followed it was R
//     or a later revision, and P serves only with R applied.
//
// A membership receives nothing before it starts or while its connection is lost. So Wait returns
// no earlier than livenessTimeout after the membership started or reconnected. By then the
// membership has received an announcement from every process that is connected, or that lost NATS
// after that moment, with up to three announcements in a row lost. The lease of a process that lost
// NATS before that moment has expired, by the same inequality. A caller that knows that no other
// process existed before, because it has just started NATS itself, skips this wait (JoinAsFirst).
//
// Another bucket under the same name (recreated, or restored from an older copy) reuses the
// revisions. A Follower detects it, and switches to it only after leaseDuration. By then all leases
// on the old bucket have expired, so no process uses the old one when the new one accepts its first
// change.
//
// A process that may not read the bucket reads a copy of it, a mirror, and asks the original how
// far the registry is: CatchUp compares what the follower has applied from the copy with the last
// sequence of the original. If the original's newest message is missing, for example after a power
// cut, no message will show that everything is applied. A consumer with nothing more to deliver
// shows it only if its stream is on one server and had reached that sequence before the consumer
// was created. The follower therefore asks the copy for its last sequence first. Otherwise the
// follower does not count as current until the next change.
//
// The registry's identity (registry.InstallationKey) is the last record to be written when the
// registry is created or restored. Without an identity, and while it states that a backup is being
// restored, no follower counts as current and no lease is renewed, because records may be missing.
// A follower that sees the registry go back to an earlier state does not rely on it again until the
// stamp of the identity has changed, which means that an executor has compared the registry with
// the newest confirmed state. If the identity shows that the registry has been restored since a
// follower loaded it, the follower loads all of it again, because what it loaded may include
// records that were never confirmed.
//
// # Assumptions
//
//   - The clocks of the processes run at about the same rate; their time of day does not matter. A
//     virtual machine that is suspended as a whole, including its monotonic clock, and resumed
//     elsewhere may go on using its lease for what remains of leaseDuration.
//   - NATS delivers the messages of one connection in order.
//   - If two servers of a cluster both reach the leader of the registry, they are not partitioned
//     from each other for longer than forgetMemberAfter, and no process starts at one of them
//     meanwhile.
//   - The response that renews a lease, or that an executor bases a decision on (Follower.CatchUp),
//     comes from the leader of the registry's stream. A leader that is partitioned from the other
//     servers goes on responding (with nats-server 2.15.2 for more than ten minutes), while the
//     others may elect another leader and store changes. So its response counts only if a majority
//     has replied to it within maxPeerSilence: those servers elect no other leader before
//     electionTimeout, and maxPeerSilence + leaseDuration ≤ electionTimeout. One case remains: a
//     server that has lost its leader calls an election, and a server that has only just heard from
//     the old leader votes for it. The old leader learns of this at its next heartbeat (1 s). Only
//     if it is partitioned from that server within that second may a process on its side refuse
//     requests according to an outdated registry, for at most maxPeerSilence + leaseDuration. It
//     accepts none, because it cannot store anything.
//   - If Wait fails with a LaggingError, the change is stored. It is in force at every process
//     within livenessTimeout: by then each process has either applied it or responds with 503.
package consistency
