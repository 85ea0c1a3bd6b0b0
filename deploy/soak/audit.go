package soak

import (
	"fmt"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// ledgerAuditResult holds the counts and findings from comparing the senders' ledger with the
// streams and the execution records. Each string describes one finding.
type ledgerAuditResult struct {
	deliveries   int
	acknowledged int      // executions acknowledged to senders
	stored       int      // executions in the stream, whether acknowledged or not
	recorded     int      // executions with a record
	ended        int      // executions with a reported final status
	lost         []string // descriptions of acknowledged executions that are not stored
	unrecorded   []string // descriptions of stored executions without a record
	duplicates   []string // descriptions of executions or messages that exist twice
	// wrongStatus holds the executions whose recorded status differs from the final status that a
	// runner reported.
	wrongStatus []string
	// skipped is the number of executions that NATS skipped: no runner received them, an executor
	// ended them as failed because no report arrived, and nodeDiskWasFull returns true for them.
	skipped int
	// wrongRefusals holds the deliveries that were refused permanently although their workflow was
	// always active.
	wrongRefusals []string
	oddities      []string // contradictions that do not fit any other kind
	// wronglyDeduplicatedCount is the number of deliveries with a response that was marked as
	// deduplicated although no earlier request can have been stored.
	wronglyDeduplicatedCount int
	refusedButStoredByFault  map[string]int
	refusedButStoredWithID   int // stored, but refused until the sender gave up; had a delivery ID
	unansweredButStored      int // stored although the sender got no response and did not retry

	ownStreams     []string       // names of the streams that queues have of their own
	storedByStream map[string]int // number of stored executions by the stream of their starts
}

// auditLedger compares the ledger with the stored and recorded executions. Except for skipped
// executions, the findings depend only on the responses that senders got, not on which faults
// occurred. The kinds of findings are:
//
//   - lost: the execution was acknowledged but is not stored.
//   - unrecorded: the execution is stored but not recorded.
//   - doubled: an execution has two messages, or a delivery has two executions, or two responses to
//     a delivery were not marked as deduplicated. If all responses were marked, that is no
//     finding: the unmarked response may not have reached the sender.
//   - a ghost: the request had no delivery ID and was refused, but is stored. The ingress publishes
//     such a request only once; if the stream does not acknowledge the message in time, the ingress
//     refuses the request without knowing whether the message was stored. Ghosts are therefore
//     allowed.
//   - wrong: the recorded final status differs from the reported one.
//   - skipped: see ledgerAuditResult.skipped. Skipped executions are allowed.
func auditLedger(
	b *ledger, s streamContents, records map[string]recordSummary, incidents []incident,
) *ledgerAuditResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &ledgerAuditResult{
		deliveries:              len(b.deliveries),
		stored:                  len(s.starts),
		recorded:                len(records),
		refusedButStoredByFault: map[string]int{},
	}
	acknowledged := a.auditAcknowledgedExecutions(b, s.starts, records, incidents)
	a.acknowledged = len(acknowledged)
	a.auditStoredExecutions(b, s.starts, records, incidents, acknowledged)
	a.auditFinalStatuses(b, s, records, incidents)
	for id, r := range records {
		if _, isStored := s.starts[id]; r.count != 1 || !isStored {
			a.oddities = append(a.oddities,
				fmt.Sprintf("%s is recorded %d times, and in the stream %d times", id, r.count,
					s.starts[id].messageCount))
		}
	}
	return a
}

// auditAcknowledgedExecutions checks that each execution that was acknowledged to a sender is
// stored and recorded, and checks the responses for each delivery. It returns the IDs of the
// acknowledged executions.
func (a *ledgerAuditResult) auditAcknowledgedExecutions(
	b *ledger, starts map[string]storedStart, records map[string]recordSummary,
	incidents []incident,
) (acknowledged map[string]bool) {
	acknowledged = map[string]bool{}
	for _, d := range b.deliveries {
		for _, id := range d.executionIDs {
			acknowledged[id] = true
			switch s, isStored := starts[id]; {
			case !isStored:
				a.lost = append(a.lost,
					fmt.Sprintf("%s (delivery %s, %s) is not in the stream", id, d.marker,
						timeAndFaults(d, incidents)))
			case s.marker != d.marker:
				a.oddities = append(a.oddities,
					fmt.Sprintf("%s was given to delivery %s and is of delivery %s", id, d.marker,
						s.marker))
			case records[id].count == 0:
				a.unrecorded = append(a.unrecorded,
					fmt.Sprintf("%s (delivery %s, %s)", id, d.marker, timeAndFaults(d, incidents)))
			}
		}
		if len(d.executionIDs) > 1 {
			a.duplicates = append(a.duplicates,
				fmt.Sprintf("delivery %s (%s) was given %s", d.marker, timeAndFaults(d, incidents),
					strings.Join(d.executionIDs, " and ")))
		}
		if d.originals > 1 {
			a.duplicates = append(a.duplicates,
				fmt.Sprintf("delivery %s (%s) was told %d times that it is the first", d.marker,
					timeAndFaults(d, incidents), d.originals))
		}
		if d.wronglyDeduplicated {
			a.wronglyDeduplicatedCount++
		}
		if d.permanentRefusal != "" {
			a.wrongRefusals = append(a.wrongRefusals,
				fmt.Sprintf("delivery %s (%s) was answered %s",
					d.marker, timeAndFaults(d, incidents), d.permanentRefusal))
		}
	}
	return acknowledged
}

// auditStoredExecutions checks each stored execution against the responses to its delivery.
// acknowledged holds the IDs of the acknowledged executions.
func (a *ledgerAuditResult) auditStoredExecutions(
	b *ledger, starts map[string]storedStart, records map[string]recordSummary,
	incidents []incident,
	acknowledged map[string]bool,
) {
	executionsOf := map[string][]string{}
	for id, s := range starts {
		d := b.deliveries[s.marker]
		switch {
		case s.messageCount > 1:
			a.duplicates = append(a.duplicates,
				fmt.Sprintf("%s (delivery %s) is %d times in the stream", id, s.marker,
					s.messageCount))
		case d == nil:
			a.oddities = append(a.oddities,
				fmt.Sprintf("%s is of delivery %q, which nobody sent", id, s.marker))
		// The delivery was acknowledged, and auditAcknowledgedExecutions has checked it. If the
		// acknowledgment named another execution ID, the delivery has two executions, and the loop
		// below reports them as duplicates.
		case len(d.executionIDs) > 0:
		case d.unanswered > 0 && d.refusals == 0:
			a.unansweredButStored++
		case d.hasID:
			a.refusedButStoredWithID++
		default:
			a.refusedButStoredByFault[probableFaultKind(d, incidents)]++
		}
		executionsOf[s.marker] = append(executionsOf[s.marker], id)
		if records[id].count == 0 && !acknowledged[id] {
			a.unrecorded = append(a.unrecorded, fmt.Sprintf("%s (delivery %s)", id, s.marker))
		}
	}
	for marker, ids := range executionsOf {
		if len(ids) > 1 {
			a.duplicates = append(a.duplicates,
				fmt.Sprintf("delivery %s is stored as %s", marker, strings.Join(ids, " and as ")))
		}
	}
}

// auditStreamPlacement counts the executions in each stream. It checks that the executions of each
// queue are in the stream of that queue, and that no queue's own stream is empty. Queues do not
// change their stream during the load, so each queue has only one stream.
func (a *ledgerAuditResult) auditStreamPlacement(starts map[string]storedStart, i *installation) {
	a.storedByStream = map[string]int{}
	for id, s := range starts {
		a.storedByStream[s.streamName]++
		if s.streamName != i.layout(s.queue).StreamName(s.queue) {
			a.oddities = append(a.oddities, fmt.Sprintf("%s (delivery %s) of queue %s is in %s", id,
				s.marker, s.queue, s.streamName))
		}
	}
	for _, queue := range i.queuesWithOwnStream() {
		name := stream.OwnStreamName(queue)
		a.ownStreams = append(a.ownStreams, name)
		if a.storedByStream[name] == 0 {
			a.oddities = append(a.oddities, "no execution is in "+name)
		}
	}
}

// auditFinalStatuses compares the first reported final status of each execution with its record. If
// the streams contain no final status at all, the installation has no runners and nothing is
// checked. Otherwise, a runner must have reported the final status of every recorded execution,
// except of those that NATS has skipped. An execution with an unreadable report may also be
// recorded as failed.
func (a *ledgerAuditResult) auditFinalStatuses(
	b *ledger, s streamContents, records map[string]recordSummary, incidents []incident,
) {
	for id, start := range s.starts {
		end, isReported := s.finalStatuses[id]
		if isReported {
			a.ended++
		}
		r := records[id]
		d := b.deliveries[start.marker]
		switch {
		case r.count == 0 || len(s.finalStatuses) == 0:
		case !isReported && r.endedWithoutReport && !s.receivedByRunner[id] && d != nil &&
			nodeDiskWasFull(d, incidents):
			a.skipped++
		case !isReported:
			a.wrongStatus = append(a.wrongStatus,
				fmt.Sprintf("%s (message %d of %s, delivery %s, %s) is %s after attempt %d: no "+
					"runner reported the end", id, start.sequence, start.streamName, start.marker,
					timeAndFaults(d, incidents), r.status, r.attempts))
		case r.status == execution.Failed && s.withUnreadableReport[id]:
		case r.status != end:
			a.wrongStatus = append(a.wrongStatus,
				fmt.Sprintf("%s (delivery %s, %s) is %s: a runner reported %s", id, start.marker,
					timeAndFaults(d, incidents), r.status, end))
		}
	}
}

// nodeDiskWasFull reports whether the disk of a NATS node was full around the time at which a
// delivery was sent. Such a node's replica of a stream may lack the latest messages, because they
// could not be written. If the node also leads the runners' consumer, the consumer may skip these
// messages, although the other replicas have them. This has happened once in a soak; for the cause,
// see nats-server 2.15.2 (filestore.go, flushPendingMsgsLocked; consumer.go, getNextMsg). An
// executor then notices that the group has moved past an execution that was never reported, and
// ends it as failed, which makes it a dead letter.
func nodeDiskWasFull(d *delivery, incidents []incident) bool {
	for _, i := range incidents {
		if i.kind == faultNodeDiskFull && i.from.Before(d.ended.Add(skipWindow)) &&
			(i.to.IsZero() || i.to.After(d.began.Add(-skipWindow))) {
			return true
		}
	}
	return false
}

// skipWindow is how long before or after a delivery the disk of a NATS node must have been full for
// nodeDiskWasFull to return true.
const skipWindow = 10 * time.Second

// probableFaultKind returns the kind of the fault that probably caused a ghost: a message that NATS
// stored without acknowledging it in time. That is the last fault of a NATS node that began before
// the sender's last response. If there was none, it is the last fault of any kind that began before
// then.
func probableFaultKind(d *delivery, incidents []incident) string {
	kind, ofNode := "no fault", false
	for _, i := range incidents {
		isNode := strings.Contains(i.kind, "node")
		if i.from.Before(d.ended) && (isNode || !ofNode) {
			kind, ofNode = i.kind, isNode
		}
	}
	return kind
}

// timeAndFaults formats when a delivery was first sent and last answered, and lists the kinds of
// faults around that time. d is nil for a delivery that the soak has not sent.
func timeAndFaults(d *delivery, incidents []incident) string {
	if d == nil {
		return "not ours"
	}
	var kinds []string
	for _, i := range incidents {
		if i.from.Before(d.ended) && (i.to.IsZero() || i.to.Add(recoverTimeout/4).After(d.began)) {
			kinds = append(kinds, i.kind)
		}
	}
	return fmt.Sprintf("%s to %s, faults: %s", d.began.Format("15:04:05.000"),
		d.ended.Format("15:04:05.000"), strings.Join(kinds, ", "))
}
