package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
)

// A queue may have its own stream, QUEUE_{queue}, and its own stream of reports, PROGRESS_{queue}.
// Other queues' traffic does not fill these streams, slow their leaders or use the memory of their
// deduplication windows. The subjects of these streams end like those of the shared streams, but
// without the queue:
//
//	executions.queue.{queue}.start.{workflowId}.{nodeId}
//	executions.queue.{queue}.ordered.{lane}.{workflowId}.{nodeId}
//	executions.queue.{queue}.rejected.{workflowId}.{nodeId}
//	executions.queue.{queue}.remembered.{workflowId}
//	executions.reports.{queue}.{workflowId}.{executionId}
//
// A message on a "remembered" subject carries only the Nats-Msg-Id of a start message in another
// stream. It makes this stream recognize repeats of that delivery after a move. Runners have no
// consumer for it, and the executor does not record it.

const (
	ownStreamPrefix          = "QUEUE_"
	ownProgressStreamPrefix  = "PROGRESS_"
	ownSubjectPrefix         = "executions.queue."
	ownProgressSubjectPrefix = "executions.reports."
	dedupMarkerSubjectPrefix = "executions.remembered."
)

// OwnStreamName returns the name of a queue's own stream of start messages and rejections.
func OwnStreamName(queue string) string { return ownStreamPrefix + queue }

// OwnProgressStreamName returns the name of a queue's own stream of reports.
func OwnProgressStreamName(queue string) string { return ownProgressStreamPrefix + queue }

// QueueOfOwnStream returns the queue whose own stream of start messages has the given name. ok is
// false if the name belongs to another stream.
func QueueOfOwnStream(name string) (queue string, ok bool) {
	return queueFromStreamName(name, ownStreamPrefix)
}

func queueFromStreamName(name, prefix string) (queue string, ok bool) {
	if queue, ok = strings.CutPrefix(name, prefix); !ok || !execution.ValidName(queue) {
		return "", false
	}
	return queue, true
}

// QueueOfOwnProgressStream returns the queue whose own stream of reports has the given name. ok is
// false if the name belongs to another stream.
func QueueOfOwnProgressStream(name string) (queue string, ok bool) {
	return queueFromStreamName(name, ownProgressStreamPrefix)
}

// Layout identifies where a queue's messages are stored, and so determines their streams and
// subjects. The zero value stands for the streams that all queues share.
type Layout struct {
	Own bool // true for the queue's own stream
}

// StreamName returns the name of the stream that stores the queue's start messages and rejections.
func (l Layout) StreamName(queue string) string {
	if l.Own {
		return OwnStreamName(queue)
	}
	return ExecutionsName
}

// ProgressStreamName returns the name of the stream that stores the reports on a queue's executions
// if their start messages are in the stream that l identifies.
func (l Layout) ProgressStreamName(queue string) string {
	if l.Own {
		return OwnProgressStreamName(queue)
	}
	return ProgressName
}

// StartSubject returns the subject of a start message without an order key.
func (l Layout) StartSubject(queue, workflowID, nodeID string) string {
	if l.Own {
		return ownSubjectPrefix + queue + ".start." + workflowID + "." + nodeID
	}
	return StartSubject(queue, workflowID, nodeID)
}

// OrderedSubject returns the subject of a start message with an order key.
func (l Layout) OrderedSubject(queue string, lane int, workflowID, nodeID string) string {
	if l.Own {
		return ownSubjectPrefix + queue + ".ordered." + strconv.Itoa(
			lane,
		) + "." + workflowID + "." +
			nodeID
	}
	return OrderedSubject(queue, lane, workflowID, nodeID)
}

// RejectedSubject returns the subject of the message that records a rejected request.
func (l Layout) RejectedSubject(queue, workflowID, nodeID string) string {
	if l.Own {
		return ownSubjectPrefix + queue + ".rejected." + workflowID + "." + nodeID
	}
	return RejectedSubject(queue, workflowID, nodeID)
}

// DedupMarkerSubject returns the subject of a marker: an empty message with the Nats-Msg-Id of a
// start message that is stored in another stream. The marker lets this stream recognize duplicates
// of that start message.
func (l Layout) DedupMarkerSubject(queue, workflowID string) string {
	if l.Own {
		return ownSubjectPrefix + queue + ".remembered." + workflowID
	}
	return dedupMarkerSubjectPrefix + queue + "." + workflowID
}

// ProgressSubject returns the subject of the reports on one execution.
func (l Layout) ProgressSubject(queue, workflowID, executionID string) string {
	if l.Own {
		return ownProgressSubjectPrefix + queue + "." + workflowID + "." + executionID
	}
	return ProgressSubject(queue, workflowID, executionID)
}

// QueueFilterSubject returns the wildcard subject of all start messages of a queue that have no
// order key.
func (l Layout) QueueFilterSubject(queue string) string {
	if l.Own {
		return ownSubjectPrefix + queue + ".start.>"
	}
	return QueueFilterSubject(queue)
}

// OrderedFilterSubject returns the wildcard subject of all start messages of a queue that have an
// order key.
func (l Layout) OrderedFilterSubject(queue string) string {
	if l.Own {
		return ownSubjectPrefix + queue + ".ordered.>"
	}
	return OrderedFilterSubject(queue)
}

// LaneFilterSubject returns the wildcard subject of all start messages in one lane of a queue.
func (l Layout) LaneFilterSubject(queue string, lane int) string {
	if l.Own {
		return ownSubjectPrefix + queue + ".ordered." + strconv.Itoa(lane) + ".>"
	}
	return LaneFilterSubject(queue, lane)
}

// SubjectOf returns the subject of the start message s. If s has an order key, the subject contains
// the key's lane.
func (l Layout) SubjectOf(s *execution.Start) string {
	if s.OrderKey == "" {
		return l.StartSubject(s.Queue, s.WorkflowID, s.NodeID)
	}
	lane := execution.LaneOf(s.WorkflowID, s.OrderKey)
	return l.OrderedSubject(s.Queue, lane, s.WorkflowID, s.NodeID)
}

// DedupMarkerMessage returns a message that makes l's stream recognize repeats of a delivery whose
// start message is in another stream. id is the Nats-Msg-Id of that start message.
func (l Layout) DedupMarkerMessage(queue, workflowID, id string) *nats.Msg {
	msg := nats.NewMsg(l.DedupMarkerSubject(queue, workflowID))
	msg.Header[jetstream.MsgIDHeader] = []string{id}
	return msg
}

// LayoutOf returns the Layout to which a subject belongs. If the subject belongs to a queue's own
// stream, queue is the name of the queue; otherwise it is "".
func LayoutOf(subject string) (l Layout, queue string) {
	if queue, _, ok := parseOwnSubject(subject); ok {
		return Layout{Own: true}, queue
	}
	if rest, ok := strings.CutPrefix(subject, ownProgressSubjectPrefix); ok {
		queue, _, _ = strings.Cut(rest, ".")
		return Layout{Own: true}, queue
	}
	return Layout{}, ""
}

// StreamOf returns the name of the stream that stores messages with the given subject: a start
// message, a rejection or a report.
func StreamOf(subject string) string {
	l, queue := LayoutOf(subject)
	if IsProgressSubject(subject) {
		return l.ProgressStreamName(queue)
	}
	return l.StreamName(queue)
}

// parseOwnSubject splits a subject of a queue's own stream of start messages into the queue and the
// tail. The tail has the same form as a subject of the shared stream without "executions.", but
// contains no queue. ok is false for any other subject.
func parseOwnSubject(subject string) (queue, tail string, ok bool) {
	rest, ok := strings.CutPrefix(subject, ownSubjectPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}

// StartSubjectParts holds the parts of a start message's subject.
type StartSubjectParts struct {
	Layout
	Queue      string
	Lane       int // -1 means that there is no order key
	WorkflowID string
	NodeID     string
}

// ParseStartSubject splits the subject of a start message into its parts. ok is false for any other
// subject.
func ParseStartSubject(subject string) (s StartSubjectParts, ok bool) {
	s.Lane = -1
	ordered := false
	var rest string
	if queue, tail, own := parseOwnSubject(subject); own {
		s.Own, s.Queue = true, queue
		if rest, ok = strings.CutPrefix(tail, "start."); !ok {
			rest, ordered = strings.CutPrefix(tail, "ordered.")
		}
	} else {
		if rest, ok = strings.CutPrefix(subject, startPrefix); !ok {
			rest, ordered = strings.CutPrefix(subject, orderedPrefix)
		}
		s.Queue, rest, _ = strings.Cut(rest, ".")
	}
	if !ok && !ordered {
		return StartSubjectParts{}, false
	}
	if ordered {
		var number string
		number, rest, _ = strings.Cut(rest, ".")
		lane, err := strconv.Atoi(number)
		if err != nil || lane < 0 || strconv.Itoa(lane) != number {
			return StartSubjectParts{}, false
		}
		s.Lane = lane
	}
	s.WorkflowID, s.NodeID, ok = strings.Cut(rest, ".")
	if !ok || s.Queue == "" || s.WorkflowID == "" || s.NodeID == "" ||
		strings.Contains(s.NodeID, ".") {
		return StartSubjectParts{}, false
	}
	return s, true
}

// IsDedupMarkerSubject reports whether messages on a subject are markers: empty messages with the
// Nats-Msg-Id of a start message in another stream (see DedupMarkerSubject).
func IsDedupMarkerSubject(subject string) bool {
	if _, tail, ok := parseOwnSubject(subject); ok {
		return strings.HasPrefix(tail, "remembered.")
	}
	return strings.HasPrefix(subject, dedupMarkerSubjectPrefix)
}

// QueueStreamPhase identifies where a queue's start messages are stored while the queue moves to
// its own stream or back. The values are those of hookstartv1.QueueStreamPhase.
type QueueStreamPhase int32

// The phases, in the order in which a queue goes through them.
const (
	// QueuePhaseSharedStream means that start messages are stored in the shared stream, and that
	// the queue does not have its own stream.
	QueuePhaseSharedStream QueueStreamPhase = iota
	// QueuePhaseMovingToOwn means that start messages are stored in the shared stream, and delivery
	// IDs are being copied to the queue's own stream.
	QueuePhaseMovingToOwn
	// QueuePhaseClosedMovingToOwn means that no start messages are accepted until the last delivery
	// IDs have been copied to the queue's own stream.
	QueuePhaseClosedMovingToOwn
	// QueuePhaseOwnStream means that start messages are stored in the queue's own stream.
	QueuePhaseOwnStream
	// QueuePhaseMovingToShared means that start messages are stored in the queue's own stream, and
	// delivery IDs are being copied to the shared stream.
	QueuePhaseMovingToShared
	// QueuePhaseClosedMovingToShared means that no start messages are accepted until the last
	// delivery IDs have been copied to the shared stream.
	QueuePhaseClosedMovingToShared
	// QueuePhaseDrainingOwnStream means that start messages are stored in the shared stream. The
	// queue's own stream is kept until its messages have expired.
	QueuePhaseDrainingOwnStream
)

// Layout returns where the queue's start messages are stored. open is false if no start messages
// are accepted at the moment; layout is then where the last accepted ones are stored.
func (p QueueStreamPhase) Layout() (layout Layout, open bool) {
	switch p {
	case QueuePhaseOwnStream, QueuePhaseMovingToShared:
		return Layout{Own: true}, true
	case QueuePhaseClosedMovingToShared:
		return Layout{Own: true}, false
	case QueuePhaseClosedMovingToOwn:
		return Layout{}, false
	case QueuePhaseSharedStream, QueuePhaseMovingToOwn, QueuePhaseDrainingOwnStream:
	}
	return Layout{}, true
}

// QueueStream is a queue's own stream, according to the queue's record. The zero value means that
// the queue has no stream of its own.
type QueueStream struct {
	Phase  QueueStreamPhase  // where start messages are stored now
	Limits QueueStreamLimits // as set by an operator
}

// QueueStreamLimits holds the limits of a queue's own stream. The zero value means the limits of
// the shared stream, but without a maximum size.
type QueueStreamLimits struct {
	// MaxBytes is the size at which the stream refuses new messages. 0 means no limit.
	MaxBytes int64
	// MaxAge is how long messages are kept. 0 means that they are kept as long as in EXECUTIONS.
	MaxAge time.Duration
	// Replicas is the number of servers that store the stream. 0 means the same number as for
	// EXECUTIONS.
	Replicas int
	// PlacementTags are the tags that a server must have to hold a replica. Empty means any server.
	PlacementTags []string
}

// withLimits returns the settings of EXECUTIONS, overridden by the limits of a queue's own stream.
func (s Settings) withLimits(limits QueueStreamLimits) Settings {
	s.MaxBytes = limits.MaxBytes
	if limits.MaxAge > 0 {
		s.MaxAge = limits.MaxAge
	}
	if limits.Replicas > 0 {
		s.Replicas = limits.Replicas
	}
	s.DedupWindow = min(s.DedupWindow, s.MaxAge)
	return s
}

func (l QueueStreamLimits) placement() *jetstream.Placement {
	if len(l.PlacementTags) == 0 {
		return nil
	}
	return &jetstream.Placement{Tags: l.PlacementTags}
}

// OwnStreamConfig returns the configuration of a queue's own stream of start messages and
// rejections: the settings s, overridden by limits.
func (s Settings) OwnStreamConfig(queue string, limits QueueStreamLimits) jetstream.StreamConfig {
	config := s.withLimits(limits).ExecutionsStreamConfig()
	config.Name, config.Subjects = OwnStreamName(queue), []string{ownSubjectPrefix + queue + ".>"}
	config.Description = "hookstart: starts and rejections of the queue " + queue
	config.Placement = limits.placement()
	return config
}

// OwnProgressStreamConfig returns the configuration of a queue's own stream of reports: the
// settings s, overridden by limits.
func (s Settings) OwnProgressStreamConfig(
	queue string, limits QueueStreamLimits,
) jetstream.StreamConfig {
	config := s.withLimits(limits).ProgressStreamConfig()
	config.Name, config.Subjects = OwnProgressStreamName(queue),
		[]string{ownProgressSubjectPrefix + queue + ".*.*"}
	config.Description = "hookstart: what runners report of executions of the queue " + queue
	config.Placement = limits.placement()
	return config
}

// ErrPlacementNeedsCluster means that placement tags were given but the server is not in a cluster.
var ErrPlacementNeedsCluster = errors.New("placement tags need a cluster of NATS servers")

// EnsureOwnStreams creates a queue's own streams with the settings s of EXECUTIONS, overridden by
// limits. If the streams exist, it changes them accordingly; a shorter maximum age then deletes
// older messages immediately. EnsureOwnStreams is idempotent.
func EnsureOwnStreams(
	ctx context.Context, js jetstream.JetStream, s Settings, queue string, limits QueueStreamLimits,
) error {
	if err := s.withLimits(limits).Validate(); err != nil {
		return err
	}
	if len(limits.PlacementTags) > 0 {
		shared, err := js.Stream(ctx, ExecutionsName)
		if err != nil {
			return fmt.Errorf("stream %s: %w", ExecutionsName, err)
		}
		// A server that is not in a cluster may still report a Cluster, but one without a name.
		if cluster := shared.CachedInfo().Cluster; cluster == nil || cluster.Name == "" {
			return ErrPlacementNeedsCluster
		}
	}
	starts, reports := s.OwnStreamConfig(queue, limits), s.OwnProgressStreamConfig(queue, limits)
	// Create the stream of reports first: a runner that receives a start message must be able to
	// report the execution's final state.
	for {
		err := createOrUpdateStream(ctx, js, &reports)
		if !isSizeLimitTooLarge(err) || reports.MaxBytes <= minProgressStreamBytes {
			if err != nil {
				return err
			}
			break
		}
		// The server refused the stream because it reserves disk space for the whole size limit.
		// Try a smaller limit: see ensureProgressStream.
		reports.MaxBytes /= 4
	}
	return createOrUpdateStream(ctx, js, &starts)
}

// createOrUpdateStream creates a stream, or changes its limits if it exists.
func createOrUpdateStream(
	ctx context.Context, js jetstream.JetStream, want *jetstream.StreamConfig,
) error {
	existing, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, *want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another executor has created it
			existing, err = js.Stream(ctx, want.Name)
		}
	}
	if err == nil && existing != nil {
		have := existing.CachedInfo().Config
		config := have
		config.MaxAge, config.Replicas, config.Placement = want.MaxAge, want.Replicas,
			want.Placement
		if want.Discard == jetstream.DiscardNew { // a stream of reports keeps its size
			config.MaxBytes = want.MaxBytes
		}
		if len(want.Sources) == 0 {
			config.Duplicates = want.Duplicates
		}
		_, err = js.UpdateStream(ctx, config)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", want.Name, ExplainTooFewServers(err, want.Replicas))
	}
	return nil
}

// DeleteOwnStreams deletes a queue's own streams and everything in them. Streams that do not exist
// are skipped.
func DeleteOwnStreams(ctx context.Context, js jetstream.JetStream, queue string) error {
	for _, name := range []string{OwnStreamName(queue), OwnProgressStreamName(queue)} {
		err := js.DeleteStream(ctx, name)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete the stream %s: %w", name, err)
		}
	}
	return nil
}

// StreamNames returns the names of all existing streams of start messages (EXECUTIONS and the
// queues' own) and of all existing streams of reports (PROGRESS and the queues' own).
func StreamNames(
	ctx context.Context, js jetstream.JetStream,
) (starts, reports []string, err error) {
	names := js.StreamNames(ctx, jetstream.WithStreamListSubject("executions.>"))
	for name := range names.Name() {
		_, own := QueueOfOwnStream(name)
		_, ownReports := QueueOfOwnProgressStream(name)
		switch {
		case own || name == ExecutionsName:
			starts = append(starts, name)
		case ownReports || name == ProgressName:
			reports = append(reports, name)
		}
	}
	if err := names.Err(); err != nil {
		return nil, nil, fmt.Errorf("list the streams: %w", err)
	}
	return starts, reports, nil
}
