package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/execution"
)

// AnyQueue is the wildcard for the queue in the subject of reports. With it, reports are found even
// if the workflow has moved to another queue since the execution was accepted.
const AnyQueue = "*"

// natsStatusNotFound is the Status header of the server's response if the requested message does
// not exist.
const natsStatusNotFound = "404"

// FirstFinalOrLastReport returns the first final report on an execution in PROGRESS. Later reports
// do not count. If there is no final report, it returns the last report with the state running, or
// nil if there is no report at all. queue may be AnyQueue. Any replica of the stream may respond,
// and a lagging one may not have the newest reports.
func FirstFinalOrLastReport(
	ctx context.Context, nc *nats.Conn, queue, workflowID, executionID string,
) (found *execution.Progress, err error) {
	return Layout{}.FirstFinalOrLastReport(ctx, nc, queue, workflowID, executionID)
}

// FirstFinalOrLastReport is like the FirstFinalOrLastReport function, but for an execution whose
// start message is stored in the stream that l identifies. For a queue's own stream, queue must not
// be AnyQueue, because the name of the stream of reports contains the name of the queue.
func (l Layout) FirstFinalOrLastReport(
	ctx context.Context, nc *nats.Conn, queue, workflowID, executionID string,
) (found *execution.Progress, err error) {
	subject := l.ProgressSubject(queue, workflowID, executionID)
	for from := uint64(1); ; from++ {
		msg, err := nextReport(ctx, nc, subject, from)
		if err != nil || msg == nil {
			return found, err
		}
		if from, err = strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10,
			64); err != nil {
			return found,
				fmt.Errorf("stream %s: the sequence of a message: %w", l.ProgressStreamName(queue),
					err)
		}
		event, err := Decode(msg.Header.Get(jetstream.SubjectHeader), msg.Header, msg.Data)
		if err != nil {
			continue // no process records a report that it cannot decode, so skip it
		}
		if found = event.Progress; found.Status.Final() {
			return found, nil
		}
	}
}

// nextReport returns the first report on a subject whose sequence number is at least from, or nil
// if there is none.
func nextReport(
	ctx context.Context, nc *nats.Conn, subject string, from uint64,
) (*nats.Msg, error) {
	name := StreamOf(subject)
	request := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":"%s"}`, from, subject)
	msg, err := nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+name, request)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return msg, nil
	case natsStatusNotFound:
		return nil, nil //nolint:nilnil // there is none
	default:
		return nil,
			fmt.Errorf("stream %s: %w", name, errors.New(status+" "+msg.Header.Get("Description")))
	}
}
