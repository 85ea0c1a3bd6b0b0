package databasecopy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream/keyvalue"
)

const (
	// maxBatchRevisions is the maximum number of revisions that one transaction writes to the copy.
	maxBatchRevisions = 500
	// maxBatchWait is how long a batch that is not full waits for another revision.
	maxBatchWait = 100 * time.Millisecond
	// mirrorRestartDelay is the delay before the mirror of a bucket is restarted after an error.
	mirrorRestartDelay = 500 * time.Millisecond
)

// mirrorBucket copies a bucket's revisions to the database. It retries after failures of NATS and
// of the database, and then continues where the database's copy ends, not where this process
// stopped, because the database may have been replaced by an older backup.
func (c *RegistryCopier) mirrorBucket(ctx context.Context, bucket string) {
	for logged := (time.Time{}); ctx.Err() == nil; {
		following, restart := context.WithCancel(ctx)
		c.mu.Lock()
		c.restartMirror[bucket] = restart
		c.mu.Unlock()
		err := c.copyBucket(following, bucket)
		begunAnew := following.Err() != nil
		restart()
		if ctx.Err() != nil {
			return
		}
		if !begunAnew && !errors.Is(err, errNotRestored) && time.Since(logged) > time.Minute {
			logged = time.Now()
			c.Log.WithError(err).WithField("bucket",
				bucket).Warn("could not copy the registry into the database; retrying")
		}
		retry.Sleep(ctx, mirrorRestartDelay)
	}
}

// errNotRestored means that a bucket must not be copied yet, because it is older than its copy in
// the database or does not have this installation's identity.
var errNotRestored = errors.New("the bucket is not restored yet")

// isOwnIdentity reports whether id is the identity of this installation.
func (c *RegistryCopier) isOwnIdentity(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return id == c.installationID
}

func (c *RegistryCopier) copyBucket(ctx context.Context, bucket string) error {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	at, err := c.Store.RegistryPosition(asking, bucket)
	if err != nil {
		return err
	}
	c.setCopiedRevision(bucket, at.Revision, true)
	// Do not copy the registry of another installation, or a registry that must first be restored
	// from the copy.
	identity, _, err := edit.ReadInstallation(asking, c.JetStream)
	if err != nil {
		return err
	}
	if !c.isOwnIdentity(identity.ID) {
		return errNotRestored
	}
	name := registry.StreamOf(bucket)
	s, err := c.JetStream.Stream(asking, name)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	switch {
	case !consistency.HasMajority(info.Cluster):
		return consistency.ErrNotCurrent
	case info.State.LastSeq < at.Revision:
		return errNotRestored
	}
	consumer, err := c.JetStream.CreateConsumer(asking, name, jetstream.ConsumerConfig{
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       at.Revision + 1,
	})
	if err != nil {
		return err
	}
	defer func() {
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		_ = c.JetStream.DeleteConsumer(deleting, name, consumer.CachedInfo().Name)
	}()
	messages, err := consumer.Messages(jetstream.PullMaxMessages(maxBatchRevisions),
		jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(10*time.Second))
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	return c.copyMessages(ctx, bucket, at.Revision, messages)
}

// copyMessages copies a bucket's messages to the database until an error occurs. after is the
// revision up to which the database already has all messages.
func (c *RegistryCopier) copyMessages(
	ctx context.Context, bucket string, after uint64, messages jetstream.MessagesContext,
) error {
	var delivered uint64
	for {
		var b batch
		for more := true; more; {
			msg, err := nextMessage(messages, len(b.records))
			if errors.Is(err, nats.ErrTimeout) {
				break
			}
			if err != nil {
				return err
			}
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			if delivered++; meta.Sequence.Consumer != delivered {
				return fmt.Errorf("a message of the bucket %s was lost on the way", bucket)
			}
			c.addToBatch(&b, bucket, msg, meta)
			more = meta.NumPending > 0 && len(b.records) < maxBatchRevisions
		}
		keeping, cancel := context.WithTimeout(ctx, requestTimeout)
		err := c.Store.SaveRegistryCopy(keeping, bucket, b.records, b.entries, after, b.position)
		cancel()
		if err != nil {
			return err
		}
		after = b.position.Revision
		c.setCopiedRevision(bucket, after, false)
	}
}

// nextMessage returns the next message. If the batch already has messages (received > 0), it
// returns nats.ErrTimeout after maxBatchWait, so that the batch is written even if no further
// message arrives. The server may announce a message that never arrives, because the auditor purges
// it before it is delivered.
func nextMessage(messages jetstream.MessagesContext, received int) (jetstream.Msg, error) {
	if received == 0 {
		// Wait without a time limit: a call with a short limit would not detect missed heartbeats.
		return messages.Next()
	}
	return messages.Next(jetstream.NextMaxWait(maxBatchWait))
}

// batch holds the registry records and audit entries that one transaction writes to the database.
type batch struct {
	records  []store.RegistryRecord
	entries  []store.AuditEntry
	position store.RegistryPosition
}

func (c *RegistryCopier) addToBatch(
	b *batch,
	bucket string,
	msg jetstream.Msg,
	meta *jetstream.MsgMetadata,
) {
	r := store.RegistryRecord{
		Bucket:   bucket,
		Key:      strings.TrimPrefix(msg.Subject(), registry.SubjectOf(bucket, "")),
		Revision: meta.Sequence.Stream,
		Data:     msg.Data(),
	}
	if keyvalue.IsDeletion(msg.Headers()) {
		r.Deleted, r.Data = 1, nil
	}
	b.records = append(b.records, r)
	b.position = store.RegistryPosition{Revision: meta.Sequence.Stream, At: meta.Timestamp}
	entry, exists, err := edit.DecodeAuditEntry(msg.Headers())
	if err == nil && exists { // the auditor reports unreadable entries
		entry.At = meta.Timestamp
		b.entries = append(b.entries, audit.ToStoreEntry(entry))
	}
}

// setCopiedRevision notes the revision up to which the database's copy of a bucket is complete, and
// wakes the pending calls to AwaitCopied. The revision can decrease only if restarted is true,
// which means that the mirror has just been restarted.
func (c *RegistryCopier) setCopiedRevision(bucket string, revision uint64, restarted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision > c.copiedRevisions[bucket] || restarted {
		c.copiedRevisions[bucket] = revision
	}
	close(c.changed)
	c.changed = make(chan struct{})
}
