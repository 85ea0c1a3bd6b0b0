package databasecopy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

const (
	// compareInterval is how often the registry is compared with the database's copy of it.
	compareInterval = time.Second
	// restoreDelay is how long a cluster must keep reporting a registry that is older than the
	// database's copy before an executor restores the registry. While a cluster elects a leader, it
	// may briefly report an older one.
	restoreDelay = 3 * time.Second
	// requestTimeout is the maximum duration of one comparison, and of each step of a restore.
	requestTimeout = 5 * time.Second
	// pageSize is the number of records read from the registry's copy at a time.
	pageSize = 1000
	// pageTimeout is the maximum duration of restoring one page.
	pageTimeout = 30 * time.Second
	// awaitCopiedPollInterval is how often AwaitCopied checks whether another executor has copied
	// the revision.
	awaitCopiedPollInterval = 50 * time.Millisecond
)

// copiedBuckets returns the registry's buckets, in the order in which they are restored.
func copiedBuckets() []string { return []string{registry.SecretsBucket, registry.Bucket} }

// Config holds the dependencies of a RegistryCopier, which does not own them.
type Config struct {
	// JetStream provides the registry's buckets.
	JetStream jetstream.JetStream
	// Store holds the copy of the registry.
	Store store.RegistryCopy
	// Follower follows the changes of the registry's bucket.
	Follower *consistency.Follower
	// EnsureBuckets creates the registry's buckets if they do not exist.
	EnsureBuckets func(context.Context) error
	// AdoptDatabase allows an empty database to be used with a registry that already has an
	// identity.
	AdoptDatabase bool
	// Log receives a warning when the registry becomes unusable, and an entry about each restore.
	Log logrus.FieldLogger
}

// RegistryCopier maintains the database's copy of the registry. It is safe for concurrent use.
type RegistryCopier struct {
	Config

	mu             sync.Mutex
	installationID string // the installation's identity
	// copiedRevisions maps each bucket to the revision up to which the database's copy is known to
	// be complete.
	copiedRevisions map[string]uint64
	changed         chan struct{}     // closed and replaced when copiedRevisions changes
	restartMirror   map[string]func() // keyed by bucket; each restarts a bucket's mirror
	// unusableReason is why the registry was unusable at the last comparison, or nil if it was
	// usable.
	unusableReason error

	// outdatedSince is when a cluster began to report a registry that is older than the database's
	// copy. Zero means that the registry is not older.
	outdatedSince   time.Time
	identityWritten bool // whether this process has written the registry's identity
	missingStreams  stream.MissingStreams
}

// New returns a RegistryCopier. Call Initialize before any other method.
func New(c Config) *RegistryCopier {
	return &RegistryCopier{
		Config:          c,
		copiedRevisions: map[string]uint64{},
		changed:         make(chan struct{}),
		restartMirror:   map[string]func(){},
		missingStreams:  stream.MissingStreams{},
	}
}

// InstallationMismatchError means that the registry and the database belong to different
// installations. The executor must not use them together.
type InstallationMismatchError struct{ problem string }

// Error names the installations and describes what to do.
func (e *InstallationMismatchError) Error() string { return e.problem }

// errRestoring means that a backup is being restored into the registry.
var errRestoring = errors.New("a backup is being restored into it; until that is complete, every " +
	"webhook is answered 503")

// Initialize compares the registry with the database, creates the identity of a new installation,
// and restores a lost registry. It retries after errors until ctx is done, but returns an
// InstallationMismatchError immediately. While a backup is being restored, it returns nil.
func (c *RegistryCopier) Initialize(ctx context.Context) (err error) {
	var foreign *InstallationMismatchError
	retry.Until(ctx, 250*time.Millisecond, func() bool {
		err = c.tryInitialize(ctx)
		return err == nil || errors.As(err, &foreign) || errors.Is(err, errRestoring)
	})
	if errors.Is(err, errRestoring) {
		c.Log.Warn("a backup is being restored: until that is complete, the registry is not " +
			"answered from")
		return nil
	}
	return err
}

func (c *RegistryCopier) tryInitialize(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.EnsureBuckets(asking); err != nil {
		return err
	}
	ours, err := c.Store.Installation(asking)
	if err != nil {
		return err
	}
	identity, _, err := edit.ReadInstallation(asking, c.JetStream)
	if err != nil {
		return err
	}
	if ours == "" {
		if ours, err = c.adoptIdentity(asking, identity); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.installationID = ours
	c.mu.Unlock()
	return c.restoreIfOutdated(ctx)
}

// adoptIdentity stores an identity in a database that has none, and returns the identity. It uses
// the registry's identity, or creates a new one if the registry has none either. If the registry
// has an identity, but AdoptDatabase is not set, adoptIdentity returns an
// InstallationMismatchError.
func (c *RegistryCopier) adoptIdentity(
	ctx context.Context,
	identity registry.Installation,
) (string, error) {
	if identity.ID == "" {
		return c.Store.AdoptInstallation(ctx, uuid.NewString())
	}
	if !c.AdoptDatabase {
		return "",
			&InstallationMismatchError{
				fmt.Sprintf("the database has no identity, and the registry in NATS "+
					"belongs to the installation %s: "+
					"check --database-url and --nats-url; if the installation's database was "+
					"lost, "+
					"start once with --adopt-database", identity.ID),
			}
	}
	c.Log.WithField("installation",
		identity.ID).Warn("an empty database joins the installation: --adopt-database")
	return c.Store.AdoptInstallation(ctx, identity.ID)
}

// Run maintains the copy of the registry, and restores the registry if it is lost, until the
// context is done.
func (c *RegistryCopier) Run(ctx context.Context) {
	var mirrors sync.WaitGroup
	for _, bucket := range copiedBuckets() {
		mirrors.Go(func() { c.mirrorBucket(ctx, bucket) })
	}
	for failing := error(nil); ; {
		if retry.Sleep(ctx, compareInterval); ctx.Err() != nil {
			break
		}
		err := c.restoreIfOutdated(ctx)
		if err != nil && failing == nil && ctx.Err() == nil {
			c.Log.WithError(err).Warn("the registry is not in NATS as it must be; the executor " +
				"tries again")
		}
		failing = err
	}
	mirrors.Wait()
}

// UnusableReason returns why the registry must not be used for requests now, or nil if it may be
// used.
func (c *RegistryCopier) UnusableReason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unusableReason
}

// restoreIfOutdated compares the registry with the database's copy of it, and restores the
// registry if it is lost, incomplete or older than the copy. It stores and returns the reason why
// the registry is unusable, or nil.
func (c *RegistryCopier) restoreIfOutdated(ctx context.Context) error {
	err := c.compareAndRestore(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unusableReason = err
	return err
}

// ensureBuckets creates the registry's buckets if they do not exist. If a bucket has been missing
// for only a short time, the server may still be deleting it, so ensureBuckets returns an error
// instead of creating it: see stream.MissingStreams.
func (c *RegistryCopier) ensureBuckets(ctx context.Context) error {
	for _, bucket := range copiedBuckets() {
		name := registry.StreamOf(bucket)
		_, err := c.JetStream.Stream(ctx, name)
		exists := !errors.Is(err, jetstream.ErrStreamNotFound)
		if exists && err != nil {
			return err
		}
		if creatable := c.missingStreams.RecordCheck(name, exists); !exists && !creatable {
			return fmt.Errorf("the bucket %s is not there", bucket)
		}
	}
	return c.EnsureBuckets(ctx)
}

func (c *RegistryCopier) compareAndRestore(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.ensureBuckets(asking); err != nil {
		return err
	}
	identity, over, err := edit.ReadInstallation(asking, c.JetStream)
	if err != nil {
		return err
	}
	c.mu.Lock()
	id := c.installationID
	c.mu.Unlock()
	switch {
	case identity.ID != "" && identity.ID != id:
		return &InstallationMismatchError{
			fmt.Sprintf("the registry in NATS belongs to the installation %s, "+
				"and the database to %s: check --nats-url and --database-url",
				identity.ID, id),
		}
	case identity.Restoring:
		return errRestoring
	}
	outdated, clustered, err := c.outdatedBuckets(asking)
	switch {
	case err != nil:
		return err
	case len(outdated) > 0 && clustered && c.outdatedFor() < restoreDelay:
		return errors.New("it is older than the database's copy of it, or was lost")
	case len(outdated) > 0 || identity.ID == "":
		if err := c.restore(ctx, outdated); err != nil {
			return fmt.Errorf("it was lost, or is older than the database's copy of it, and is "+
				"not restored yet: %w", err)
		}
		return nil
	}
	c.outdatedSince = time.Time{}
	if c.identityWritten && !c.Follower.HasRolledBack() {
		return nil
	}
	// Write the identity again, with a new stamp: processes that have noticed an older registry
	// wait for a new stamp before they use the registry. ErrInstallationChanged means that another
	// executor has just written the identity, which is enough.
	if _, err = edit.WriteInstallation(asking, c.JetStream, identity, over); err != nil &&
		!errors.Is(err, edit.ErrInstallationChanged) {
		return err
	}
	c.identityWritten = true
	return nil
}

// outdatedFor returns how long a cluster has been reporting an older registry. The first call
// starts the clock and returns about 0.
func (c *RegistryCopier) outdatedFor() time.Duration {
	if c.outdatedSince.IsZero() {
		c.outdatedSince = time.Now()
	}
	return time.Since(c.outdatedSince)
}

// outdatedBuckets returns the buckets that are older than their copies in the database. outdated
// maps each of them to the newest revision that its copy contains. clustered is true if any bucket,
// older or not, has several replicas.
func (c *RegistryCopier) outdatedBuckets(
	ctx context.Context,
) (outdated map[string]uint64, clustered bool, err error) {
	outdated = map[string]uint64{}
	for _, bucket := range copiedBuckets() {
		c.mu.Lock()
		reached, restart := c.copiedRevisions[bucket], c.restartMirror[bucket]
		c.mu.Unlock()
		at, err := c.Store.RegistryPosition(ctx, bucket)
		if err != nil {
			return nil, false, err
		}
		if at.Revision < reached && restart != nil {
			// This process has already copied revisions that the database lacks, so the database
			// was replaced by an older one. Restart the mirror, which then continues where the
			// older database ends.
			restart()
		}
		s, err := c.JetStream.Stream(ctx, registry.StreamOf(bucket))
		if err != nil {
			return nil, false, err
		}
		info := s.CachedInfo()
		if !consistency.HasMajority(info.Cluster) {
			return nil, false, consistency.ErrNotCurrent
		}
		clustered = clustered || info.Config.Replicas > 1
		if info.State.LastSeq < at.Revision {
			outdated[bucket] = at.Revision
		}
	}
	return outdated, clustered, nil
}

// restore restores the registry from the database's copy. outdated holds the buckets that are
// behind their copies: see outdatedBuckets. beginRestore deletes the outdated content of these
// buckets, and restore then adds all records that the registry lacks. If the registry has no
// identity, restore finally makes it usable by writing one.
func (c *RegistryCopier) restore(ctx context.Context, outdated map[string]uint64) error {
	begun, err := c.beginRestore(ctx, outdated)
	if err != nil {
		return err
	}
	stored := 0
	for _, bucket := range copiedBuckets() {
		n, err := c.restoreMissing(ctx, bucket)
		if err != nil {
			return err
		}
		stored += n
	}
	if begun.identity.ID != "" { // only the secrets were lost
		c.Log.WithField("records",
			stored).Warn("the tokens were lost in NATS; they were restored from the database's " +
			"copy")
		return nil
	}
	next := registry.Installation{Restoring: begun.copiedIdentity.Restoring}
	if begun.hasCopy {
		next.RestoreID = uuid.NewString()
	}
	c.mu.Lock()
	next.ID = c.installationID
	c.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := edit.WriteInstallation(asking, c.JetStream, next,
		begun.identityRevision); err != nil {
		return err
	}
	c.outdatedSince, c.identityWritten = time.Time{}, true
	if !begun.hasCopy {
		c.Log.WithField("installation", next.ID).Info("the registry has its identity")
		return nil
	}
	c.Log.WithFields(logrus.Fields{"installation": next.ID, "records": stored}).
		Warn("the registry was lost in NATS, or older than it was; it was restored from the " +
			"database's copy")
	return nil
}

// restoreIdentities holds the results of beginRestore: the identities in the registry and in the
// database's copy of it.
type restoreIdentities struct {
	identity         registry.Installation // the registry's identity
	identityRevision uint64                // the revision of the registry's identity
	copiedIdentity   registry.Installation // the identity in the database's copy
	hasCopy          bool                  // whether the database has a copy
}

// beginRestore prepares a restore. outdated maps each bucket that is behind its copy in the
// database to the newest revision in that copy; beginRestore makes the bucket's new revisions begin
// above it. Running processes then stop using the earlier registry that they have in memory.
func (c *RegistryCopier) beginRestore(
	ctx context.Context, outdated map[string]uint64,
) (b restoreIdentities, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout) // a response may be lost
	defer cancel()
	for bucket, position := range outdated {
		if err := edit.PurgeAndAdvanceRevision(ctx, c.JetStream, bucket, position); err != nil {
			return b, err
		}
	}
	if b.identity, b.identityRevision, err = edit.ReadInstallation(ctx, c.JetStream); err != nil {
		return b, err
	}
	if b.copiedIdentity, b.hasCopy, err = c.copiedIdentity(ctx); err != nil {
		return b, err
	}
	if b.identity.ID == "" && b.hasCopy && b.identityRevision == 0 {
		// Write an empty identity, so that processes that have the earlier registry in memory stop
		// using it. This is unnecessary if the identity already has a revision: then its newest
		// revision is a deletion, or the empty identity of another executor that is also restoring
		// the registry. A second empty identity would make the last step of that executor fail.
		b.identityRevision, err = edit.WriteInstallation(ctx, c.JetStream, registry.Installation{},
			b.identityRevision)
	}
	return b, err
}

// copiedIdentity returns the identity in the database's copy of the registry. copied is false if
// there is no copy. The identity may be empty even if there is a copy: a restore first writes an
// empty identity to the registry, and a mirror may have copied it.
func (c *RegistryCopier) copiedIdentity(
	ctx context.Context,
) (i registry.Installation, copied bool, err error) {
	at, err := c.Store.RegistryPosition(ctx, registry.Bucket)
	if err != nil || at.Revision == 0 {
		return i, false, err
	}
	before := registry.InstallationKey[:len(registry.InstallationKey)-1]
	records, err := c.Store.RegistryRecords(ctx, registry.Bucket, before, 1)
	if err != nil || len(records) == 0 || records[0].Key != registry.InstallationKey ||
		records[0].Deleted != 0 {
		return i, true, err
	}
	read, err := registry.DecodeInstallation(records[0].Data)
	if err != nil {
		return i, true, err
	}
	return *read, true, nil
}

// restoreMissing copies the records that a bucket lacks from the database to the bucket, and
// returns how many it has copied.
func (c *RegistryCopier) restoreMissing(
	ctx context.Context, bucket string,
) (stored int, err error) {
	for after, more := "", true; more && err == nil; {
		var n int
		n, after, more, err = c.restorePage(ctx, bucket, after)
		stored += n
	}
	return stored, err
}

// restorePage reads one page of a bucket's copy in the database, and adds to the bucket the records
// that it lacks. The page begins with the first key that sorts after the parameter after. stored is
// the number of records added, last is the last key of the page, and more is false if the page is
// empty.
func (c *RegistryCopier) restorePage(
	ctx context.Context, bucket, after string,
) (stored int, last string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	records, err := c.Store.RegistryRecords(ctx, bucket, after, pageSize)
	if err != nil || len(records) == 0 {
		return 0, "", false, err
	}
	kept := make([]edit.CopiedRecord, len(records))
	for i, r := range records {
		kept[i] = edit.CopiedRecord{Key: r.Key, Data: r.Data, Deleted: r.Deleted != 0}
	}
	stored, err = edit.RestoreMissingRecords(ctx, c.JetStream, bucket, kept)
	return stored, records[len(records)-1].Key, true, err
}

// AwaitCopied waits until the database's copy of a bucket contains all revisions up to the given
// one. It implements edit.DatabaseCopy.
func (c *RegistryCopier) AwaitCopied(ctx context.Context, bucket string, revision uint64) error {
	for {
		c.mu.Lock()
		done, moved := c.copiedRevisions[bucket] >= revision, c.changed
		c.mu.Unlock()
		if done {
			return nil
		}
		poll := time.NewTimer(awaitCopiedPollInterval)
		select {
		case <-moved:
		case <-ctx.Done():
			poll.Stop()
			return ctx.Err()
		case <-poll.C:
			// Another executor may have copied the revision.
			if at, err := c.Store.RegistryPosition(ctx, bucket); err == nil &&
				at.Revision >= revision {
				return nil
			}
		}
		poll.Stop()
	}
}
