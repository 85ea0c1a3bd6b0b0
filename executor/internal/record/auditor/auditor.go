// Package auditor copies the entries of the audit log from the registry's history into the
// database.
//
// Each change of the registry is one message in a bucket's stream, with its audit entry in a
// header: see shared/registry/edit. NATS therefore always stores a change and its audit entry
// together. The auditor then writes each entry to the database exactly once:
//
//   - At least once: the consumer, which all executors share, begins with the oldest message, and a
//     message is acknowledged only after the database has committed its entry. The consumer
//     delivers one message at a time, in order, so once a message is acknowledged, all messages
//     before it are acknowledged, too. Only then are the earlier revisions of the message's record
//     deleted. While the database is unavailable, the bucket keeps them, however often a record
//     changes.
//   - At most once: every entry has an ID, created with the change, and the database keeps one
//     entry per ID.
package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

const (
	// ackWait is how long a message may stay unacknowledged before the server delivers it to
	// another executor.
	ackWait = 5 * time.Second
	// heartbeatInterval is how often NATS sends heartbeats while the auditor waits for a message.
	heartbeatInterval = 5 * time.Second
	// retryDelay is how long Run waits after an error before it continues, and how long NATS waits
	// before it redelivers a message that could not be copied.
	retryDelay = time.Second
	// stepTimeout is the maximum duration of copying one entry, or of deleting the revisions before
	// it.
	stepTimeout = 10 * time.Second
	// maxLeaderResponseAge is how long the leader's response about a record's newest revision can
	// be relied on. An older response may be outdated, for example because the process was frozen,
	// so the auditor then deletes nothing.
	maxLeaderResponseAge = 3 * time.Second
)

// Auditor copies audit entries from the registry's streams into the database. Several Auditors, in
// several executors, share the work.
type Auditor struct {
	js       jetstream.JetStream
	auditLog store.AuditLog
	log      logrus.FieldLogger

	heartbeat time.Duration // interval of heartbeats while Run waits for a message
}

// New returns an Auditor that copies entries from the registry's streams into an audit log.
func New(js jetstream.JetStream, auditLog store.AuditLog, log logrus.FieldLogger) *Auditor {
	return &Auditor{js: js, auditLog: auditLog, log: log, heartbeat: heartbeatInterval}
}

// Run copies the entries of the registry stream with the given name until the context is done. It
// survives failures of NATS and of the database.
func (a *Auditor) Run(ctx context.Context, name string) {
	for logged := (time.Time{}); ctx.Err() == nil; {
		err := a.consume(ctx, name)
		if ctx.Err() != nil {
			return
		}
		if time.Since(logged) > time.Minute {
			logged = time.Now()
			a.log.WithError(err).WithField("stream",
				name).Warn("the audit cannot be taken from the registry's history; it is tried " +
				"again")
		}
		retry.Sleep(ctx, retryDelay)
	}
}

// consumerConfig returns the configuration of the consumer. The consumer delivers only one message
// at a time: the package comment explains why.
func consumerConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       registry.AuditConsumer,
		Description:   "hookstart: the executors take the audit from the registry's history",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: 1,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}
}

func (a *Auditor) consume(ctx context.Context, name string) error {
	consumer, err := a.js.CreateOrUpdateConsumer(ctx, name, consumerConfig())
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", registry.AuditConsumer, name, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1),
		jetstream.PullHeartbeat(a.heartbeat))
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", registry.AuditConsumer, name, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := stream.NextWhileConsumerExists(ctx, consumer, messages)
		if err != nil {
			return err
		}
		if err := a.copyEntry(context.WithoutCancel(ctx), msg); err != nil {
			_ = msg.NakWithDelay(retryDelay)
			return err
		}
		a.deleteOlderRevisions(ctx, name, msg)
	}
}

// copyEntry writes a message's audit entry to the database and acknowledges the message.
func (a *Auditor) copyEntry(ctx context.Context, msg jetstream.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	entry, exists, err := edit.DecodeAuditEntry(msg.Headers())
	switch {
	case err != nil: // retrying would not make it readable
		a.log.WithError(err).WithField("subject",
			msg.Subject()).Error("a change has no entry in the audit")
	case exists:
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		entry.At = meta.Timestamp
		stored := []store.AuditEntry{audit.ToStoreEntry(entry)}
		if err := a.auditLog.AddAudit(ctx, stored); err != nil {
			return err
		}
	}
	return msg.DoubleAck(ctx)
}

// RecopyAll makes the auditors copy all entries in the registry's history again, because the
// database may have lost some of them. It resets their consumers. Each entry is still stored only
// once.
func (a *Auditor) RecopyAll(ctx context.Context) {
	for _, name := range registry.Streams() {
		_, err := a.js.ResetConsumerToSequence(ctx, name, registry.AuditConsumer, 1)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			a.log.WithError(err).WithField("stream",
				name).Warn("the audit is not taken again from the registry's history; entries " +
				"that the database has lost stay missing")
		}
	}
}

// deleteOlderRevisions deletes the earlier revisions of a registry record if msg is the newest
// revision. If msg is not the newest, or if the deletion fails, they are deleted after the record's
// next change.
//
// deleteOlderRevisions never deletes the newest revision, even if that revision has a lower
// sequence than msg. This can happen if this process was frozen after it had received msg, and the
// bucket was lost and restored in the meantime.
//
// The deletion first queries the newest revision, and then purges the record's subject with "keep
// 1". NATS can neither make a purge conditional nor combine "keep 1" with a sequence. So a revision
// that is stored and replaced between the query and the purge is deleted before the Auditor has
// read it, and its audit entry is lost. Purging everything before msg's sequence would avoid that.
// But if the servers received such a purge late, after a restore, it could delete the record
// itself.
func (a *Auditor) deleteOlderRevisions(ctx context.Context, name string, msg jetstream.Msg) {
	if before := msg.Headers().Get(jetstream.ExpectedLastSubjSeqHeader); before == "" ||
		before == "0" {
		return // the record has no earlier revision
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	meta, err := msg.Metadata()
	if err != nil {
		return
	}
	s, err := a.js.Stream(ctx, name)
	if err == nil {
		err = purgeOlderIfNewest(ctx, a.js, s, msg.Subject(), meta.Sequence.Stream)
	}
	if err != nil {
		a.log.WithError(err).WithField("stream",
			name).Debug("earlier revisions of a record were not deleted")
	}
}

// purgeOlderIfNewest deletes the earlier messages of a subject if the subject's newest message has
// the sequence seq. Otherwise, or if the leader's response about the newest message is older than
// maxLeaderResponseAge, it does nothing.
func purgeOlderIfNewest(
	ctx context.Context, js jetstream.JetStream, s jetstream.Stream, subject string, seq uint64,
) error {
	asked := time.Now()
	newest, err := consistency.GetFromLeader(ctx, js, s.CachedInfo().Config.Name,
		leader.Query{LastBySubject: subject})
	if err != nil || newest.Sequence != seq || time.Since(asked) > maxLeaderResponseAge {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeKeep(1))
}

// AwaitAllCopied waits until the database has the audit entries of all registry changes made before
// the call, so that operators find them in the audit log, or until the context is done.
func AwaitAllCopied(ctx context.Context, js jetstream.JetStream) {
	for _, name := range registry.Streams() {
		stream.AwaitConsumed(ctx, js, name, registry.AuditConsumer)
	}
}
