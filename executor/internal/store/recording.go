package store

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Recording writes the content of the streams: records, the progress of executions, messages put
// aside, and which messages have been handled. The recorder uses it. operate uses it to record a
// message that was put aside but can be decoded after all. Reports writes the requests that started
// no execution.
type Recording interface {
	// Apply records a batch in one transaction. An empty batch does nothing. A step is applied to
	// its record even if two processes store the step and the record concurrently.
	Apply(ctx context.Context, batch Batch) (ApplyResult, error)

	// EndLostExecutions ends records as failed, with a reason, and returns their IDs. It skips
	// records that are final, and records whose StreamSequence has changed.
	EndLostExecutions(ctx context.Context, lost []LostExecution, at time.Time,
		reason string) (ended []string,
		err error)
}

// Batch holds everything that one transaction records.
type Batch struct {
	// New holds executions that start as queued or rejected. If a record with the ID exists, the
	// message is a redelivery and the record stays unchanged, with one exception: if the record is
	// not final and its message now has a different sequence, StreamSequence is updated. In this
	// case, the message at the old sequence no longer exists, and without the update the execution
	// would count as lost.
	New []Record
	// Progress holds steps, which are applied in order, after New. A step changes nothing if
	// execution.Status.Follows does not allow its status, because it is late or a duplicate. A step
	// changes nothing either if its Queue or WorkflowID differs from the record's, because a runner
	// may report only on executions that it received. A step of an unrecorded execution is kept,
	// and applied once the execution is recorded.
	Progress []execution.Progress
	// PutAside holds messages to put aside, identified by stream sequence and subject. If a message
	// is already put aside, the stored message is kept.
	PutAside []AsideMessage
	// Recovered holds the keys of put-aside messages that the rest of the batch records. They are
	// no longer put aside afterwards.
	Recovered []MessageKey
	// Audit holds audit entries about the batch's records. If an entry's ID already exists, the
	// stored entry is kept.
	Audit []AuditEntry
	// Handled holds the stream messages that the batch records or puts aside. They determine the
	// database's position in the streams: see HandledMessages.
	Handled []HandledRange
}

// ApplyResult is the result of applying a batch.
type ApplyResult struct {
	// Changed holds the IDs of the records that are new or have changed, each once.
	Changed []string
	// Unknown holds the IDs in Progress that are not recorded yet. Their steps are kept, within the
	// limits: see Dropped.
	Unknown []string
	// Dropped is the number of progress steps of unrecorded executions that MaxPendingSteps or
	// MaxPendingStepsPerExecution caused to be dropped: new steps, or older ones that were kept
	// before.
	Dropped int
	// Foreign holds the IDs in Progress whose record has another queue or workflow.
	Foreign []string
}

// LostExecution identifies a record whose start message is no longer in the stream. StreamSequence
// is the value in the record when the loss was detected.
type LostExecution struct {
	ID             string
	StreamSequence uint64 // in the stream with the start messages of the record's queue
}
