//go:build linux

package powercut

import (
	"fmt"
	"sync"
)

// ledger holds everything that one installation has acknowledged to senders and operators.
type ledger struct {
	mu                 sync.Mutex
	deliveryIDPrefix   string            // the beginning of every delivery ID
	lastDeliveryNumber int               // the number in the newest delivery ID
	accepted           map[string]string // execution IDs keyed by delivery ID
	// resendIDs holds the IDs of deliveries that got a 503 or no response, so that it is
	// unknown whether they are stored. They must be sent again.
	resendIDs []string
	// workflows holds the last confirmed state of each workflow, keyed by ID. While a change to a
	// workflow is in flight, the workflow is not in the map.
	workflows        map[string]confirmedState
	confirmedChanges int      // number of confirmed changes
	unexpected       []string // descriptions of responses that must not occur
	// receives a value after each accepted delivery, unless its buffer of one value is full
	acceptedSignal chan struct{}
}

// confirmedState is the state of a workflow that the operators' API has confirmed.
type confirmedState struct {
	active bool
	token  string
}

func newLedger(prefix string) *ledger {
	return &ledger{
		deliveryIDPrefix: prefix,
		accepted:         map[string]string{},
		workflows:        map[string]confirmedState{},
		acceptedSignal:   make(chan struct{}, 1),
	}
}

// nextDeliveryID returns the ID of the next delivery to send. It takes an ID from resendIDs, so
// that the delivery is sent again, or creates a new one if resendIDs is empty.
func (l *ledger) nextDeliveryID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.resendIDs); n > 0 {
		id := l.resendIDs[n-1]
		l.resendIDs = l.resendIDs[:n-1]
		return id
	}
	l.lastDeliveryNumber++
	return fmt.Sprintf("%s-%d", l.deliveryIDPrefix, l.lastDeliveryNumber)
}

// recordAccepted records that a delivery was answered with 200. If an earlier response to the same
// delivery had a different execution ID, recordAccepted also adds this fault to unexpected.
func (l *ledger) recordAccepted(deliveryID, executionID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.accepted[deliveryID]; ok && before != executionID {
		l.unexpected = append(l.unexpected, fmt.Sprintf("delivery %s has the executions %s and %s",
			deliveryID, before, executionID))
	}
	l.accepted[deliveryID] = executionID
	select {
	case l.acceptedSignal <- struct{}{}:
	default:
	}
}

// markForResend records that a delivery got a 503 or no response, so that it must be sent again.
func (l *ledger) markForResend(deliveryID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resendIDs = append(l.resendIDs, deliveryID)
}

// recordUnexpected records a response that must not occur.
func (l *ledger) recordUnexpected(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unexpected = append(l.unexpected, fmt.Sprintf(format, args...))
}

// recordConfirmed records the state of a workflow after a change that the API has confirmed, and
// counts the change.
func (l *ledger) recordConfirmed(id string, c confirmedState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workflows[id] = c
	l.confirmedChanges++
}

// forgetWorkflow removes a workflow from the ledger, so that its state is not checked. Call it
// before a change: until the change is confirmed, both the old and the new state are correct.
func (l *ledger) forgetWorkflow(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.workflows, id)
}

// acceptedCount returns the number of deliveries that were accepted so far.
func (l *ledger) acceptedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
}
