package store

import (
	"context"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Recording writes the content of the streams: records, the progress of executions, messages put
// aside, and which messages have been handled. The recorder uses it, and so does operate when it
// records a message that was put aside but can be decoded after all. Requests that started no
// execution are written by Reports instead.
type Recording interface {
	// Apply records a batch in one transaction. An empty batch does nothing. Even if two processes
	// store a step and its record at the same time, the step is applied to the record.
	Apply(ctx context.Context, batch Batch) (ApplyResult, error)

	// EndLostExecutions marks records as failed, with the given time and reason, and returns their
	// IDs. It skips records that are final, and records whose StreamSequence differs from the one
	// in lost.
	EndLostExecutions(ctx context.Context, lost []LostExecution, at time.Time,
		reason string) (ended []string,
		err error)
}

// Batch holds everything that one transaction records.
type Batch struct {
	// NewRecords holds executions to record as queued or rejected. If a record with the same ID
	// exists, the message is a redelivery, and the record stays unchanged, with one exception: if
	// the record is not final and the message now has another sequence, StreamSequence is updated.
	// Otherwise, the execution would count as lost, because its old sequence no longer exists in
	// the stream.
	NewRecords []Record
	// Progress holds steps, which are applied in order, after NewRecords. A late or duplicate step
	// changes nothing, because execution.Status.Follows does not allow its status. A step whose
	// Queue or WorkflowID differs from the record's changes nothing either, because a runner may
	// report only on executions that it has received. A step of an unrecorded execution is kept,
	// and applied when the execution is recorded.
	Progress []execution.Progress
	// PutAside holds messages to put aside, identified by stream sequence and subject. If a message
	// is already put aside, the stored message is kept.
	PutAside []AsideMessage
	// RecoveredAside holds the keys of put-aside messages that the rest of the batch records, so
	// they are removed from the messages put aside.
	RecoveredAside []MessageKey
	// Audit holds audit entries about the batch's records. If an entry's ID already exists, the
	// stored entry is kept.
	Audit []AuditEntry
	// Handled holds the stream messages that the batch records or puts aside. It lets the recorder
	// find out later which messages a database lacks: see HandledMessages.
	Handled []HandledRange
}

// ApplyResult describes what a batch has changed.
type ApplyResult struct {
	// ChangedIDs holds the IDs of the records that the batch has inserted or changed, each once.
	ChangedIDs []string
	// UnrecordedIDs holds the IDs in Progress that are not recorded yet. Their steps are kept,
	// within limits: see DroppedProgress.
	UnrecordedIDs []string
	// DroppedProgress is the number of pending steps, of this batch or of earlier ones, that were
	// dropped because of MaxPendingSteps or MaxPendingStepsPerExecution.
	DroppedProgress int
	MismatchedIDs   []string // IDs in Progress whose record has another queue or workflow
}

// LostExecution identifies an execution that no runner will end, for example because its start
// message is no longer in the stream. StreamSequence is the value that the record had when the
// execution was found to be lost. If the record has another value now, EndLostExecutions skips it.
type LostExecution struct {
	ID             string
	StreamSequence uint64 // the start message's sequence in its stream
}
