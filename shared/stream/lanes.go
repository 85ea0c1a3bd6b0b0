package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Within each group of runners, executions of one workflow with the same order key are delivered
// one at a time, in the order of the stream. The start messages with an order key are divided into
// the lanes of their queue, by workflow and key. Each group has one consumer for each lane, which
// may have only one unacknowledged message. So the server delivers the next start message of a lane
// only after the previous one has been acknowledged. This holds no matter how often the previous
// one is retried, and even if the runner that works on it dies.
//
// The number of lanes limits the number of consumers. Different keys in the same lane wait for each
// other.

// maxAcceptedLanes is the maximum number of lanes that a runner accepts in a queue's record.
const maxAcceptedLanes = 1_000

// LaneFilterSubject returns the wildcard subject of all start messages in one lane of a queue. It
// is the filter subject of the lane's consumers.
func LaneFilterSubject(queue string, lane int) string {
	return orderedPrefix + queue + "." + strconv.Itoa(lane) + ".>"
}

// OrderedFilterSubject returns the wildcard subject of all start messages of a queue that have an
// order key.
func OrderedFilterSubject(queue string) string { return orderedPrefix + queue + ".>" }

// LastReport holds what the last report on an execution says: whether the execution has ended in
// the caller's group of runners, and the other groups in which it has ended. Any group may have
// sent the report.
type LastReport struct {
	// Sequence is the report's sequence number in its stream; 0 means that there is no report.
	Sequence uint64
	// EndedInGroup means that the execution has ended in the caller's group. It is also true if the
	// execution was ended by a runner whose reports name no group.
	EndedInGroup bool
	// OtherEndedGroups holds the names of the groups, other than the caller's, in which the
	// execution has ended.
	OtherEndedGroups []string
}

// ReadLastReport reads the last report on an execution. group is the caller's group of runners, and
// subject is the subject of the execution's reports. Any replica of the stream may respond, and it
// may lag a moment behind the leader. A report that cannot be decoded counts as one that does not
// end the execution.
func ReadLastReport(
	ctx context.Context, nc *nats.Conn, subject, group string,
) (last LastReport, err error) {
	msg, err := nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+StreamOf(subject)+"."+subject, nil)
	if err != nil {
		return last, fmt.Errorf("the last report on %s: %w", subject, err)
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
	case natsStatusNotFound:
		return last, nil
	default:
		return last,
			fmt.Errorf("the last report on %s: status %s %s", subject, status,
				msg.Header.Get("Description"))
	}
	last.Sequence, err = strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return last, fmt.Errorf("the last report on %s: its sequence number: %w", subject, err)
	}
	event, err := Decode(subject, msg.Header, msg.Data)
	if err != nil || event.Progress == nil {
		return last, nil //nolint:nilerr // a report that cannot be read says nothing else
	}
	reporter := event.Progress.Group
	ended := event.Progress.EndedGroups
	if event.Progress.Status.Final() {
		last.EndedInGroup = reporter == ""
		ended = append(ended, reporter)
	}
	for _, other := range ended {
		switch {
		case other == group:
			last.EndedInGroup = true
		case other != "" && !slices.Contains(last.OtherEndedGroups, other):
			last.OtherEndedGroups = append(last.OtherEndedGroups, other)
		}
	}
	return last, nil
}

// IsLastDelivery reports whether msg is the newest delivery of its consumer, and the consumer still
// has an unacknowledged message. The consumer of a lane has at most one unacknowledged message, so
// for such a consumer, true means that msg itself is unacknowledged. The result is false if the
// consumer has delivered msg again, to this or another client, or if the consumer or the stream
// does not exist. IsLastDelivery queries the consumer's leader.
func IsLastDelivery(
	ctx context.Context, js jetstream.JetStream, msg jetstream.Msg,
) (bool, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return false, err
	}
	found, err := js.Consumer(ctx, meta.Stream, meta.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("consumer %s: %w", meta.Consumer, err)
	}
	info := found.CachedInfo()
	return info.NumAckPending > 0 && info.Delivered.Consumer == meta.Sequence.Consumer, nil
}
