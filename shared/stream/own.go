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

// A queue may have a stream of its own, QUEUE_{queue}, and a stream of its reports,
// PROGRESS_{queue}. Nothing that other queues do fills such a stream, slows its leader, or uses the
// memory of its duplicate window. Subjects in the own stream end as those in the shared one do,
// without the queue:
//
//	executions.queue.{queue}.start.{workflowId}.{nodeId}
//	executions.queue.{queue}.ordered.{lane}.{workflowId}.{nodeId}
//	executions.queue.{queue}.rejected.{workflowId}.{nodeId}
//	executions.queue.{queue}.remembered.{workflowId}
//	executions.reports.{queue}.{workflowId}.{executionId}
//
// A message on a subject "remembered" carries only the Nats-Msg-Id of a start in another stream, so
// that this stream recognises repeats of the delivery after a move. Runners have no consumer for
// it, and the executor records nothing of it.

const (
	ownNamePrefix     = "QUEUE_"
	ownProgressPrefix = "PROGRESS_"
	ownPrefix         = "executions.queue."
	reportsPrefix     = "executions.reports."
	rememberedPrefix  = "executions.remembered."
)

// OwnName returns the name of a queue's own stream.
func OwnName(queue string) string { return ownNamePrefix + queue }

// OwnProgressName returns the name of the stream of reports that belongs to a queue's own stream.
func OwnProgressName(queue string) string { return ownProgressPrefix + queue }

// QueueOfStream returns the queue whose own stream of starts has this name. ok is false for the
// name of any other stream.
func QueueOfStream(name string) (queue string, ok bool) { return queueOf(name, ownNamePrefix) }

func queueOf(name, prefix string) (queue string, ok bool) {
	if queue, ok = strings.CutPrefix(name, prefix); !ok || !execution.ValidName(queue) {
		return "", false
	}
	return queue, true
}

// QueueOfProgressStream returns the queue whose own stream of reports has this name. ok is false
// for the name of any other stream.
func QueueOfProgressStream(name string) (queue string, ok bool) {
	return queueOf(name, ownProgressPrefix)
}

// Place is the place where a queue's starts are stored. The zero value is the shared stream.
type Place struct {
	Own bool // in the queue's own stream
}

// Name returns the name of the stream of starts and rejections.
func (p Place) Name(queue string) string {
	if p.Own {
		return OwnName(queue)
	}
	return Name
}

// ProgressName returns the name of the stream of reports about the starts in this place.
func (p Place) ProgressName(queue string) string {
	if p.Own {
		return OwnProgressName(queue)
	}
	return ProgressName
}

// StartSubject returns the subject of a start without an order key.
func (p Place) StartSubject(queue, workflowID, nodeID string) string {
	if p.Own {
		return ownPrefix + queue + ".start." + workflowID + "." + nodeID
	}
	return StartSubject(queue, workflowID, nodeID)
}

// OrderedSubject returns the subject of a start with an order key.
func (p Place) OrderedSubject(queue string, lane int, workflowID, nodeID string) string {
	if p.Own {
		return ownPrefix + queue + ".ordered." + strconv.Itoa(lane) + "." + workflowID + "." +
			nodeID
	}
	return OrderedSubject(queue, lane, workflowID, nodeID)
}

// RejectedSubject returns the subject of a rejected request.
func (p Place) RejectedSubject(queue, workflowID, nodeID string) string {
	if p.Own {
		return ownPrefix + queue + ".rejected." + workflowID + "." + nodeID
	}
	return RejectedSubject(queue, workflowID, nodeID)
}

// RememberedSubject returns the subject of a message that carries the Nats-Msg-Id of a start of a
// workflow in another stream.
func (p Place) RememberedSubject(queue, workflowID string) string {
	if p.Own {
		return ownPrefix + queue + ".remembered." + workflowID
	}
	return rememberedPrefix + queue + "." + workflowID
}

// ProgressSubject returns the subject of a runner's reports about one execution.
func (p Place) ProgressSubject(queue, workflowID, executionID string) string {
	if p.Own {
		return reportsPrefix + queue + "." + workflowID + "." + executionID
	}
	return ProgressSubject(queue, workflowID, executionID)
}

// QueueSubject returns the wildcard for all starts of one queue that have no order key.
func (p Place) QueueSubject(queue string) string {
	if p.Own {
		return ownPrefix + queue + ".start.>"
	}
	return QueueSubject(queue)
}

// OrderedSubjects returns the wildcard for all starts of one queue that have an order key.
func (p Place) OrderedSubjects(queue string) string {
	if p.Own {
		return ownPrefix + queue + ".ordered.>"
	}
	return OrderedSubjects(queue)
}

// LaneSubject returns the wildcard for all starts of one lane of a queue.
func (p Place) LaneSubject(queue string, lane int) string {
	if p.Own {
		return ownPrefix + queue + ".ordered." + strconv.Itoa(lane) + ".>"
	}
	return LaneSubject(queue, lane)
}

// SubjectOf returns the subject of a start.
func (p Place) SubjectOf(s *execution.Start) string {
	if s.OrderKey == "" {
		return p.StartSubject(s.Queue, s.WorkflowID, s.NodeID)
	}
	lane := execution.LaneOf(s.WorkflowID, s.OrderKey)
	return p.OrderedSubject(s.Queue, lane, s.WorkflowID, s.NodeID)
}

// RememberedMessage returns the message that makes the stream of this place recognise repeats of a
// delivery whose start is in another stream. id is the Nats-Msg-Id of that start.
func (p Place) RememberedMessage(queue, workflowID, id string) *nats.Msg {
	msg := nats.NewMsg(p.RememberedSubject(queue, workflowID))
	msg.Header[jetstream.MsgIDHeader] = []string{id}
	return msg
}

// PlaceOf returns the place of the messages with a subject, and the queue whose own stream it is. A
// subject that is not in an own stream is in the shared place, and queue is "" then.
func PlaceOf(subject string) (p Place, queue string) {
	if queue, _, ok := parseOwnSubject(subject); ok {
		return Place{Own: true}, queue
	}
	if rest, ok := strings.CutPrefix(subject, reportsPrefix); ok {
		queue, _, _ = strings.Cut(rest, ".")
		return Place{Own: true}, queue
	}
	return Place{}, ""
}

// StreamOf returns the name of the stream that has a subject of a start, a rejection or a report.
func StreamOf(subject string) string {
	p, queue := PlaceOf(subject)
	if IsProgress(subject) {
		return p.ProgressName(queue)
	}
	return p.Name(queue)
}

// parseOwnSubject divides a subject of an own stream of starts into its queue and its tail, which
// begins as the subject of the shared stream does after "executions.".
func parseOwnSubject(subject string) (queue, tail string, ok bool) {
	rest, ok := strings.CutPrefix(subject, ownPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}

// StartParts are the parts of the subject of a start.
type StartParts struct {
	Place
	Queue      string
	Lane       int // -1 means that the start has no order key
	WorkflowID string
	NodeID     string
}

// ParseStartSubject returns the parts of the subject of a start. ok is false for any other subject.
func ParseStartSubject(subject string) (s StartParts, ok bool) {
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
		return StartParts{}, false
	}
	if ordered {
		var number string
		number, rest, _ = strings.Cut(rest, ".")
		lane, err := strconv.Atoi(number)
		if err != nil || lane < 0 || strconv.Itoa(lane) != number {
			return StartParts{}, false
		}
		s.Lane = lane
	}
	s.WorkflowID, s.NodeID, ok = strings.Cut(rest, ".")
	if !ok || s.Queue == "" || s.WorkflowID == "" || s.NodeID == "" ||
		strings.Contains(s.NodeID, ".") {
		return StartParts{}, false
	}
	return s, true
}

// IsRemembered reports whether a subject is the subject of a message that carries only a
// Nats-Msg-Id.
func IsRemembered(subject string) bool {
	if _, tail, ok := parseOwnSubject(subject); ok {
		return strings.HasPrefix(tail, "remembered.")
	}
	return strings.HasPrefix(subject, rememberedPrefix)
}

// Phase says where the starts of a queue are stored while the queue moves. Its values equal those
// of hookstartv1.QueueStreamPhase.
type Phase int32

// These are the phases, in the order in which a queue goes through them.
const (
	PhaseShared Phase = iota // in the shared stream; the queue has no own stream
	// In the shared stream, while delivery IDs are copied to the own one.
	PhaseMovingIn
	PhaseClosedIn  // nowhere, while the last delivery IDs are copied to the own stream
	PhaseOwn       // in the own stream
	PhaseMovingOut // in the own stream, while delivery IDs are copied to the shared one
	PhaseClosedOut // nowhere, while the last delivery IDs are copied to the shared stream
	PhaseDraining  // in the shared stream, until the own stream's messages have expired
)

// Place returns the place where the queue's starts are stored. open is false if none are stored
// now; the place is then the place that the queue leaves.
func (p Phase) Place() (place Place, open bool) {
	switch p {
	case PhaseOwn, PhaseMovingOut:
		return Place{Own: true}, true
	case PhaseClosedOut:
		return Place{Own: true}, false
	case PhaseClosedIn:
		return Place{}, false
	case PhaseShared, PhaseMovingIn, PhaseDraining:
	}
	return Place{}, true
}

// QueueStream is the own stream of a queue, by the queue's record. The zero value means none.
type QueueStream struct {
	Phase  Phase     // where starts are stored now
	Limits OwnLimits // as an operator has set them
}

// OwnLimits are the limits of a queue's own stream. The zero value means the limits of the shared
// stream, without a maximum size.
type OwnLimits struct {
	// MaxBytes is the size at which the stream refuses new messages. 0 means no limit.
	MaxBytes int64
	// MaxAge is the time for which messages are kept. 0 means as long as in EXECUTIONS.
	MaxAge time.Duration
	// Replicas is the number of servers that store the stream. 0 means as many as EXECUTIONS.
	Replicas int
	// PlacementTags are the tags that a server must have to hold a replica. Empty means any server.
	PlacementTags []string
}

// withLimits returns the settings of EXECUTIONS with the limits of an own stream.
func (s Settings) withLimits(limits OwnLimits) Settings {
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

func (l OwnLimits) placement() *jetstream.Placement {
	if len(l.PlacementTags) == 0 {
		return nil
	}
	return &jetstream.Placement{Tags: l.PlacementTags}
}

// OwnConfig returns the configuration of a queue's own stream of starts and rejections.
func (s Settings) OwnConfig(queue string, limits OwnLimits) jetstream.StreamConfig {
	config := s.withLimits(limits).Config()
	config.Name, config.Subjects = OwnName(queue), []string{ownPrefix + queue + ".>"}
	config.Description = "hookstart: starts and rejections of the queue " + queue
	config.Placement = limits.placement()
	return config
}

// OwnProgressConfig returns the configuration of the stream of reports that belongs to a queue's
// own stream.
func (s Settings) OwnProgressConfig(queue string, limits OwnLimits) jetstream.StreamConfig {
	config := s.withLimits(limits).ProgressConfig()
	config.Name, config.Subjects = OwnProgressName(queue), []string{reportsPrefix + queue + ".*.*"}
	config.Description = "hookstart: what runners report of executions of the queue " + queue
	config.Placement = limits.placement()
	return config
}

// ErrNoPlacement means that placement tags were given for a server that is not in a cluster.
var ErrNoPlacement = errors.New("placement tags need a cluster of NATS servers")

// EnsureOwn creates the own streams of a queue, or changes their limits. s are the settings of
// EXECUTIONS. A shorter age deletes older messages at once. EnsureOwn can be repeated.
func EnsureOwn(
	ctx context.Context, js jetstream.JetStream, s Settings, queue string, limits OwnLimits,
) error {
	if err := s.withLimits(limits).Validate(); err != nil {
		return err
	}
	if len(limits.PlacementTags) > 0 {
		shared, err := js.Stream(ctx, Name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", Name, err)
		}
		// A server that is not in a cluster answers with a cluster without a name.
		if cluster := shared.CachedInfo().Cluster; cluster == nil || cluster.Name == "" {
			return ErrNoPlacement
		}
	}
	starts, reports := s.OwnConfig(queue, limits), s.OwnProgressConfig(queue, limits)
	// The reports' stream comes first: a runner that finds a start can report its end.
	for {
		err := createOrUpdate(ctx, js, &reports)
		if !tooLarge(err) || reports.MaxBytes <= minProgressBytes {
			if err != nil {
				return err
			}
			break
		}
		// The server reserves the space of the limit, as in ensureProgress.
		reports.MaxBytes /= 4
	}
	return createOrUpdate(ctx, js, &starts)
}

// createOrUpdate creates a stream. If it exists, its limits are changed.
func createOrUpdate(
	ctx context.Context, js jetstream.JetStream, want *jetstream.StreamConfig,
) error {
	existing, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, *want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another executor was first
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
		return fmt.Errorf("stream %s: %w", want.Name, tooFewServers(err, want.Replicas))
	}
	return nil
}

// DeleteOwn deletes the own streams of a queue with everything that they hold. Streams that do not
// exist are skipped.
func DeleteOwn(ctx context.Context, js jetstream.JetStream, queue string) error {
	for _, name := range []string{OwnName(queue), OwnProgressName(queue)} {
		err := js.DeleteStream(ctx, name)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete the stream %s: %w", name, err)
		}
	}
	return nil
}

// Streams returns the names of the existing streams of starts, and of the existing streams of
// reports: EXECUTIONS and PROGRESS, and the own streams of queues.
func Streams(ctx context.Context, js jetstream.JetStream) (starts, reports []string, err error) {
	names := js.StreamNames(ctx, jetstream.WithStreamListSubject("executions.>"))
	for name := range names.Name() {
		_, own := QueueOfStream(name)
		_, ownReports := QueueOfProgressStream(name)
		switch {
		case own || name == Name:
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
