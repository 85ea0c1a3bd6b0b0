// Package databasecopy maintains a second copy of the registry. The database holds a copy of every
// registry record, sealed as in NATS, and the installation's identity. If NATS has lost the
// registry or holds an older version of it, an executor restores it from this copy.
//
// # No confirmed change is lost
//
// Every executor follows both buckets and writes their revisions to the database, in order, with
// their audit entries: see mirrorBucket. The copy's position is the revision up to which it is
// complete. An Editor confirms a change when the position has reached the revisions that the change
// stored: see AwaitCopied. The copy therefore has every confirmed change, no matter when an
// executor crashes. A change that was stored but not confirmed is in NATS, and the mirror of any
// executor copies it from there. If NATS loses such a change before it is copied, no client has
// been told that it was made.
//
// The revisions of a bucket only increase, even if the bucket is lost: a restored bucket begins
// after the copy's position (edit.PurgeAndAdvanceRevision). Of two revisions of a record, the
// higher one is therefore always the newer one. The copy never replaces a revision of a record with
// a lower one, even if revisions are delivered twice or late. The copy also contains deletions, so
// a restore does not bring deleted records back.
//
// # No requests are accepted during a restore
//
// The registry's identity is a record of the registry, and a restore writes it last. While there is
// no identity, no process has a lease (package consistency), so ingresses respond with 503. A
// restore begins by deleting everything that is older, including the identity. A running process
// notices that the registry has gone back to an earlier state. It then waits until an executor has
// compared the registry with the copy and has written the identity with a new stamp. One gap
// remains: an ingress that starts while NATS has an older registry cannot detect that until an
// executor has compared the registry with the copy.
//
// # When the registry is restored
//
// The registry is lost, or older, if a bucket ends before the copy's position. A cluster may
// briefly report such a state while it elects a leader, so in a cluster the state must persist for
// a few seconds (restoreDelay). Without an identity, the registry is incomplete: an executor was
// killed while restoring it, or the bucket was emptied. The missing records are then added. An
// identity with Restoring set belongs to a backup that is being restored: executors do not change
// such a registry, and only follow it.
//
// Two executors can safely restore concurrently: PurgeAndAdvanceRevision deletes nothing that was
// stored after the first executor called it, RestoreMissingRecords stores no record that exists,
// and both executors use the same copy. The identity is written only if its revision is still the
// one that was read. For the same reasons, an executor that was frozen during the restore changes
// nothing when it resumes.
//
// # The identity of the registry
//
// If neither the registry nor the database has an identity, executors create one. They first write
// it to the database, where the first of several executors wins, and then to the registry, without
// overwriting an existing identity. An executor does not start if the registry's identity differs
// from the database's. It also does not start if the database is empty and the registry has an
// identity, unless --adopt-database is set.
package databasecopy
