package recorder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/stream"
)

// runnerGroup is a group of workflow runners, which share one consumer.
type runnerGroup struct {
	consumerName string
	// ofKit means that the consumer has the name that the kits give: its members are runners. Other
	// consumers of start messages are taken for those of runners, too, but may belong to a program
	// that runs nothing.
	ofKit        bool
	ackFloor     uint64 // the sequence up to which every message is acknowledged
	active       bool   // whether a member is waiting for messages or handling some
	consumerInfo *jetstream.ConsumerInfo
}

// receives reports whether the group receives start messages with the given subject.
func (g *runnerGroup) receives(subject string) bool {
	return stream.ConsumerReceives(g.consumerInfo.Config, subject)
}

// runnerGroupsOf returns the groups of runners that consume a stream, those of the kits and those
// of other programs.
func runnerGroupsOf(ctx context.Context, s jetstream.Stream) (groups []runnerGroup, err error) {
	names := s.ConsumerNames(ctx)
	var all []string
	for name := range names.Name() {
		if name != stream.RecorderConsumerName {
			all = append(all, name)
		}
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of runners: %w", err)
	}
	for _, name := range all {
		consumer, err := s.Consumer(ctx, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("consumer %s: %w", name, err)
		}
		info := consumer.CachedInfo()
		if !stream.IsRunnerConsumer(info.Config) {
			continue
		}
		groups = append(groups, runnerGroup{
			consumerName: name,
			ofKit:        strings.HasPrefix(name, stream.RunnerConsumerPrefix),
			ackFloor:     info.AckFloor.Stream,
			active:       info.NumWaiting+info.NumAckPending > 0 || info.PushBound,
			consumerInfo: info,
		})
	}
	return groups, nil
}

// haveAcknowledged reports whether a candidate's start message has been acknowledged by at least
// one group of runners that use a kit and by every active one. A group is active if one of its
// members is waiting for messages or handling some. Groups that do not use a kit may be programs
// that run nothing: if only such groups have acknowledged the message, every group must have done
// so, and otherwise they do not count. Groups that began after the message never count. If
// haveAcknowledged returns true and the execution has not ended, no report will follow, because
// runners report before they acknowledge.
func haveAcknowledged(groups []runnerGroup, c lostCandidate) bool {
	var byKit, byOther, waiting bool
	for i := range groups {
		g := &groups[i]
		switch {
		case !g.receives(c.startSubject):
		case stream.ConsumerBeginsAfter(g.consumerInfo, c.StreamSequence, c.startStoredAt):
		case g.ackFloor >= c.StreamSequence:
			byKit, byOther = byKit || g.ofKit, byOther || !g.ofKit
		case g.active && g.ofKit:
			return false
		default:
			waiting = true
		}
	}
	return byKit || byOther && !waiting
}

// copiedStartMsgIDPrefix is the prefix of the Nats-Msg-Id of a start message that the recorder has
// copied to the end of its stream.
const copiedStartMsgIDPrefix = "again-"

// maxAckFloorBeyondEnd limits how many copies redeliverSkippedStarts appends for a group whose ack
// floor is beyond the end of the stream and whose consumer cannot be rewound. Such a group skips
// every message whose sequence is not above its ack floor, including copies. redeliverSkippedStarts
// therefore has to append copies, and copies of these copies, until the stream extends past the ack
// floor. It appends none for the group if the ack floor is more than maxAckFloorBeyondEnd sequences
// beyond the end.
const maxAckFloorBeyondEnd = 1000

// redeliverSkippedStarts makes the groups of runners receive the start messages that they would
// skip after a stream was rolled back.
//
// If a group's ack floor is beyond the end of the stream, the group has handled none of the new
// messages, and redeliverSkippedStarts rewinds the group's consumer. There are two cases in which
// it cannot do that. If the ack floor is within the stream, a rewind would also redeliver messages
// that the group has already handled. If the consumer began after the message to which it would
// have to be rewound, the server refuses to rewind it.
//
// In these cases, redeliverSkippedStarts appends copies of the skipped start messages to the
// stream, and the records of their executions then refer to the copies. It does not copy a message
// if a group of a kit will still receive the original, or if the execution has ended. It is
// idempotent, because a copy's Nats-Msg-Id is derived from the original message.
func (r *Recorder) redeliverSkippedStarts(ctx context.Context, p *consumerPosition) error {
	groups, err := runnerGroupsOf(ctx, p.stream)
	if err != nil {
		return err
	}
	info := p.stream.CachedInfo()
	last := uint64(0) // the highest ack floor of the groups that are not rewound
	for i := range groups {
		g := &groups[i]
		switch {
		case g.ackFloor < p.firstReusedSequence:
		case g.ackFloor > info.State.LastSeq:
			rewound, err := r.rewindRunnerGroup(ctx, p, g)
			if err != nil {
				return err
			}
			switch {
			case rewound:
				g.ackFloor = p.firstReusedSequence - 1
			case g.ackFloor-info.State.LastSeq <= maxAckFloorBeyondEnd:
				last = max(last, g.ackFloor)
			}
		default:
			last = max(last, g.ackFloor)
		}
	}
	// A group also skips a copy whose sequence is not above the group's ack floor. So the loop also
	// copies the copies, as long as their sequences are not above last, the highest ack floor of
	// the groups that need copies.
	copied, end := 0, info.State.LastSeq
	for sequence := p.firstReusedSequence; sequence <= min(last, end); sequence++ {
		copySequence, err := r.publishStartCopy(ctx, p.stream, groups, sequence)
		if err != nil {
			return err
		}
		if copySequence > 0 {
			copied++
			end = max(end, copySequence)
		}
	}
	if copied > 0 {
		r.metrics.rewinds.WithLabelValues(rewindCauseRunners).Add(float64(copied))
		r.log.WithFields(logrus.Fields{
			"executions": copied, "first": p.firstReusedSequence,
			"last": last,
		}).
			Error("the stream lost messages, and runners skipped new starts; they are given " +
				"copies of these")
	}
	return nil
}

// rewindRunnerGroup rewinds the consumer of a group whose ack floor is beyond the end of the stream
// to p.firstReusedSequence. It returns false if the server refuses that, because the consumer began
// with new messages, or at a sequence or a time after p.firstReusedSequence, or because of another
// setting of a consumer that no kit has made.
func (r *Recorder) rewindRunnerGroup(
	ctx context.Context, p *consumerPosition, g *runnerGroup,
) (rewound bool, err error) {
	log := r.log.WithFields(logrus.Fields{
		"consumer": g.consumerName, "acknowledged": g.ackFloor, "first": p.firstReusedSequence,
	})
	_, err = r.js.ResetConsumerToSequence(ctx, p.streamName, g.consumerName, p.firstReusedSequence)
	if refused := new(jetstream.APIError); errors.As(err, &refused) &&
		(refused.ErrorCode == jetstream.JSErrCodeConsumerInvalidReset || !g.ofKit) {
		log.Error("the stream lost messages that runners had acknowledged; the server cannot " +
			"rewind their consumer, so it skips new starts")
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf(
			"rewind the consumer %s to %d: %w",
			g.consumerName,
			p.firstReusedSequence,
			err,
		)
	}
	r.metrics.rewinds.WithLabelValues(rewindCauseRunners).Inc()
	log.Error("the stream lost messages that runners had acknowledged; their consumer was " +
		"rewound to its end")
	return true, nil
}

// publishStartCopy appends a copy of the start message with the given sequence to its stream, and
// returns the sequence of the copy. It publishes nothing and returns 0 if no group of runners has
// moved past the message, if a group of a kit will still receive it, if the execution has ended, or
// if the message no longer exists.
func (r *Recorder) publishStartCopy(
	ctx context.Context, s jetstream.Stream, groups []runnerGroup, sequence uint64,
) (copySequence uint64, err error) {
	getting, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	raw, err := s.GetMsg(getting, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("message %d: %w", sequence, err)
	}
	event, _, err := stream.DecodeSummary(raw.Subject, raw.Header, raw.Data)
	if err != nil || event.Start == nil {
		return 0, nil
	}
	passed := false
	for i := range groups {
		g := &groups[i]
		switch {
		case !g.receives(raw.Subject):
		case g.ackFloor >= sequence:
			passed = true
		case g.ofKit:
			return 0, nil
		}
	}
	if !passed {
		return 0, nil
	}
	record, err := r.store.Get(ctx, event.Start.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return 0, err
	}
	if err == nil && record.Status.Final() {
		return 0, nil
	}
	// Read the last report from the stream, too: the execution may have ended although its last
	// report is not recorded yet.
	at, _ := stream.LayoutOf(raw.Subject)
	reports, err := r.js.Stream(ctx, pairOfStream(s.CachedInfo().Config.Name).progress)
	if err != nil {
		return 0, fmt.Errorf("the stream of reports: %w", err)
	}
	report, err := reports.GetLastMsgForSubject(getting,
		at.ProgressSubject(event.Start.Queue, event.Start.WorkflowID, event.Start.ID))
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, fmt.Errorf("reports of %s: %w", event.Start.ID, err)
	}
	if err == nil {
		if said, err := stream.Decode(report.Subject, report.Header, report.Data); err != nil ||
			said.Progress.Status.Final() {
			return 0, nil
		}
	}
	header := maps.Clone(raw.Header)
	header[jetstream.MsgIDHeader] = []string{
		fmt.Sprint(copiedStartMsgIDPrefix, event.Start.ID, "-", sequence),
	}
	ack, err := r.js.PublishMsg(ctx, &nats.Msg{
		Subject: raw.Subject, Header: header, Data: raw.Data,
	})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// republishSkippedStarts handles unreported executions: their start messages count as acknowledged,
// although no runner has reported how they ended. If one of the given consumers has skipped the
// start message, republishSkippedStarts publishes a copy of it, unless the execution has ended. It
// returns the other executions, whose start messages runners have really received and acknowledged.
func (r *Recorder) republishSkippedStarts(
	ctx context.Context, streams startStreams, consumers []SkippingConsumer,
	unreported []lostCandidate,
) (acknowledged []lostCandidate, err error) {
	if len(consumers) == 0 {
		return unreported, nil
	}
	copied := 0
	for _, one := range unreported {
		at := streams[one.startStreamName]
		var passing []runnerGroup // groups that have skipped messages
		for _, g := range at.groups {
			if slices.Contains(consumers, SkippingConsumer{one.startStreamName, g.consumerName}) {
				passing = append(passing, g)
			}
		}
		if !haveAcknowledged(passing, one) {
			acknowledged = append(acknowledged, one)
			continue
		}
		copySequence, err := r.publishStartCopy(ctx, at.stream, at.groups, one.StreamSequence)
		if err != nil {
			return nil, err
		}
		if copySequence > 0 {
			copied++
		}
	}
	if copied > 0 {
		r.metrics.rewinds.WithLabelValues(rewindCauseRunners).Add(float64(copied))
		r.log.WithFields(logrus.Fields{"executions": copied, "consumers": consumers}).
			Error("NATS had lost what runners have acknowledged; they are given copies of the " +
				"starts that have not ended")
	}
	return acknowledged, nil
}

// pointRecordsAtCopies makes records refer to the copies of their start messages, if the batch
// contains such copies. The recorder publishes a copy for groups of runners that have skipped the
// original.
func pointRecordsAtCopies(entries []*entry, records []store.Record) {
	var copies map[string]uint64
	for _, e := range entries {
		if e.isCopy {
			if copies == nil {
				copies = map[string]uint64{}
			}
			copies[e.record.ID] = e.meta.Sequence.Stream
		}
	}
	for i := range records {
		if sequence, ok := copies[records[i].ID]; ok {
			records[i].StreamSequence = max(sequence, records[i].StreamSequence)
		}
	}
}
