package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
	"github.com/hookstart/hookstart/shared/stream/leader"
)

// API is the part of the operators' API that backups use.
type API interface {
	// BackUpRecords requests a backup of the database and calls each(line) for every line of the
	// backup.
	BackUpRecords(ctx context.Context, each func(line []byte) error) error
	// BackUpAudit requests a backup of the audit entries of the changes that were made in one
	// bucket from since to until, both inclusive. It calls each(line) for every line of the backup.
	BackUpAudit(
		ctx context.Context, bucket string, since, until time.Time, each func(line []byte) error,
	) error
	// RestoreRecords writes one line of a backup to the database. first means that this is the
	// first line of the restore: RestoreRecords then returns an error unless the database is empty.
	RestoreRecords(ctx context.Context, line []byte, first bool) error
	// AwaitAccountApplied returns once every executor and ingress has applied the account's record.
	AwaitAccountApplied(ctx context.Context, accountID string) error
	// Members returns the running executors and ingresses.
	Members(ctx context.Context) ([]Member, error)
}

// Member is a running executor or ingress.
type Member struct {
	Name   string   // display name
	KeyIDs []string // IDs of the secrets keys that this process has
}

// Installation is an installation that is backed up or restored.
type Installation struct {
	JetStream jetstream.JetStream // a connection with administrator permissions
	API       API
	Version   string    // this program's version
	Progress  io.Writer // receives a line about each finished part
}

func (i Installation) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(i.Progress, format+"\n", args...)
}

// Take writes a backup to the file at path. An existing file is replaced only once the new one is
// complete. If withMessages is false, the backup does not contain the messages of the streams.
func Take(
	ctx context.Context, i Installation, path string, withMessages bool,
) (m Manifest, err error) {
	w, err := createWriter(path)
	if err != nil {
		return m, err
	}
	defer w.discard()
	m = Manifest{
		FormatVersion: formatVersionSharedStreams,
		Version:       i.Version,
		TakenAt:       time.Now().UTC(),
		WithMessages:  withMessages,
	}
	if err := i.writeEntries(ctx, w, &m); err != nil {
		return m, err
	}
	if err := w.writeManifestAndTrailer(m); err != nil {
		return m, err
	}
	// Check the file now. Otherwise, a problem would be discovered only when the backup is needed.
	if _, err := Check(w.file.Name()); err != nil {
		return m, fmt.Errorf("what was written could not be restored: %w", err)
	}
	return m, w.commit()
}

// writeEntries writes everything but the manifest, in the order that the package documentation
// explains.
func (i Installation) writeEntries(ctx context.Context, w *writer, m *Manifest) error {
	phases, err := i.queuePhases(ctx)
	if err != nil {
		return err
	}
	names, err := i.streamNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		floor, err := i.ackFloor(ctx, name, stream.RecorderConsumerName)
		if err != nil {
			return err
		}
		m.Streams = append(m.Streams, SavedStream{Name: name, RecordedUpTo: floor})
		if _, own := stream.QueueOfOwnStream(name); own {
			m.FormatVersion = formatVersionOwnStreams
		}
	}
	audited, err := i.auditCopiedUntil(ctx)
	if err != nil {
		return err
	}
	if m.ExecutionCount, err = i.writeRecords(ctx, w); err != nil {
		return err
	}
	i.logf("records: %d executions", m.ExecutionCount)
	for n := range m.Streams {
		if m.Streams[n].GroupPositions, err = i.runnerGroupPositions(ctx,
			m.Streams[n].Name); err != nil {
			return err
		}
	}
	for n := range m.Streams {
		if err := i.writeStream(ctx, w, &m.Streams[n], m.WithMessages); err != nil {
			return err
		}
		i.logf("%s: %d messages", m.Streams[n].Name, m.Streams[n].MessageCount)
	}
	keys := map[string]bool{}
	var until []newestBucketRecord
	for _, name := range registry.Streams() {
		bucket := SavedBucket{Name: registry.BucketOf(name)}
		var last newestBucketRecord
		if bucket.RecordCount, last, err = i.writeBucket(ctx, w, bucket.Name, keys); err != nil {
			return err
		}
		m.Buckets, until = append(m.Buckets, bucket), append(until, last)
		i.logf("bucket %s: %d records", bucket.Name, bucket.RecordCount)
	}
	m.KeyIDs = slices.Sorted(maps.Keys(keys))
	if err := i.checkNoQueueMoved(ctx, phases); err != nil {
		return err
	}
	return i.writeAudit(ctx, w, m, audited, until)
}

// queuePhases returns the phases of the queues' own streams, keyed by the key of the queue's
// record.
func (i Installation) queuePhases(
	ctx context.Context,
) (phases map[string]stream.QueueStreamPhase, err error) {
	s, err := i.streamReadingFromLeader(ctx, registry.Stream)
	if err != nil {
		return nil, err
	}
	bucket, err := i.JetStream.KeyValue(ctx, registry.Bucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", registry.Bucket, err)
	}
	keys, err := bucket.ListKeysFiltered(ctx, registry.QueuePrefix+">")
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", registry.Bucket, err)
	}
	defer func() { _ = keys.Stop() }()
	phases = map[string]stream.QueueStreamPhase{}
	for key := range keys.Keys() {
		msg, err := s.GetLastMsgForSubject(ctx, registry.SubjectOf(registry.Bucket, key))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("bucket %s: %w", registry.Bucket, err)
		}
		settings, err := stream.DecodeQueueSettings(msg.Data)
		if err != nil {
			return nil, err
		}
		phases[key] = settings.Stream.Phase
	}
	return phases, nil
}

// checkNoQueueMoved returns an error if a queue has another phase than before the streams were
// read. The file may then lack the stream that the queue's record names, and the delivery IDs that
// were copied to it, so repeats of earlier deliveries would start again after a restore.
func (i Installation) checkNoQueueMoved(
	ctx context.Context, before map[string]stream.QueueStreamPhase,
) error {
	now, err := i.queuePhases(ctx)
	if err != nil {
		return err
	}
	for key := range now {
		if now[key] != before[key] {
			return fmt.Errorf("the queue %s was moved between the shared stream and one of its "+
				"own while the backup was taken: repeat it after the move",
				strings.TrimPrefix(key, registry.QueuePrefix))
		}
	}
	return nil
}

// streamNames returns the names of the streams in the order in which they are read: the streams of
// start messages, then the streams of runners' reports, then REPORTS.
func (i Installation) streamNames(ctx context.Context) ([]string, error) {
	names, reports := []string{stream.ExecutionsName}, []string{stream.ProgressName}
	owned, err := stream.QueuesWithOwnStreams(ctx, i.JetStream)
	if err != nil {
		return nil, err
	}
	for _, own := range owned {
		names, reports = append(names, stream.OwnStreamName(own.Queue)),
			append(reports, stream.OwnProgressStreamName(own.Queue))
	}
	return append(append(names, reports...), stream.ReportsName), nil
}

// maxClockSkew is the largest difference that is assumed between the clocks of two NATS servers.
const maxClockSkew = time.Minute

// auditCopiedUntil returns a time before which the audit in the database is complete: the executors
// have copied the audit entries of all changes made before that time.
func (i Installation) auditCopiedUntil(ctx context.Context) (at time.Time, err error) {
	for _, name := range registry.Streams() {
		s, err := i.streamReadingFromLeader(ctx, name)
		if err != nil {
			return at, err
		}
		first := s.CachedInfo().TimeStamp
		floor, err := i.ackFloor(ctx, name, registry.AuditConsumer)
		if err != nil {
			return at, err
		}
		msg, err := s.GetMsg(ctx, floor+1, nextMsgOption)
		switch {
		case err == nil:
			first = msg.Time
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return at, fmt.Errorf("stream %s: %w", name, err)
		}
		if at.IsZero() || first.Before(at) {
			at = first
		}
	}
	return at.Add(-maxClockSkew), nil
}

// streamReadingFromLeader returns a stream whose GetMsg reads from the stream's leader, because
// other replicas may lag behind.
func (i Installation) streamReadingFromLeader(
	ctx context.Context, name string,
) (jetstream.Stream, error) {
	s, err := i.JetStream.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	s.CachedInfo().Config.AllowDirect = false // changes only the handle, not the stream
	return s, nil
}

// nextMsgOption makes GetMsg return the first message at or after the given sequence, whatever
// its subject.
var nextMsgOption = jetstream.WithGetMsgSubject(">")

// newestBucketRecord identifies the newest record of a bucket in the backup file.
type newestBucketRecord struct {
	sequence uint64
	storedAt time.Time
}

// writeAudit writes the audit entries of the changes made since the given time. until holds, for
// each bucket, the newest record in the backup file; writeAudit omits the audit entries of later
// changes.
//
// An executor deletes an earlier revision of a record only once the revision's audit entry is in
// the database, so every entry is in the bucket's history or in the database. The history is read
// first; otherwise, an entry that moves to the database between the two reads would be missed.
func (i Installation) writeAudit(
	ctx context.Context, w *writer, m *Manifest, since time.Time, until []newestBucketRecord,
) error {
	to, err := w.createEntry(auditEntryName)
	if err != nil {
		return err
	}
	for n, name := range registry.Streams() {
		if err := i.writeAuditHistory(ctx, to, m, name, until[n].sequence); err != nil {
			return err
		}
		if err := i.API.BackUpAudit(ctx, m.Buckets[n].Name, since, until[n].storedAt,
			func(line []byte) error {
				var part struct{ Audit []struct{} }
				if err := json.Unmarshal(line, &part); err != nil {
					return fmt.Errorf("the audit: %w", err)
				}
				m.AuditEntryCount += len(part.Audit)
				return writeLine(to, line)
			}); err != nil {
			return err
		}
	}
	return nil
}

// maxAuditEntriesPerLine is the maximum number of audit entries in one line of audit.jsonl.
const maxAuditEntriesPerLine = 500

// auditEntry is one audit entry in audit.jsonl. API.RestoreRecords expects these field names.
type auditEntry struct {
	ID, ActorKind, ActorID, ActorName, Action, AccountID, WorkflowID, NodeID, Changes string
	At                                                                                time.Time
}

// writeAuditHistory writes the audit entries in the history of a bucket's stream, up to and
// including the entry at the sequence last. It omits entries that the executors have already copied
// to the database.
func (i Installation) writeAuditHistory(
	ctx context.Context, to io.Writer, m *Manifest, name string, last uint64,
) error {
	s, err := i.streamReadingFromLeader(ctx, name)
	if err != nil {
		return err
	}
	floor, err := i.ackFloor(ctx, name, registry.AuditConsumer)
	if err != nil {
		return err
	}
	var entries []auditEntry
	flush := func() error {
		if len(entries) == 0 {
			return nil
		}
		line, err := json.Marshal(struct{ Audit []auditEntry }{entries})
		if err != nil {
			return fmt.Errorf("encode entries of the audit: %w", err)
		}
		m.AuditEntryCount += len(entries)
		entries = entries[:0]
		return writeLine(to, line)
	}
	for next := floor + 1; next <= last; {
		msg, err := s.GetMsg(ctx, next, nextMsgOption)
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Sequence > last {
			break
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		next = msg.Sequence + 1
		e, exists, err := edit.DecodeAuditEntry(msg.Header)
		if err != nil || !exists { // like the executors, skip an entry that cannot be decoded
			continue
		}
		changes := ""
		if len(e.Changes) > 0 {
			text, err := json.Marshal(e.Changes)
			if err != nil {
				return fmt.Errorf("encode an entry of the audit: %w", err)
			}
			changes = string(text)
		}
		entries = append(entries, auditEntry{
			ID:         e.ID,
			At:         msg.Time,
			ActorKind:  e.Actor.Kind,
			ActorID:    e.Actor.ID,
			ActorName:  e.Actor.Name,
			Action:     e.Action,
			AccountID:  e.AccountID,
			WorkflowID: e.WorkflowID,
			NodeID:     e.NodeID,
			Changes:    changes,
		})
		if len(entries) == maxAuditEntriesPerLine {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// ackFloor returns the ack floor of a stream's durable consumer: the sequence up to which all
// messages have been acknowledged. It returns 0 if the consumer does not exist.
func (i Installation) ackFloor(ctx context.Context, name, durable string) (uint64, error) {
	consumer, err := i.JetStream.Consumer(ctx, name, durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, nil // there is no consumer, so nothing has been acknowledged
	}
	if err != nil {
		return 0, fmt.Errorf("how far the executors have read %s: %w", name, err)
	}
	return consumer.CachedInfo().AckFloor.Stream, nil
}

func (i Installation) writeRecords(ctx context.Context, w *writer) (executions int, err error) {
	to, err := w.createEntry(recordsEntryName)
	if err != nil {
		return 0, err
	}
	err = i.API.BackUpRecords(ctx, func(line []byte) error {
		var part struct{ Records []struct{} }
		if err := json.Unmarshal(line, &part); err != nil {
			return fmt.Errorf("the records: %w", err)
		}
		executions += len(part.Records)
		return writeLine(to, line)
	})
	return executions, err
}

func writeLine(to io.Writer, line []byte) error {
	_, err := to.Write(append(bytes.TrimRight(line, "\n"), '\n'))
	return err
}

// runnerGroupPositions returns the position of each durable consumer of a stream of start messages,
// except the recorder's. Usually these are the consumers of groups of runners. For any other
// stream, it returns nil.
func (i Installation) runnerGroupPositions(ctx context.Context,
	name string,
) (runnerGroupPositions []RunnerGroupPosition, err error) {
	if _, own := stream.QueueOfOwnStream(name); !own && name != stream.ExecutionsName {
		return nil, nil
	}
	s, err := i.JetStream.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		if info.Config.Durable != "" && info.Name != stream.RecorderConsumerName {
			runnerGroupPositions = append(runnerGroupPositions,
				RunnerGroupPosition{Config: info.Config, AckFloor: info.AckFloor.Stream})
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("the consumers of %s: %w", name, err)
	}
	return runnerGroupPositions, nil
}

// writeStream writes the messages that a stream holds at the time of the call, and sets the fields
// of saved that describe them. From REPORTS it writes only messages that have not been applied. If
// withMessages is false, it writes no messages.
func (i Installation) writeStream(
	ctx context.Context, w *writer, saved *SavedStream, withMessages bool,
) error {
	s, err := i.JetStream.Stream(ctx, saved.Name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", saved.Name, err)
	}
	to, err := w.createEntry(streamEntryName(saved.Name))
	if err != nil {
		return err
	}
	saved.FirstSequence, saved.LastSequence = max(s.CachedInfo().State.FirstSeq, 1),
		s.CachedInfo().State.LastSeq
	saved.Subjects, saved.DedupWindow = s.CachedInfo().Config.Subjects,
		s.CachedInfo().Config.Duplicates
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if saved.Name == stream.ReportsName {
		saved.FirstSequence = max(saved.FirstSequence, saved.RecordedUpTo+1)
		config = jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:   saved.FirstSequence,
		}
	}
	if !withMessages || saved.FirstSequence > saved.LastSequence {
		return nil
	}
	each := func(m message, pending uint64) (done bool, err error) {
		if m.Sequence > saved.LastSequence {
			return true, nil
		}
		if done = m.Sequence == saved.LastSequence; !done && pending == 0 {
			if done, err = i.isLastMessageUpTo(ctx, saved.Name, m.Sequence,
				saved.LastSequence); err != nil {
				return true, err
			}
		}
		if !matchesAnyWildcard(saved.Subjects, m.Subject) {
			// This message was stored by an earlier version, which kept all messages in one stream.
			// A restore could not publish it to this stream, which no longer has its subject, so
			// leave it out. If it has been recorded, nothing is lost.
			if m.Sequence > saved.RecordedUpTo {
				return true,
					fmt.Errorf("message %d has the subject %s, which is another stream's, and "+
						"was not recorded when the backup began: try again once /readyz of an "+
						"executor is 200",
						m.Sequence, m.Subject)
			}
			saved.ForeignMessageCount++
			return done, nil
		}
		saved.MessageCount++
		return done, writeMessageLine(to, m)
	}
	return i.forEachMessage(ctx, saved.Name, config, each)
}

// writeBucket writes the newest record under each key of the bucket. It returns the number of
// records that it has written, and the newest record. For encrypted records, it also adds the IDs
// of the secrets keys that encrypt them to the map keys. If a record changes while writeBucket
// reads, the file may contain several versions of it, and a restore applies the last one.
//
// For each record that the bucket contains when the call begins, writeBucket writes this record or
// a newer version of it. It returns only after that. It does not rely on the server's count of
// pending messages: that count is too low while executors trim the history of keys (nats-server
// 2.15.2), so the newest records could be missing. If the server that sends the records lags behind
// the leader, it sends older records first, and the newer ones once it has caught up. writeBucket
// waits for the newer ones.
func (i Installation) writeBucket(
	ctx context.Context, w *writer, bucket string, keys map[string]bool,
) (records int, last newestBucketRecord, err error) {
	to, err := w.createEntry(bucketEntryName(bucket))
	if err != nil {
		return 0, last, err
	}
	s, err := i.JetStream.Stream(ctx, registry.StreamOf(bucket))
	if err != nil {
		return 0, last, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return 0, last, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	missing := info.State.Subjects
	if len(missing) == 0 {
		return 0, last, nil
	}
	config := jetstream.OrderedConsumerConfig{
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
		FilterSubjects: []string{">"},
	}
	began := info.State.LastSeq
	live := map[string]bool{}
	err = i.forEachMessage(ctx, registry.StreamOf(bucket), config,
		func(m message, _ uint64) (done bool, err error) {
			delete(missing, m.Subject)
			last = newestBucketRecord{m.Sequence, m.StoredAt}
			ids, err := encryptionKeyIDs(m, bucket)
			if err != nil {
				return true, fmt.Errorf("record %s: %w", m.Subject, err)
			}
			for _, id := range ids {
				keys[id] = true
			}
			// Omit a deletion if the file cannot contain an earlier record of the same key: a
			// restore would have nothing to delete.
			if !m.isDeletion() || m.Sequence > began || live[m.Subject] {
				err = writeMessageLine(to, m)
			}
			live[m.Subject] = !m.isDeletion()
			if err != nil || len(missing) > 0 {
				return false, err
			}
			return i.isLastMessageUpTo(ctx, registry.StreamOf(bucket), m.Sequence, began)
		})
	for _, is := range live {
		if is {
			records++
		}
	}
	return records, last, err
}

// isLastMessageUpTo reports whether the stream has no message after the given sequence, up to and
// including upTo. It queries the stream's leader, because a consumer's server may lag behind the
// leader and then reports too few pending messages.
func (i Installation) isLastMessageUpTo(
	ctx context.Context, name string, sequence, upTo uint64,
) (is bool, err error) {
	if sequence >= upTo {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, messageTimeout)
	defer cancel()
	err = retry.Do(ctx, func(ctx context.Context) error {
		next, err := leader.Get(ctx, i.JetStream.Conn(), name,
			leader.Query{Sequence: sequence + 1, NextBySubject: ">"})
		switch {
		case errors.Is(err, leader.ErrNoMessage):
			is, err = true, nil
		case err == nil:
			is = next.Sequence > upTo
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("what follows message %d of %s: %w", sequence, name, err)
	}
	return is, nil
}

func writeMessageLine(to io.Writer, m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeLine(to, line)
}

// expectedHeaderPrefix is the prefix of the headers with which a publisher states what it expects
// of a stream, such as its last sequence. A backup omits these headers, because the server would
// reject a restored message that has them.
const expectedHeaderPrefix = "Nats-Expected-"

// messageTimeout is how long to wait for NATS to deliver the next message, or to confirm
// messages that were published.
const messageTimeout = 30 * time.Second

// forEachMessage calls each(m, pending) for the messages of a stream, one after another. It ends
// when a call returns done as true, or an error. pending is the number of messages that follow m,
// as reported by the server. The reported number may be too small.
func (i Installation) forEachMessage(
	ctx context.Context, name string, config jetstream.OrderedConsumerConfig, each func(
		m message, pending uint64,
	) (done bool, err error),
) error {
	consumer, err := i.JetStream.OrderedConsumer(ctx, name, config)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer messages.Stop()
	for {
		waiting, cancel := context.WithTimeout(ctx, messageTimeout)
		msg, err := messages.Next(jetstream.NextContext(waiting))
		cancel()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		headers := msg.Headers()
		maps.DeleteFunc(headers, func(name string, _ []string) bool {
			return strings.HasPrefix(name, expectedHeaderPrefix)
		})
		done, err := each(message{
			Sequence: meta.Sequence.Stream,
			Subject:  msg.Subject(),
			StoredAt: meta.Timestamp.UTC(),
			Headers:  headers,
			Data:     msg.Data(),
		}, meta.NumPending)
		if done || err != nil {
			return err
		}
	}
}
