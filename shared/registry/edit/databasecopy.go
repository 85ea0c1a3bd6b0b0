package edit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/retry"
)

// DatabaseCopy is the database's copy of the registry's two buckets. An Editor confirms a change
// only once the copy contains it.
type DatabaseCopy interface {
	// AwaitCopied waits until the copy contains all revisions of a bucket up to the given one, or
	// until ctx is done.
	AwaitCopied(ctx context.Context, bucket string, revision uint64) error
}

// CopiedRecord is one record from the database's copy of a bucket.
type CopiedRecord struct {
	Key     string
	Data    []byte // the data as stored in NATS; empty if the record was deleted
	Deleted bool
}

// ReadInstallation returns the registry's identity and the identity's revision, as stored by the
// leader of the bucket's stream. If there is no identity, i is zero, and rev is the revision that
// deleted the identity, or 0 if there never was one.
func ReadInstallation(
	ctx context.Context, js jetstream.JetStream,
) (i registry.Installation, rev uint64, err error) {
	last, err := newestRevision(ctx, js, registry.Bucket, registry.InstallationKey)
	if err != nil || last == nil {
		return i, 0, err
	}
	if last.deleted {
		return i, last.revision, nil
	}
	read, err := registry.DecodeInstallation(last.data)
	if err != nil {
		return i, 0, err
	}
	return *read, last.revision, nil
}

// ErrInstallationChanged means that another process has written the registry's identity since the
// caller read it.
var ErrInstallationChanged = errors.New(
	"another process has written the registry's identity meanwhile",
)

// WriteInstallation stores the registry's identity, with a new WriteID. lastRev is the revision
// that ReadInstallation returned. If the identity now has another revision, WriteInstallation fails
// with ErrInstallationChanged.
func WriteInstallation(
	ctx context.Context, js jetstream.JetStream, i registry.Installation, lastRev uint64,
) (rev uint64, err error) {
	i.WriteID = uuid.NewString()
	data, err := i.Encode()
	if err != nil {
		return 0, fmt.Errorf("encode the installation's identity: %w", err)
	}
	msg := &nats.Msg{
		Subject: registry.SubjectOf(registry.Bucket, registry.InstallationKey), Data: data,
	}
	ack, err := js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(lastRev))
	if err = classifyWriteError(err, registry.InstallationKey); errors.Is(err, errRetry) {
		return 0, ErrInstallationChanged
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// PurgeAndAdvanceRevision makes all later revisions of a bucket higher than the given one, and
// deletes all revisions up to and including the given one. A bucket that was lost and recreated
// then does not reuse its earlier revisions. A repeated call deletes nothing that was stored after
// the first call.
func PurgeAndAdvanceRevision(
	ctx context.Context, js jetstream.JetStream, bucket string, above uint64,
) error {
	s, err := js.Stream(ctx, registry.StreamOf(bucket))
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(above+1))
	}
	if err != nil {
		return fmt.Errorf("let the revisions of the bucket %s begin after %d: %w", bucket, above,
			err)
	}
	return nil
}

const (
	// maxUnconfirmedRecords is the maximum number of records for which RestoreMissingRecords awaits
	// a confirmation at the same time.
	maxUnconfirmedRecords = 500
	// maxStallWait is the maximum time that RestoreMissingRecords waits to send a record because
	// too many earlier records are unconfirmed.
	maxStallWait = 10 * time.Second
	// inFlightRetryDelay is the delay before a record is published again because the cluster was
	// still storing another message of the same record.
	inFlightRetryDelay = 50 * time.Millisecond
)

// RestoreMissingRecords stores those of the records that have no revision in the bucket yet, and
// returns how many it has stored. It leaves existing records unchanged, because another process has
// stored them from the same copy. It skips deleted records and the registry's identity. If the
// confirmation of a record is lost, RestoreMissingRecords publishes the record again after the
// timeout that js has for asynchronous publishing. If js has no such timeout, RestoreMissingRecords
// waits for the confirmation until ctx is done.
func RestoreMissingRecords(
	ctx context.Context, js jetstream.JetStream, bucket string, records []CopiedRecord,
) (stored int, err error) {
	var unconfirmed []jetstream.PubAckFuture
	confirm := func() error {
		for _, future := range unconfirmed {
			isNew, err := awaitRestored(ctx, js, future)
			if err != nil {
				return err
			}
			if isNew {
				stored++
			}
		}
		unconfirmed = unconfirmed[:0]
		return nil
	}
	for _, r := range records {
		if r.Deleted || r.Key == registry.InstallationKey && bucket == registry.Bucket {
			continue
		}
		future, err := publishIfMissing(js,
			&nats.Msg{Subject: registry.SubjectOf(bucket, r.Key), Data: r.Data})
		if err != nil {
			return stored, err
		}
		if unconfirmed = append(unconfirmed, future); len(unconfirmed) == maxUnconfirmedRecords {
			if err := confirm(); err != nil {
				return stored, err
			}
		}
	}
	return stored, confirm()
}

// publishIfMissing publishes a record, and makes NATS refuse it if the record already has a
// revision. It does not wait for the confirmation.
func publishIfMissing(js jetstream.JetStream, msg *nats.Msg) (jetstream.PubAckFuture, error) {
	future, err := js.PublishMsgAsync(msg, jetstream.WithExpectLastSequencePerSubject(0),
		jetstream.WithStallWait(maxStallWait))
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", msg.Subject, err)
	}
	return future, nil
}

// awaitRestored waits until the record that was published with the given future is in the bucket,
// and publishes it again if it may not have been stored. isNew is false if the record existed
// already.
func awaitRestored(
	ctx context.Context, js jetstream.JetStream, future jetstream.PubAckFuture,
) (isNew bool, err error) {
	for {
		select {
		case <-future.Ok():
			return true, nil
		case err = <-future.Err():
		case <-ctx.Done():
			return false, ctx.Err()
		}
		var api *jetstream.APIError
		switch {
		case errors.Is(err, jetstream.ErrAsyncPublishTimeout):
			// It is unknown whether the record was stored, so publish it again below. If it was
			// stored, NATS refuses the second message.
		case errors.As(err, &api) &&
			api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			// NATS has refused the record because the cluster is still storing another message for
			// the same key. That message may still fail, so try again.
			retry.Sleep(ctx, inFlightRetryDelay)
		default:
			if err = classifyWriteError(err, "a record"); errors.Is(err, errRetry) {
				err = nil
			}
			return false, err
		}
		if future, err = publishIfMissing(js, future.Msg()); err != nil {
			return false, err
		}
	}
}

// newestStoredRevisions holds, for each bucket, the newest revision that a change has stored.
type newestStoredRevisions map[string]uint64

// newestStoredRevisionsKey is the context key of the newestStoredRevisions of a change.
type newestStoredRevisionsKey struct{}

// recordStoredRevision records a revision that a change has stored, so that the change is confirmed
// only once the DatabaseCopy contains the revision. It does nothing if ctx does not belong to a
// change.
func recordStoredRevision(ctx context.Context, bucket string, revision uint64) {
	if m, ok := ctx.Value(newestStoredRevisionsKey{}).(newestStoredRevisions); ok {
		m[bucket] = max(m[bucket], revision)
	}
}

// awaitDatabaseCopy waits until the DatabaseCopy, if there is one, contains the revision that m
// holds for each bucket. If ctx is done first, it returns an *consistency.UnconfirmedError.
func (e *Editor) awaitDatabaseCopy(ctx context.Context, m newestStoredRevisions) error {
	if e.databaseCopy == nil {
		return nil
	}
	for bucket, revision := range m {
		if err := e.databaseCopy.AwaitCopied(ctx, bucket, revision); err != nil {
			return &consistency.UnconfirmedError{
				Revision:         revision,
				LaggingProcesses: []string{"the registry's copy in the database"},
			}
		}
	}
	return nil
}
