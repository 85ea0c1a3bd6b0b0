// Package agree makes "active" mean active: a change of the registry that has returned without an
// error holds at every process that answers, from the very next request on.
//
// # The parts
//
//   - A Follower applies the registry's changes, in the order of their revisions, to a Sink.
//   - A Lease says whether what a follower has applied may be relied on now. It is renewed by asking
//     NATS for the newest revision and applying everything up to it, and it counts from before the question.
//   - An Announcer tells the others, on core NATS, that its process lives and which revision it has
//     applied: at every change and every heartbeat.
//   - A Roll hears the announcements. Roll.Wait is the barrier: it returns when everybody who lives has
//     announced a revision.
//
// # Why it holds
//
// A change is stored as revision R. Roll.Wait(R) returns without an error only if each process P that
// answers requests is in one of three cases.
//
//  1. P has announced R or later. The announcement is made after the sink has applied it, so that the
//     next request at P sees the change.
//
//  2. P was not heard for lifetime. Let P have been heard last at H; it counts as dead from H+lifetime
//     on. A lease that P renewed with a question asked after the change was stored covers the change: it is
//     case 1, only unheard. So a harmful lease was asked for before the change was stored, and ends
//     relyFor after that at the latest. P announces itself every heartbeat as long as it can ask for a
//     lease at all. With up to three announcements in a row lost, H is at most four heartbeats before the
//     last harmful question. So the lease has run out when P counts as dead, because
//
//     relyFor + 4 × heartbeat ≤ lifetime
//
//     P may also be silent because two servers of a cluster do not reach each other, while both reach the leader of the
//     registry: then it still renews its lease. For forgetAfter, Roll.Wait waits for such a process until relyFor after the
//     change was stored, when a lease that does not cover the change has run out.
//
//     A process that was stopped and goes on finds its lease run out, too: it looks at the clock for
//     each request (Lease.Valid), and answers 503 until the lease is renewed.
//
//  3. P had not announced itself when Roll.Wait was called. P serves only once it has announced itself,
//     then asked for the newest revision, and then applied it (Announce). If the announcement was made
//     before the change was stored, the roll hears of P: Wait sends a message to itself first, which
//     comes after everything that NATS had taken by then. If it was made later, the question after
//     it was answered with R or later, and P serves only with R applied.
//
// A roll hears nothing before it begins, nor while its connection is lost. So Wait returns no earlier than lifetime
// after the roll began or its connection came back. A process that is connected then, or was cut from NATS after
// that, is heard, with up to three announcements in a row lost; one that was cut before has no lease any more, by the
// same inequality. Who knows that no process was there before says so (CallFirstRoll).
//
// Another bucket under the same name (created anew, or restored from an older copy) has revisions that mean
// something else. A Follower recognises it, and believes it only after relyFor: by then no lease from
// before is relied on, so that no process answers from the old bucket when the new one takes its first change.
//
// # What it rests on
//
//   - The clocks of the processes run at about the same rate; their time of day does not matter. A virtual
//     machine that is suspended as a whole, monotonic clock included, and goes on elsewhere may rely on its lease
//     for the rest of relyFor.
//   - NATS delivers one connection's messages in order.
//   - Two servers of a cluster that both reach the leader of the registry do not stay apart for more than forgetAfter, and
//     no process starts at one of them meanwhile.
//   - The answer that renews a lease comes from the server that leads the registry. A leader that was cut from the others goes
//     on answering for up to 10 s, while they may elect another one and store changes. So its answer counts only if a majority
//     has answered it within heardWithin: they elect nobody else before electionTimeout, and heardWithin + relyFor ≤
//     electionTimeout. One case is left: a server that heard no leader calls an election, and another one that heard the
//     leader just now votes for it. The old leader learns of it at its next heartbeat (1 s); only if it is cut from that one in the
//     same second may a process on its side refuse a request by an earlier registry, for heardWithin + relyFor at the
//     most. It accepts none, for nothing is stored there.
//   - A change whose Wait fails with a LaggingError is stored. It is in force at every process within
//     lifetime: each of them has applied it by then, or answers nothing.
package agree
