package stream

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Executions of one workflow with one order key are given to each group of runners one at a time,
// in the order of the stream. The starts of a queue that have a key are divided into lanes, by
// their workflow and key. Each group has one consumer for each lane, and one message of it at a
// time may be unacknowledged. So the server hands out the next start of a lane only after the one
// before was acknowledged, however often that one was tried, and whichever member of the group died
// meanwhile.
//
// The number of lanes bounds the number of consumers. Keys that share a lane wait for each other.

// maxLanes is the maximum number of lanes in the record of a queue that a runner accepts.
const maxLanes = 1_000

// LaneSubject returns the wildcard for all starts of one lane of a queue. It is the filter subject
// of the lane's consumers.
func LaneSubject(queue string, lane int) string {
	return orderedPrefix + queue + "." + strconv.Itoa(lane) + ".>"
}

// OrderedSubjects returns the wildcard for all starts of one queue that have an order key.
func OrderedSubjects(queue string) string { return orderedPrefix + queue + ".>" }

// ConsumerSubject returns the filter subject of the runners' consumers that get a start, by the
// start's subject. It returns "" for the subject of any other message.
func ConsumerSubject(subject string) string {
	start, ok := ParseStartSubject(subject)
	switch {
	case !ok:
		return ""
	case start.Lane < 0:
		return start.QueueSubject(start.Queue)
	default:
		return start.LaneSubject(start.Queue, start.Lane)
	}
}

// HasEnded reports whether the last report on a subject, the subject of one execution's reports, is
// a final one. A replica answers, which may lag a moment behind the leader.
func HasEnded(ctx context.Context, nc *nats.Conn, subject string) (bool, error) {
	msg, err := nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+StreamOf(subject)+"."+subject, nil)
	if err != nil {
		return false, fmt.Errorf("the last report on %s: %w", subject, err)
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
	case "404":
		return false, nil
	default:
		return false,
			fmt.Errorf("the last report on %s: status %s %s", subject, status,
				msg.Header.Get("Description"))
	}
	event, err := Decode(subject, msg.Header, msg.Data)
	if err != nil || event.Progress == nil {
		return false, nil //nolint:nilerr // a report that cannot be read says nothing
	}
	return event.Progress.Status.Final(), nil
}
