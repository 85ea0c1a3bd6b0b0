// Package home keeps a second copy of the registry: the database has a copy of every record of the
// registry, sealed as in NATS, and the installation's identity. When NATS has lost the registry, or
// has an older one, an executor restores the registry from this copy.
//
// # No confirmed change is lost
//
// Every executor follows both buckets and writes their revisions into the database, in order, with
// their audit entries: see mirror. The copy's position is the revision up to which it has all of
// them. An Editor confirms a change when the position has reached the revisions that the change has
// stored: see Kept. So the copy has every change that was confirmed, whichever executor is killed
// at whatever time. A change that an executor has stored and not confirmed is in NATS, and the
// mirror of any executor takes it from there. If it is lost with NATS before that, no client was
// told that the change was made.
//
// The revisions of a bucket only grow, also when the bucket was lost: a bucket that is restored
// begins after the copy's position (edit.AdvanceRevision). So of two revisions of a record, the
// higher one is always the newer one, and the copy replaces no record by an earlier one, even if
// revisions are delivered twice or late. The copy keeps deletions: a deleted record stays deleted.
//
// # No requests are answered during a restore
//
// The registry's identity is a record of the registry, and the last one to be restored. No process
// has a lease while there is no identity (package consistency), so ingresses answer 503 until then.
// A restore begins by deleting everything that is older, including the identity. A running process
// notices that the registry has gone back: it waits until an executor has compared the registry
// with the copy, and has written the identity with another stamp. One case remains: an ingress that
// starts with an older registry cannot know this until an executor has compared it.
//
// # When the registry is restored
//
// The registry is lost, or older, when a bucket ends before the copy's position. A cluster may
// report such a state for a moment while it elects a leader, so in a cluster the state must last
// for the time settle. Without an identity, the registry is incomplete: an executor was killed
// while it restored the registry, or the bucket was emptied. The missing records are filled in. An
// identity with Restoring set belongs to a backup that is being restored: the executors do not
// change such a registry, and only follow it.
//
// Two executors that restore at the same time do the same: AdvanceRevision deletes nothing that was
// stored after the first one, RestoreMissing stores no record that exists, and both use the same
// copy. The identity is written over the revision that was read. An executor that was frozen
// meanwhile and resumes changes nothing any more, for the same reasons.
//
// # The identity of the registry
//
// The identity is created when neither the registry nor the database has one: first in the
// database, where one of several executors wins, and then in the registry, where it overwrites
// nothing. An executor does not start if the registry's identity differs from its database's, or if
// the database is empty and the registry has an identity.
package home
