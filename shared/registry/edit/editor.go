package edit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/retry"
)

// Editor changes the registry. It is safe for concurrent use, even by several processes: an update
// specifies the revision that it is based on, and is retried after a conflict. When a method
// returns without an error, its change is in force at every live process from the very next request
// on. After an error, the change may or may not have been stored. Methods can be called again after
// an error, except for RotateToken, which would add another token, and RevealCapturedSecrets, which
// returns a secret only once.
type Editor struct {
	js           jetstream.JetStream
	registry     jetstream.KeyValue
	secrets      jetstream.KeyValue
	index        *RegistryIndex
	follower     *consistency.Follower // applies changes to index
	lease        *consistency.Lease    // the lease of follower
	membership   *consistency.Membership
	keys         *seal.Keys // nil means that nothing is encrypted; see Config
	now          func() time.Time
	databaseCopy DatabaseCopy // optional; nil if the registry is not copied to a database
}

// Config holds the dependencies of an Editor.
type Config struct {
	JetStream     jetstream.JetStream
	RegistryIndex *RegistryIndex
	Follower      *consistency.Follower // must apply changes to RegistryIndex
	Lease         *consistency.Lease    // must be the lease of Follower
	Membership    *consistency.Membership
	// Keys encrypts secrets. nil means that tokens and sample payloads are stored unencrypted, and
	// that senders' secrets cannot be stored at all.
	Keys *seal.Keys
	// DatabaseCopy is the registry's copy in a database. The Editor confirms a change only once the
	// copy contains it. nil means that there is no copy.
	DatabaseCopy DatabaseCopy
}

// NewEditor returns an editor for the registry's buckets, which must exist.
func NewEditor(ctx context.Context, c Config) (*Editor, error) {
	var records, secrets jetstream.KeyValue
	for _, bucket := range []struct {
		name string
		kv   *jetstream.KeyValue
	}{{registry.Bucket, &records}, {registry.SecretsBucket, &secrets}} {
		if err := retry.Do(ctx, func(ctx context.Context) (err error) {
			*bucket.kv, err = c.JetStream.KeyValue(ctx, bucket.name)
			return err
		}); err != nil {
			return nil, fmt.Errorf("bucket %s: %w", bucket.name, err)
		}
	}
	now := func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
	return &Editor{
		js:           c.JetStream,
		registry:     records,
		secrets:      secrets,
		index:        c.RegistryIndex,
		follower:     c.Follower,
		lease:        c.Lease,
		membership:   c.Membership,
		keys:         c.Keys,
		now:          now,
		databaseCopy: c.DatabaseCopy,
	}, nil
}

// errRetry means that a concurrent change was stored first. The caller must then try its change
// again, based on the new record.
var errRetry = errors.New("the record has changed meanwhile")

// errUnchanged means that there is nothing to store, because the records in the index are
// already as requested. It is a maybeStaleError, because the index may be stale.
var errUnchanged = newMaybeStaleError("nothing changes")

// EnsureCurrent makes sure that the index holds every change that was confirmed before the
// call. It returns at once if the lease is valid, because the index is then current. Otherwise,
// EnsureCurrent catches up, and fails if NATS does not respond.
func (e *Editor) EnsureCurrent(ctx context.Context) error {
	if e.lease.IsValid(time.Now()) {
		return nil
	}
	return e.follower.CatchUp(ctx)
}

// EnsureCurrentUnlessRestoring is like EnsureCurrent, but does not fail while a backup is being
// restored into the registry. The registry is then incomplete.
func (e *Editor) EnsureCurrentUnlessRestoring(ctx context.Context) error {
	if err := e.EnsureCurrent(ctx); !errors.Is(err, consistency.ErrRestoring) {
		return err
	}
	return nil
}

// storeDeadlineKey is the context key of the deadline that WithStoreDeadline sets.
type storeDeadlineKey struct{}

// WithStoreDeadline returns a context in which a change fails unless it is stored before the given
// time. The change may come into force after that time.
func WithStoreDeadline(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, storeDeadlineKey{}, at)
}

// AwaitInForce waits until every process that may serve requests has applied everything that was
// stored up to a revision.
func (e *Editor) AwaitInForce(ctx context.Context, revision uint64) error {
	return e.awaitConfirmed(ctx, revision, newestStoredRevisions{})
}

// storeAndConfirm stores a change with storeWithRetry, which calls try. Then it waits until the
// change is in force at every process and the DatabaseCopy contains it.
func (e *Editor) storeAndConfirm(
	ctx context.Context, try func(context.Context) (revision uint64, err error),
) error {
	stored := newestStoredRevisions{}
	ctx = context.WithValue(ctx, newestStoredRevisionsKey{}, stored)
	revision, err := e.storeWithRetry(ctx, try)
	if err != nil {
		return err
	}
	recordStoredRevision(ctx, registry.Bucket, revision)
	return e.awaitConfirmed(ctx, revision, stored)
}

// storeWithRetry calls try until try has stored the change or refused it, and returns the revision
// from the last call. If try returns errRetry, storeWithRetry catches up and calls try again. It
// does the same after a refusal that depends on the index, unless it has caught up before: the
// refusal may be wrong, because the index of a process that was frozen or disconnected from
// NATS may be stale.
//
// Together with errUnchanged, try must return the revision that is already stored, because callers
// wait until the returned revision is in force. The context that try receives ends at the deadline
// of WithStoreDeadline.
func (e *Editor) storeWithRetry(
	ctx context.Context, try func(context.Context) (revision uint64, err error),
) (uint64, error) {
	if by, ok := ctx.Value(storeDeadlineKey{}).(time.Time); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	if err := e.EnsureCurrent(ctx); err != nil {
		return 0, err // while the registry is being restored, nothing else is stored in it
	}
	for attempt, caughtUp := 0, false; ; attempt++ {
		before := e.follower.Revision()
		revision, err := try(ctx)
		switch {
		case err == nil && revision <= before:
			return 0,
				fmt.Errorf("%w: the stored record has revision %d, but revision %d existed before",
					consistency.ErrNotCurrent, revision, before)
		case err == nil, caughtUp && errors.Is(err, errUnchanged):
			return revision, nil
		case errors.Is(err, errRetry):
		case caughtUp || !mayBeStale(err):
			return 0, err
		}
		if err := retry.SleepBackoff(ctx, attempt); err != nil {
			return 0, err
		}
		if err := e.follower.CatchUp(ctx); err != nil {
			return 0, err
		}
		caughtUp = true
	}
}

// awaitConfirmed waits until a revision is applied at this process and in force at every process
// that may serve requests, and until the DatabaseCopy contains the revisions in stored.
func (e *Editor) awaitConfirmed(
	ctx context.Context,
	revision uint64,
	stored newestStoredRevisions,
) error {
	if err := e.follower.AwaitApplied(ctx, revision); err != nil {
		return err
	}
	return errors.Join(e.membership.AwaitInForce(ctx, revision), e.awaitDatabaseCopy(ctx, stored))
}
