package store

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Recording writes the content of the streams: records, the progress of executions, messages put
// aside, and which messages have been handled. The recorder uses it; operate does, too, to record a
// message put aside that can be decoded after all. Requests that started no execution
// are in Reports.
type Recording interface {
	// Apply records a batch in one transaction. An empty batch does nothing. Even if two processes
	// store a step and its record concurrently, the step is applied to the record.
	Apply(ctx context.Context, batch Batch) (ApplyResult, error)

	// EndLostExecutions ends records as failed with a reason, and returns their IDs. It skips
	// records that are final or whose StreamSequence has changed.
	EndLostExecutions(ctx context.Context, lost []LostExecution, at time.Time,
		reason string) (ended []string,
		err error)
}

// Batch holds everything that one transaction records.
type Batch struct {
	// New holds executions that start as queued or rejected. If a record with the ID exists, the
	// message is a redelivery and the record stays unchanged, with one exception: if the record is
	// not final and its message now has a different sequence, StreamSequence is updated. The
	// message at the old sequence is then gone, and without the update the execution would count as
	// lost.
	New []Record
	// Progress holds steps, which are applied in order, after New. A step changes nothing if
	// execution.Status.Follows does not allow its status: it is late or a duplicate. A step whose
	// Queue or WorkflowID differs from the record's changes nothing either, because a runner may
	// report only on executions that it received. A step of an unrecorded execution is kept, and
	// applied once the execution is recorded.
	Progress []execution.Progress
	// PutAside holds messages to put aside. A message that is already put aside does not change.
	// Messages are identified by stream sequence and subject.
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
	// Unknown holds the IDs in Progress that are not recorded yet. Their steps have been kept.
	Unknown []string
	// Dropped is the number of progress steps of unrecorded executions that were not kept, or were
	// deleted, because of MaxPendingSteps and MaxPendingStepsPerExecution.
	Dropped int
	// Foreign holds the IDs in Progress whose record has another queue or workflow.
	Foreign []string
}

// LostExecution identifies a record whose start message is no longer in the stream. StreamSequence
// is the record's value when this was detected.
type LostExecution struct {
	ID             string
	StreamSequence uint64 // in the stream with the start messages of the record's queue
}
