// Package consistency makes "active" mean active: a change of the registry that has returned
// without an error holds at every process that answers requests, from the very next request on.
//
// # The parts
//
//   - A Follower applies the registry's changes, in the order of their revisions, to a Sink.
//   - A Lease reports whether a follower's copy is current. A renewal asks NATS for the newest
//     revision and applies everything up to it. The lease begins when the question is sent.
//   - A Heartbeat announces to the other processes, on core NATS, that its process is alive and
//     which revision it has applied: at every change and every heartbeat.
//   - A Membership is the set of processes: it receives the announcements.
//     Membership.Wait is the barrier: it returns when every live process has announced a revision.
//
// # Why it holds
//
// A change is stored as revision R. Membership.Wait(R) returns without an error only if each
// process P that answers requests is in one of three cases.
//
//  1. P has announced R or later. The announcement is made after the sink has applied it, so that
//     the next request at P sees the change.
//
//  2. P has been silent for lifetime, and is presumed dead. Let H be the time of the last
//     announcement that was received from P; P is presumed dead from H+lifetime on. If P asked for
//     its lease after the change was stored, the lease covers the change: this is case 1, except
//     that the announcement was lost. So a stale lease was asked for before the change was stored,
//     and expires relyFor after the question. P sends a heartbeat as long as it can renew its
//     lease. With up to three heartbeats in a row lost, H is at most four heartbeats before the
//     question of the last stale lease. So that lease has expired when P is presumed dead, because
//
//     relyFor + 4 × heartbeat ≤ lifetime
//
//     P may also be silent because two servers of a cluster are partitioned, while both reach the
//     leader of the registry: then P still renews its lease. So Membership.Wait remembers a silent
//     process for forgetAfter, and waits until relyFor after the change was stored: then every
//     lease that does not cover the change has expired. A single server cannot be partitioned:
//     there a process that was not heard for lifetime is not waited for.
//
//     A process that was frozen and resumes finds its lease expired, too: Lease.Valid reads the
//     clock for each request, and the process answers 503 until the lease is renewed.
//
//  3. P had not announced itself when Membership.Wait was called. P serves only once it has
//     announced itself, then asked for the newest revision, and then applied it (StartHeartbeat).
//     If the announcement was made before the change was stored, this process has received it: Wait
//     first sends a message to itself, which arrives after everything that NATS had accepted by
//     then. If the announcement was made later, the answer to the question after it was R or later,
//     and P serves only with R applied.
//
// A membership receives nothing before it starts, or while its connection is lost. So Wait returns
// no earlier than lifetime after the membership started or reconnected. By then the membership has
// received an announcement of every process that is connected or lost NATS after that time, with up
// to three announcements in a row lost. The lease of a process that lost NATS before that time has
// expired, by the same inequality. A caller that knows that no other process existed before,
// because it has just started NATS itself, skips this wait (JoinFirst).
//
// Another bucket under the same name (recreated, or restored from an older copy) reuses the
// revisions. A Follower detects it, and switches to it only after relyFor: then all leases on the
// old bucket have expired, and no process answers from it when the new one accepts its first
// change.
//
// The registry's identity (registry.InstallationKey) is its last record when it is made or
// restored. Without it, and while it says that a backup is being restored, no follower is current
// and no lease is renewed: records may be missing. A follower that sees the registry go back to an
// earlier state relies on it again only when the stamp of its identity has changed: an executor has
// compared it with the newest confirmed state. When the identity says that the registry was
// restored since it was loaded, a follower loads all of it again: what it has loaded may have
// records that were never confirmed.
//
// # Assumptions
//
//   - The clocks of the processes run at about the same rate; their time of day does not matter. A
//     virtual machine that is suspended as a whole, monotonic clock included, and resumed elsewhere
//     may use its lease for the rest of relyFor.
//   - NATS delivers one connection's messages in order.
//   - Two servers of a cluster that both reach the leader of the registry are not partitioned for
//     longer than forgetAfter, and no process starts at one of them meanwhile.
//   - The answer that renews a lease, or by which an executor decides (Follower.CatchUp), comes
//     from the leader of the registry's stream. A leader that is partitioned from the other servers
//     still answers (with nats-server 2.15.2 for more than ten minutes), while they may elect
//     another one and store changes. So its answer counts only if a majority has replied to it
//     within heardWithin: these servers elect no other leader before electionTimeout, and
//     heardWithin + relyFor ≤ electionTimeout. One case is left: a server without a leader calls an
//     election, and a server that has just heard the old leader votes for it. The old leader learns
//     of it at its next heartbeat (1 s). Only if it is partitioned from that server in the same
//     second, a process on its side may refuse requests by an earlier registry, for at most
//     heardWithin + relyFor. It accepts none, because it can store nothing.
//   - A change whose Wait fails with a LaggingError is stored. It holds at every process within
//     lifetime: by then each process has applied it, or answers 503.
package consistency
