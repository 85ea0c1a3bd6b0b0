package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// NotEmptyError means that the target installation is not empty. Found says what was found in it.
type NotEmptyError struct{ Found string }

func (e *NotEmptyError) Error() string { return "the installation is not empty: " + e.Found }

// MissingKeysError means that a process does not have all the keys needed to decrypt the file's
// content.
type MissingKeysError struct {
	MissingKeyTexts []string // such as "executor ID lacks the key k1, k2"
}

func (e *MissingKeysError) Error() string {
	return "tokens and secrets in the file are sealed: " + strings.Join(e.MissingKeyTexts, "; ")
}

// HalfRestoredError means that a restore has failed after it had begun: the installation is neither
// empty nor usable.
type HalfRestoredError struct{ Err error }

func (e *HalfRestoredError) Error() string {
	return e.Err.Error() + "; the installation is half restored: begin again with an empty one"
}

func (e *HalfRestoredError) Unwrap() error { return e.Err }

// RestoreUnconfirmedError means that everything is restored, but that the restore could not confirm
// that every process uses the restored data.
type RestoreUnconfirmedError struct{ Err error }

func (e *RestoreUnconfirmedError) Error() string {
	return "everything is restored, but it is not confirmed that every executor and ingress uses " +
		"it: " + e.Err.Error()
}

func (e *RestoreUnconfirmedError) Unwrap() error { return e.Err }

// RestoreOptions controls whether a restore includes messages, and whether it may restore records
// that cannot be decrypted.
type RestoreOptions struct {
	WithMessages bool // whether to also restore the messages in the file
	// AllowUndecryptable allows restoring records that some processes of the installation cannot
	// decrypt because they lack the keys.
	AllowUndecryptable bool
}

// consumerPauseEnd is the time until which a restore pauses consumers. It is so far in the future
// that a pause never ends by itself: a restore may take any time, and if it fails or this program
// is killed, nothing may run in the half-restored installation. The end of a pause also shows who
// set it: a restore's pause ends at a whole microsecond, and an operator's never does.
var consumerPauseEnd = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Restore restores a file into an empty installation whose executors are running.
//
// The NATS server's restore of streams is not sufficient: until the server is restarted, it does
// not deduplicate repeats of restored messages (nats-server 2.15.2: its restore does not call
// rebuildDedupe). Restore therefore publishes the messages again, in order and with their original
// sequences, because the records refer to them by sequence. Meanwhile the recorder and the groups
// of runners are paused. Afterwards they continue at their positions in the backup. If the restore
// fails, they stay paused.
func Restore(
	ctx context.Context, i Installation, path string, options RestoreOptions,
) (Manifest, error) {
	r, err := openReader(path)
	if err != nil {
		return Manifest{}, nothingRestoredError(err)
	}
	defer r.close()
	if err := r.verify(path); err != nil {
		return r.Manifest, nothingRestoredError(err)
	}
	m := r.Manifest
	m.WithMessages = m.WithMessages && options.WithMessages
	if err := i.checkNATSEmpty(ctx); err != nil {
		return m, nothingRestoredError(err)
	}
	if err := i.checkKeysAvailable(ctx, m.KeyIDs); err != nil && !options.AllowUndecryptable {
		return m, nothingRestoredError(err)
	}
	if err := i.markRestoring(ctx); err != nil {
		return m, err
	}
	account, err := i.restoreContent(ctx, r, m)
	if err != nil {
		return m, &HalfRestoredError{err}
	}
	if account == "" {
		return m, nil
	}
	if err := i.API.AwaitAccountApplied(ctx, account); err != nil {
		return m, &RestoreUnconfirmedError{err}
	}
	return m, nil
}

// nothingRestoredError adds "nothing was restored" to the error of a check that precedes the
// restore.
func nothingRestoredError(err error) error { return fmt.Errorf("%w; nothing was restored", err) }

// checkKeysAvailable returns a *MissingKeysError if an executor or an ingress lacks one of the
// keys.
func (i Installation) checkKeysAvailable(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	members, err := i.API.Members(ctx)
	if err != nil {
		return fmt.Errorf("which keys the installation has: %w", err)
	}
	var lack []string
	for _, member := range members {
		missing := slices.DeleteFunc(slices.Clone(keys), func(id string) bool {
			return slices.Contains(member.KeyIDs, id)
		})
		if len(missing) > 0 {
			lack = append(lack,
				fmt.Sprintf("%s lacks the key %s", member.Name, strings.Join(missing, ", ")))
		}
	}
	if len(lack) > 0 {
		return &MissingKeysError{lack}
	}
	return nil
}

// checkNATSEmpty returns a *NotEmptyError if NATS already holds data of an installation. The
// database is checked when the first records are restored.
func (i Installation) checkNATSEmpty(ctx context.Context) error {
	for _, name := range []string{stream.ExecutionsName, stream.ProgressName} {
		s, err := i.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("there is no stream %s: start an executor first, which creates it",
				name)
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		if s.CachedInfo().State.LastSeq > 0 {
			return &NotEmptyError{"the stream " + name + " has, or had, messages"}
		}
	}
	owned, err := stream.QueuesWithOwnStreams(ctx, i.JetStream)
	if err != nil {
		return err
	}
	if len(owned) > 0 {
		return &NotEmptyError{"the queue " + owned[0].Queue + " has a stream of its own"}
	}
	bucket, err := i.JetStream.KeyValue(ctx, registry.Bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", registry.Bucket, err)
	}
	keys, err := bucket.ListKeysFiltered(ctx, "account.>", "workflow.>")
	if err != nil {
		return fmt.Errorf("bucket %s: %w", registry.Bucket, err)
	}
	defer func() { _ = keys.Stop() }()
	for key := range keys.Keys() {
		return &NotEmptyError{"there is " + strings.Replace(key, ".", " ", 1)}
	}
	return nil
}

// restoreContent restores a file's content. It returns the ID of the account whose record it stores
// last, or "" if the file has no account. A process that has applied that record has applied all
// other records as well: see restoreBucket.
func (i Installation) restoreContent(
	ctx context.Context, r *reader, m Manifest,
) (account string, err error) {
	if err := i.createOwnStreams(ctx, r, m); err != nil {
		return "", err
	}
	var positions []consumerPosition
	streams := slices.DeleteFunc(slices.Clone(m.Streams), func(saved SavedStream) bool {
		return saved.Name == stream.ReportsName
	})
	for _, saved := range streams {
		paused, err := i.pauseConsumers(ctx, saved)
		if err != nil {
			return "", err
		}
		positions = append(positions, paused...)
	}
	var others []consumerPosition // of groups that are not in the file
	for _, saved := range streams {
		paused, err := i.pauseOtherRunners(ctx, saved)
		if err != nil {
			return "", err
		}
		others = append(others, paused...)
		if err := i.restoreStream(ctx, r, saved, m.WithMessages); err != nil {
			return "", fmt.Errorf("stream %s: %w", saved.Name, err)
		}
		i.logf("%s: up to message %d", saved.Name, saved.LastSequence)
	}
	if err := i.restoreEntryToDatabase(ctx, r, recordsEntryName); err != nil {
		return "", err
	}
	i.logf("records: %d executions", m.ExecutionCount)
	if r.hasEntry(auditEntryName) {
		if err := i.restoreEntryToDatabase(ctx, r, auditEntryName); err != nil {
			return "", err
		}
	}
	if err := i.restoreReports(ctx, r); err != nil {
		return "", err
	}
	// Restore the buckets in reverse order, so that the secrets come first: a node cannot be shown
	// to operators without its token.
	for _, bucket := range slices.Backward(m.Buckets) {
		last, err := i.restoreBucket(ctx, r, bucket.Name)
		if err != nil {
			return "", fmt.Errorf("bucket %s: %w", bucket.Name, err)
		}
		account = cmp.Or(last, account)
		i.logf("bucket %s: %d records", bucket.Name, bucket.RecordCount)
	}
	// Resume the consumers once everything else is restored. If an earlier step fails, or this
	// program is killed, no execution may have run in the half-restored installation, because it
	// would run again after the next restore.
	for _, p := range positions {
		if err := i.resetConsumer(ctx, p); err != nil {
			return "", err
		}
	}
	for _, p := range slices.Concat(positions, others) {
		if err := i.resumeConsumer(ctx, p); err != nil {
			return "", err
		}
	}
	// Restore the identity last: until then, no process uses the restored registry.
	return account, retryRequest(ctx, func(ctx context.Context) error {
		return i.setRestoring(ctx, false)
	})
}

// markRestoring marks the registry as being restored. Until the restore is complete, ingresses
// respond to all webhook requests with the code unavailable.
func (i Installation) markRestoring(ctx context.Context) error { return i.setRestoring(ctx, true) }

// setRestoring rewrites the identity of the target installation. If restoring is true, it marks
// the registry as being restored; otherwise it removes the mark. The identity in the backup is not
// used.
func (i Installation) setRestoring(ctx context.Context, restoring bool) error {
	identity, over, err := edit.ReadInstallation(ctx, i.JetStream)
	if err != nil {
		return fmt.Errorf("the installation's identity: %w", err)
	}
	if identity.ID == "" {
		return errors.New("the registry has no identity: start an executor first, which gives it " +
			"one")
	}
	identity.Restoring = restoring
	if _, err := edit.WriteInstallation(ctx, i.JetStream, identity, over); err != nil {
		return fmt.Errorf("the installation's identity: %w", err)
	}
	return nil
}

// recorderConsumerTimeout is the maximum time to wait until the executors consume a new stream.
const recorderConsumerTimeout = 30 * time.Second

// createOwnStreams gives queues their own streams: every queue that has them in the backup file.
// It uses the limits in the queue's record, and waits until the executors consume the new streams.
// If the installation has too few servers for the replicas, or cannot satisfy the placement tags,
// the streams get no placement tags and as many replicas as EXECUTIONS.
func (i Installation) createOwnStreams(ctx context.Context, r *reader, m Manifest) error {
	limits := map[string]stream.QueueStreamLimits{}
	for _, saved := range m.Streams {
		if queue, ok := stream.QueueOfOwnStream(saved.Name); ok {
			limits[queue] = stream.QueueStreamLimits{}
		}
	}
	if len(limits) == 0 {
		return nil
	}
	queues := registry.SubjectOf(registry.Bucket, registry.QueuePrefix)
	if err := r.forEachMessage(bucketEntryName(registry.Bucket), func(m message) error {
		queue, ok := strings.CutPrefix(m.Subject, queues)
		if _, own := limits[queue]; !ok || !own || m.isDeletion() {
			return nil
		}
		settings, err := stream.DecodeQueueSettings(m.Data)
		limits[queue] = settings.Stream.Limits
		return err
	}); err != nil {
		return err
	}
	shared, err := stream.ReadExecutionsStreamState(ctx, i.JetStream)
	if err != nil {
		return err
	}
	for queue, limit := range limits {
		err := stream.EnsureOwnStreams(ctx, i.JetStream, shared.Settings, queue, limit)
		if errors.Is(err, stream.ErrTooFewServers) ||
			errors.Is(err, stream.ErrPlacementNeedsCluster) {
			i.logf("queue %s: its own stream gets the replicas of %s, on any servers: %v", queue,
				stream.ExecutionsName, err)
			limit.Replicas, limit.PlacementTags = 0, nil
			err = stream.EnsureOwnStreams(ctx, i.JetStream, shared.Settings, queue, limit)
		}
		if err != nil {
			return err
		}
		for _, name := range []string{
			stream.OwnStreamName(queue),
			stream.OwnProgressStreamName(queue),
		} {
			if err := i.awaitRecorderConsumer(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitRecorderConsumer waits until the executors have created the recorder's consumer of the named
// stream.
func (i Installation) awaitRecorderConsumer(ctx context.Context, name string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, recorderConsumerTimeout)
	defer cancel()
	retry.Until(ctx, 100*time.Millisecond, func() bool {
		_, err = i.JetStream.Consumer(ctx, name, stream.RecorderConsumerName)
		return err == nil || !errors.Is(err, jetstream.ErrConsumerNotFound)
	})
	if err != nil {
		return fmt.Errorf("no executor reads the stream %s: %w", name, err)
	}
	return nil
}

// consumerPosition is the position at which a consumer continues after the restore. Of a group that
// is not in the file, nextSequence is 0: its consumer continues where it is.
type consumerPosition struct {
	stream, consumer string
	nextSequence     uint64
	// pausedUntil is the end of the pause that an operator had set before the backup was taken. nil
	// means that the queue was not paused.
	pausedUntil *time.Time
}

// pauseConsumers pauses the consumers of one stream: the recorder's consumer, and the consumers of
// groups of runners that the stream had when the backup was taken. It creates those that are
// missing. It returns the position at which each of them continues after the restore.
func (i Installation) pauseConsumers(
	ctx context.Context,
	saved SavedStream,
) (positions []consumerPosition, err error) {
	s, err := i.JetStream.Stream(ctx, saved.Name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", saved.Name, err)
	}
	for _, group := range saved.GroupPositions {
		config := group.restoredConfig()
		if err := createPausedConsumer(ctx, s, config); err != nil {
			return nil, fmt.Errorf("consumer %s: %w", config.Durable, err)
		}
		positions = append(positions, consumerPosition{
			saved.Name, config.Durable, group.AckFloor + 1, group.Config.PauseUntil,
		})
	}
	positions = append(positions,
		consumerPosition{saved.Name, stream.RecorderConsumerName, saved.RecordedUpTo + 1, nil})
	for _, p := range positions {
		if _, err := s.PauseConsumer(ctx, p.consumer, consumerPauseEnd); err != nil {
			return nil, fmt.Errorf("pause the consumer %s of %s: %w", p.consumer, p.stream, err)
		}
	}
	return positions, nil
}

// pauseOtherRunners pauses the consumers of groups of runners that the stream has but did not have
// when the backup was taken. Runners that are already running, or the executors, have created them.
// Such a group has received nothing yet, and receives every restored message once it is resumed.
func (i Installation) pauseOtherRunners(
	ctx context.Context, saved SavedStream,
) (paused []consumerPosition, err error) {
	s, err := i.JetStream.Stream(ctx, saved.Name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", saved.Name, err)
	}
	known := map[string]bool{stream.RecorderConsumerName: true}
	for _, group := range saved.GroupPositions {
		known[group.Config.Durable] = true
	}
	consumers := s.ListConsumers(ctx)
	for consumer := range consumers.Info() {
		if known[consumer.Name] || !stream.IsRunnerConsumer(consumer.Config) {
			continue
		}
		if _, err := s.PauseConsumer(ctx, consumer.Name, consumerPauseEnd); err != nil {
			return nil, fmt.Errorf("pause the consumer %s of %s: %w", consumer.Name, saved.Name,
				err)
		}
		paused = append(paused, consumerPosition{stream: saved.Name, consumer: consumer.Name})
	}
	if err := consumers.Err(); err != nil {
		return nil, fmt.Errorf("consumers of %s: %w", saved.Name, err)
	}
	return paused, nil
}

// restoredConfig returns the configuration with which a restore creates the group's consumer. A
// consumer that began with new messages or at a certain time is created to begin with the first
// message that was not acknowledged in the backup. There are two reasons: the server cannot reset a
// consumer that began with new messages, and restored messages get new timestamps, which are later
// than any time at which a consumer began.
func (p RunnerGroupPosition) restoredConfig() jetstream.ConsumerConfig {
	config := p.Config
	config.Replicas, config.Metadata, config.PauseUntil = 0, nil, &consumerPauseEnd
	if config.DeliverPolicy != jetstream.DeliverAllPolicy &&
		config.DeliverPolicy != jetstream.DeliverByStartSequencePolicy {
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		config.OptStartSeq, config.OptStartTime = p.AckFloor+1, nil
	}
	return config
}

// maxConsumerReplacements is the maximum number of unsuitable consumers that a restore deletes in
// order to create one paused consumer. More than one deletion may be needed, because the group's
// runners can recreate the consumer.
const maxConsumerReplacements = 10

// createPausedConsumer creates a paused consumer. It keeps an existing consumer that begins with
// the oldest message, because the server can reset such a consumer to any message. It replaces any
// other existing consumer.
func createPausedConsumer(
	ctx context.Context, s jetstream.Stream, config jetstream.ConsumerConfig,
) (err error) {
	for range maxConsumerReplacements {
		_, err = s.CreateConsumer(ctx, config)
		if !errors.Is(err, jetstream.ErrConsumerExists) {
			return err
		}
		existing, getErr := s.Consumer(ctx, config.Durable)
		if getErr == nil {
			if existing.CachedInfo().Config.DeliverPolicy == jetstream.DeliverAllPolicy {
				return nil
			}
			getErr = s.DeleteConsumer(ctx, config.Durable)
		}
		if getErr != nil && !errors.Is(getErr, jetstream.ErrConsumerNotFound) {
			return getErr
		}
	}
	return err
}

// resetConsumer makes a paused consumer continue at its position.
func (i Installation) resetConsumer(ctx context.Context, p consumerPosition) error {
	err := retryRequest(ctx, func(ctx context.Context) error {
		_, err := i.JetStream.ResetConsumerToSequence(ctx, p.stream, p.consumer, p.nextSequence)
		return err
	})
	if err != nil {
		return fmt.Errorf("let the consumer %s of %s go on at %d: %w", p.consumer, p.stream,
			p.nextSequence, err)
	}
	return nil
}

// resumeConsumer ends the restore's pause of a consumer. If an operator had paused the queue in the
// backup and that pause has not ended yet, it pauses the consumer until then instead.
func (i Installation) resumeConsumer(ctx context.Context, p consumerPosition) error {
	err := retryRequest(ctx, func(ctx context.Context) (err error) {
		if p.pausedUntil != nil && time.Now().Before(*p.pausedUntil) {
			_, err = i.JetStream.PauseConsumer(ctx, p.stream, p.consumer, *p.pausedUntil)
			return err
		}
		_, err = i.JetStream.ResumeConsumer(ctx, p.stream, p.consumer)
		return err
	})
	if err != nil {
		return fmt.Errorf("let the consumer %s of %s go on: %w", p.consumer, p.stream, err)
	}
	return nil
}

// retryTimeout is the total time for which a request to NATS is retried. attemptTimeout is the
// maximum time to wait for each response.
const (
	retryTimeout   = time.Minute
	attemptTimeout = 5 * time.Second
)

// retryRequest retries a request to NATS until it succeeds, for at most a minute. Use it for the
// last steps of a restore: a cluster does not respond while it elects a leader, and if one of these
// steps failed, the whole restore would have to start over.
func retryRequest(ctx context.Context, attempt func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	retry.Until(ctx, 250*time.Millisecond, func() bool {
		waiting, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		err = attempt(waiting)
		return err == nil
	})
	return err
}

// restoreStream publishes the saved messages of a stream with their original sequences. If
// withMessages is false, it publishes no messages, and only makes the sequences of new messages
// begin after the saved ones.
func (i Installation) restoreStream(
	ctx context.Context, r *reader, saved SavedStream, withMessages bool,
) error {
	s, err := i.JetStream.Stream(ctx, saved.Name)
	if err != nil {
		return err
	}
	next := saved.FirstSequence
	if !withMessages {
		next = saved.LastSequence + 1
	}
	if next > 1 {
		if err := s.Purge(ctx, jetstream.WithPurgeSequence(next)); err != nil {
			return err
		}
	}
	if !withMessages {
		return nil
	}
	to := &restorePublisher{
		js:               i.JetStream,
		requireSequences: true,
		nextSequence:     next,
		dedupWindow:      s.CachedInfo().Config.Duplicates,
		sentMessageIDs:   map[string]bool{},
	}
	if saved.DedupWindow > 0 { // the original stream recognized repeats only within its own window
		to.dedupWindow = min(to.dedupWindow, saved.DedupWindow)
	}
	subjects := saved.subjectsAfterRestore()
	if err := r.forEachMessage(streamEntryName(saved.Name), func(m message) error {
		if !matchesAnyWildcard(subjects, m.Subject) { // already recorded, as verify has checked
			return nil
		}
		return to.publish(ctx, m, saved.Name)
	}); err != nil {
		return err
	}
	if err := to.fillGap(ctx, saved.Name, saved.LastSequence+1); err != nil {
		return err
	}
	if err := to.awaitAcks(ctx); err != nil {
		return err
	}
	for _, sequence := range to.fillerSequences {
		if err := s.DeleteMsg(ctx, sequence); err != nil {
			return fmt.Errorf("message %d: %w", sequence, err)
		}
	}
	return nil
}

// restorePublisher publishes the messages of a backup to a stream, in order.
type restorePublisher struct {
	js               jetstream.JetStream
	requireSequences bool          // whether a sequence other than the expected one is an error
	dedupWindow      time.Duration // the stream's deduplication window
	// sentMessageIDs holds the deduplication IDs of the messages sent. If the backup has several
	// messages with the same ID, only the first of them keeps the ID, because the new stream would
	// discard the others as duplicates. A stream can have such messages if its deduplication window
	// was shorter when they were stored.
	sentMessageIDs  map[string]bool
	nextSequence    uint64   // sequence of the next message
	fillerSequences []uint64 // sequences of filler messages, to be deleted
	// pendingAcks holds the pending confirmations of the last messages sent, in order. The last
	// of these messages has the sequence nextSequence-1.
	pendingAcks []jetstream.PubAckFuture
}

// maxPendingAcks is the maximum number of messages that a restore sends before it waits for
// confirmations.
const maxPendingAcks = 1000

func (p *restorePublisher) publish(ctx context.Context, m message, name string) error {
	if err := p.fillGap(ctx, name, m.Sequence); err != nil {
		return err
	}
	msg := m.natsMsg()
	id := msg.Header.Get(jetstream.MsgIDHeader)
	// Omit the ID if the stream already has a message with this ID, because the stream would
	// discard this one as a duplicate. Also omit it if the message is older than the deduplication
	// window, because the ID would have no effect.
	if time.Since(m.StoredAt) > p.dedupWindow || p.sentMessageIDs[id] {
		msg.Header.Del(jetstream.MsgIDHeader)
	} else if id != "" {
		p.sentMessageIDs[id] = true
	}
	return p.publishAsync(ctx, msg)
}

// fillGap publishes filler messages with the sequences from p.nextSequence to before-1. They take
// the place of messages that no longer exist, so that later messages get their original sequences.
// The filler messages are deleted afterwards.
func (p *restorePublisher) fillGap(ctx context.Context, name string, before uint64) error {
	for p.nextSequence < before {
		p.fillerSequences = append(p.fillerSequences, p.nextSequence)
		if err := p.publishAsync(ctx, &nats.Msg{Subject: fillerSubject(name)}); err != nil {
			return err
		}
	}
	return nil
}

// fillerSubject returns a subject under which the named stream accepts filler messages.
func fillerSubject(name string) string {
	own := stream.Layout{Own: true}
	if queue, ok := stream.QueueOfOwnStream(name); ok {
		return own.RejectedSubject(queue, "gap", "gap")
	}
	if queue, ok := stream.QueueOfOwnProgressStream(name); ok {
		return own.ProgressSubject(queue, "gap", "gap")
	}
	if name == stream.ProgressName {
		return stream.ProgressSubject("restore", "gap", "gap")
	}
	return stream.RejectedSubject("restore", "gap", "gap")
}

func (p *restorePublisher) publishAsync(ctx context.Context, msg *nats.Msg) error {
	future, err := p.js.PublishMsgAsync(msg, jetstream.WithStallWait(messageTimeout))
	if err != nil {
		return err
	}
	p.pendingAcks = append(p.pendingAcks, future)
	p.nextSequence++
	if len(p.pendingAcks) < maxPendingAcks {
		return nil
	}
	return p.awaitAcks(ctx)
}

// awaitAcks waits until every message sent has been stored. If p.requireSequences is true,
// awaitAcks returns an error if a message was stored with a sequence other than its original one.
func (p *restorePublisher) awaitAcks(ctx context.Context) error {
	timeout := time.NewTimer(messageTimeout)
	defer timeout.Stop()
	want := p.nextSequence - uint64(len(p.pendingAcks))
	for _, future := range p.pendingAcks {
		select {
		case ack := <-future.Ok():
			if p.requireSequences && ack.Sequence != want {
				return fmt.Errorf("message %d was stored as %d: somebody else writes to the stream",
					want, ack.Sequence)
			}
		case err := <-future.Err():
			return fmt.Errorf("message %d: %w", want, err)
		case <-timeout.C:
			return fmt.Errorf("message %d was not confirmed within %s", want, messageTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
		want++
	}
	p.pendingAcks = p.pendingAcks[:0]
	return nil
}

// restoreEntryToDatabase writes the named entry of the file to the database. It also stores in NATS
// the cancellation requests of the entry's executions. For records.jsonl, it returns an error
// unless the database is empty.
func (i Installation) restoreEntryToDatabase(ctx context.Context, r *reader, name string) error {
	first := name == recordsEntryName
	return r.forEachLine(name, func(line []byte) error {
		err := i.API.RestoreRecords(ctx, line, first)
		if first = false; err != nil {
			return err
		}
		return i.restoreCancellations(ctx, line)
	})
}

// restoreCancellations stores in NATS the cancellation requests of the executions in one line of
// records.jsonl. Call it before a group of runners can receive the start messages of these
// executions again.
func (i Installation) restoreCancellations(ctx context.Context, line []byte) error {
	var part struct {
		Records []struct {
			ID                string
			CancelRequestedAt time.Time
		}
	}
	if err := json.Unmarshal(line, &part); err != nil {
		return fmt.Errorf("a part of the records: %w", err)
	}
	var bucket jetstream.KeyValue
	for _, r := range part.Records {
		if r.CancelRequestedAt.IsZero() {
			continue
		}
		var err error
		if bucket == nil {
			if bucket, err = i.JetStream.KeyValue(ctx, stream.CancellationsBucket); err != nil {
				return fmt.Errorf("bucket %s: %w", stream.CancellationsBucket, err)
			}
		}
		if err = stream.PutCancellation(ctx, bucket, r.ID, r.CancelRequestedAt); err != nil {
			return err
		}
	}
	return nil
}

// restoreReports publishes the ingresses' reports that had not been applied when the backup was
// taken. Call it after the executions that these reports refer to have been restored.
func (i Installation) restoreReports(ctx context.Context, r *reader) error {
	return r.forEachMessage(streamEntryName(stream.ReportsName), func(m message) error {
		_, err := i.JetStream.PublishMsg(ctx, m.natsMsg())
		return err
	})
}

// restoreBucket stores the records of a bucket, except for the identity and the plan catalog, which
// the executors store themselves. It stores the newest account record last and returns the
// account's ID, or "" if there is no account. Processes apply records in order, so a process that
// confirms this record has applied all the others.
func (i Installation) restoreBucket(
	ctx context.Context, r *reader, bucket string,
) (accountID string, err error) {
	to := &restorePublisher{js: i.JetStream, nextSequence: 1}
	accounts := registry.SubjectOf(registry.Bucket, registry.AccountPrefix)
	var last message // the message of the newest account record
	if err := r.forEachMessage(bucketEntryName(bucket), func(m message) error {
		if m.Subject == registry.SubjectOf(registry.Bucket, registry.PlansKey) ||
			m.Subject == registry.SubjectOf(registry.Bucket, registry.InstallationKey) {
			return nil
		}
		// Do not restore the audit entry in the message's header. It is restored into the database,
		// from records.jsonl or audit.jsonl: see writeAudit.
		delete(m.Headers, registry.AuditHeader)
		if strings.HasPrefix(m.Subject, accounts) {
			last = m
		}
		return to.publishAsync(ctx, m.natsMsg())
	}); err != nil {
		return "", err
	}
	if last.Subject == "" {
		return "", to.awaitAcks(ctx)
	}
	return strings.TrimPrefix(last.Subject, accounts),
		errors.Join(to.publishAsync(ctx, last.natsMsg()), to.awaitAcks(ctx))
}
