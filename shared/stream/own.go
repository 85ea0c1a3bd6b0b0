package stream

import (
	"strconv"
	"strings"
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
// that this stream recognises repeats of the delivery after a move. Runners have no consumer for it,
// and the executor records nothing of it.

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
func QueueOfStream(name string) (queue string, ok bool) {
	return strings.CutPrefix(name, ownNamePrefix)
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
		return ownPrefix + queue + ".ordered." + strconv.Itoa(lane) + "." + workflowID + "." + nodeID
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
