// Package home is the registry's second home: the database keeps a copy of every record of the registry, sealed as NATS has
// it, and the installation's identity. When NATS has lost the registry, or has an older one, an executor restores it from
// there.
//
// # Nothing confirmed is lost
//
// Every executor follows both buckets and writes their revisions into the database, in order, with their entries of the audit:
// see mirror. The copy's position is how far it has all of them. An Editor confirms a change when the position has reached the
// revisions that the change has stored: see Kept. So the copy has every change that was confirmed, whichever executor is killed
// at whatever time: a change that an executor has stored and not confirmed is in NATS, and the mirror of any executor takes it
// from there. If it is lost with NATS before, nobody was told that it holds.
//
// The revisions of a bucket only grow, also when it was lost: a bucket that is restored begins after the copy's position
// (edit.Lift). So of two revisions of a record the higher one is always the newer one, and the copy replaces no record by an
// earlier one, whatever comes twice or late. The copy keeps deletions: a deleted record stays deleted.
//
// # Nothing is answered meanwhile
//
// The registry's identity is a record of the registry, and the last that is restored. No process has a lease while there is
// none (package agree), so ingresses answer 503 until then. Restoring begins by deleting what is older, the identity with it.
// A process that was running sees that the registry has gone back: it waits until an executor has compared the registry with
// the copy, and has written the identity with another stamp. One case is left: an ingress that starts with an older registry
// cannot know it until an executor has looked.
//
// # When it is restored
//
// The registry is lost, or older, when a bucket ends before the copy's position. A cluster may report that for a moment while
// it elects a leader: there it must be so for settle. Without an identity the registry is
// incomplete: an executor was killed while it restored, or somebody has emptied the bucket. What is missing is filled in.
// An identity that says Restoring belongs to a backup that is being restored: the executors leave it alone, and only follow.
//
// Two executors that restore at once do the same: Lift deletes nothing that was stored after the first one, Fill stores no
// record that is there, from the same copy, and the identity is written over the revision that was read. An executor that was
// frozen meanwhile and resumes changes nothing any more, for the same reasons.
//
// # Whose registry it is
//
// The identity is made when neither the registry nor the database has one: in the database first, where one of several
// executors wins, and then in the registry, over nothing. An executor does not start with a registry that has another identity
// than its database, or with an empty database beside a registry that has one.
package home
