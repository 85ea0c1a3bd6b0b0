// Package store defines how execution records are stored. It is the contract of the drivers sqlite
// and postgres, and the test suite storetest verifies it.
//
// A record is small: it holds the stream sequence of its message instead of the headers and the
// input, which are read from the stream.
package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// ErrNotFound means that the requested record or message put aside does not exist.
var ErrNotFound = errors.New("no such record")

// MaxGetMany is the maximum number of IDs accepted by GetMany.
const MaxGetMany = 1_000

// Limits of a search by delivery ID or by a prefix of one. The drivers do not index most delivery
// IDs.
const (
	// MaxDeliverySearchNodes is the maximum number of trigger nodes for which a delivery ID is
	// looked up.
	MaxDeliverySearchNodes = 10_000
	// MaxDeliverySearchRecords is the maximum number of records that a search reads after applying
	// the filter's workflow and time.
	MaxDeliverySearchRecords = 100_000
)

// ErrTooBroad means that a filter is too broad for a search by delivery ID or by a prefix of one:
// without the delivery ID, too many records match it.
var ErrTooBroad = errors.New("there are too many executions to look through for a delivery ID")

// Record is the record of one execution. Times are in UTC, in whole microseconds.
type Record struct {
	ID         string // a UUID in lower case; a driver may return a DataError for anything else
	AccountID  string // the account of the workflow
	WorkflowID string
	NodeID     string           // the trigger node
	Queue      string           // the runner queue
	Source     execution.Source // what started the execution
	Status     execution.Status
	DeliveryID string // the sender's ID of the delivery; "" for none
	RerunOf    string // the ID of the execution that it reruns; "" for none
	ReplayOf   string // the ID of the execution whose request it replays; "" for none
	RequeuedAs string // the ID of the execution that replaces it; "" for none
	TokenID    string // the ID of the request's token; "" if no request started it
	Sender     string // the preset of the node's sender; "" for none
	Verified   bool   // whether the request was verified as the sender's

	AcceptedAt time.Time // when the ingress or the operators' API accepted it
	RecordedAt time.Time // when the recorder began the batch that recorded it
	StartedAt  time.Time // when its handler began; zero until a runner reports it
	FinishedAt time.Time // when it succeeded, failed or was canceled; zero until then
	// CancelRequestedAt is when an operator requested cancellation of the execution. Zero means
	// never. It is always set for a canceled execution.
	CancelRequestedAt time.Time
	// DismissedAt is when an operator dismissed it from the dead letters. Zero means never.
	DismissedAt time.Time

	ContentType    string // the Content-Type header; "" for none
	BodyBytes      int64  // the length of the body in bytes
	StreamSequence uint64 // the sequence of its message in the stream
	Duplicates     int64  // the number of suppressed duplicates of its delivery
	Attempts       int    // the number of the last attempt, starting at 1; 0 means unknown
	// Error is the reason for the failure or rejection, or what the runner reported when the
	// execution was canceled. "" means none.
	Error  string
	Output []byte // the handler's output as one JSON text, or nil
}

// IsRequeue reports whether the execution replaces the one in RerunOf and uses the body of that
// execution.
func (r Record) IsRequeue() bool {
	return r.RerunOf != "" && r.ID == execution.IDForRequeue(r.RerunOf)
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
	// database's position in the streams: see Store.HandledRanges.
	Handled []HandledRange
}

// Applied is the result of applying a batch.
type Applied struct {
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

// RefusedReasonPrefix is the prefix of the Reason of a message that was decoded but refused by the
// database.
const RefusedReasonPrefix = "the database refuses it: "

// AsideMessage is a stream message that was put aside: it cannot be decoded, or the database
// refuses its content.
type AsideMessage struct {
	StreamSequence uint64 // in the stream that holds Subject
	Subject        string
	Reason         string    // for people; starts with RefusedReasonPrefix if it could be decoded
	At             time.Time // when the stream stored the message
}

// MessageKey identifies a message put aside. A sequence alone is ambiguous, because there are
// several streams.
type MessageKey struct {
	StreamSequence uint64
	Progress       bool   // whether the stream holds progress reports
	Queue          string // the queue that owns the stream; "" means a stream that queues share
}

// sharedStartPrefix stands for the prefix in keys of messages in the shared stream of start
// messages, because the subjects in that stream have no common prefix of their own.
const sharedStartPrefix = "-"

// Prefix returns the prefix of the subjects in the message's stream. SQL conditions compare it.
func (k MessageKey) Prefix() string {
	switch {
	case k.Queue == "" && k.Progress:
		return "executions.progress."
	case k.Queue == "":
		return sharedStartPrefix
	case k.Progress:
		return "executions.reports." + k.Queue + "."
	default:
		return "executions.queue." + k.Queue + "."
	}
}

// MessageKeyOf returns the key with the given sequence whose Prefix method returns prefix.
func MessageKeyOf(sequence uint64, prefix string) MessageKey {
	key := MessageKey{StreamSequence: sequence, Progress: prefix == "executions.progress."}
	for _, own := range []string{"executions.reports.", "executions.queue."} {
		if queue, ok := strings.CutPrefix(prefix, own); ok {
			key.Progress, key.Queue = own == "executions.reports.", strings.TrimSuffix(queue, ".")
		}
	}
	return key
}

// Refused reports whether the message could be decoded but was refused by the database.
func (u AsideMessage) Refused() bool { return strings.HasPrefix(u.Reason, RefusedReasonPrefix) }

// Filter selects records. Zero fields do not filter.
type Filter struct {
	AccountID  string
	WorkflowID string
	NodeID     string
	Status     execution.Status
	Source     execution.Source
	DeliveryID string
	// DeliveryPrefix is a prefix of the delivery ID.
	DeliveryPrefix string
	Since          time.Time // AcceptedAt is not before it
	Until          time.Time // AcceptedAt is before it
	Reason         string    // substring of Error, case-sensitive
	DeadLetter     bool      // failed, and neither requeued nor dismissed
	Canceling      bool      // cancellation was requested, and the execution has not ended
}

// Position is a position in a list of records, immediately after the record with this time and ID.
// The zero value is the beginning of the list.
type Position struct {
	AcceptedAt time.Time
	ID         string
}

// AsideFilter selects messages put aside. Zero fields do not filter.
type AsideFilter struct {
	WorkflowID string    // the workflow in the subject
	Since      time.Time // At is not before it
	Until      time.Time // At is before it
	Reason     string    // substring of Reason, case-sensitive
}

// Requeue names the execution that was started to replace a record's execution.
type Requeue struct {
	ID, As string // the ID of the record, and that of the execution replacing it
}

// AsidePosition is a position in the list of messages put aside, immediately after the message with
// this time and sequence. The zero value is the beginning of the list.
type AsidePosition struct {
	At             time.Time
	StreamSequence uint64
}

// IntervalCount is the number of records accepted within one interval.
type IntervalCount struct {
	At      time.Time // the start of the interval
	Records int64
}

// Observer is called with the duration and the error of each database operation. operation is the
// name of the Store method, in lower case and with spaces. If a method runs several queries outside
// a transaction, each query leads to a call.
type Observer func(ctx context.Context, operation string, took time.Duration, err error)

// Store is safe for concurrent use, including by several processes. When a method returns without
// an error, its changes are committed and survive a crash of the process or the machine. Methods do
// not retry, and a method that returns an error has changed nothing. A writing method returns a
// DataError if and only if the data caused the error.
type Store interface {
	// Apply records a batch in one transaction. An empty batch does nothing. Even if two processes
	// store a step and its record concurrently, the step is applied to the record.
	Apply(ctx context.Context, batch Batch) (Applied, error)

	// AddDuplicates adds counts of suppressed duplicates, keyed by execution ID. Adding a report
	// again has no effect. A count for an unrecorded execution is kept until the execution is
	// recorded.
	AddDuplicates(ctx context.Context, reportID string, at time.Time, counts map[string]int64) error

	// AddRefusals adds counts of refused requests: by workflow, code and minute, and also by code
	// and minute. Adding a report again has no effect. Report IDs must be unique across all kinds
	// of reports.
	AddRefusals(ctx context.Context, reportID string, at time.Time, refusals []Refusal) error

	// Refusals returns the sums of one workflow's refusals by code, starting with the minute of
	// since, most recently refused first. A workflowID of "" selects the refusals without a
	// workflow.
	Refusals(ctx context.Context, workflowID string, since time.Time) ([]RefusalSum, error)

	// AllRefusals returns the sums of refusals by workflow ("" for none) and code, starting with
	// the minute of since. It returns at most limit sums after a position, ordered by Last.At,
	// workflow and code, all descending. It reads every row from since on, regardless of limit.
	AllRefusals(ctx context.Context, since time.Time, after RefusalPosition,
		limit int) ([]WorkflowRefusalSum, error)

	// Minutes returns the counts of all requests, starting with the minute of since, oldest first.
	// Accepted requests are the records inserted by Apply. Deduplicated and filtered requests come
	// from the reports passed to AddDuplicates and AddFiltered. Refused requests are counted by
	// code. Minutes reads a few rows for each minute, regardless of the number of requests.
	Minutes(ctx context.Context, since time.Time) ([]MinuteCount, error)

	// AddSenders adds what requests have revealed about the senders of trigger nodes. Adding a
	// report again has no effect. Report IDs must be unique across all kinds of reports.
	AddSenders(ctx context.Context, reportID string, at time.Time, seen []SenderObservation) error

	// SenderObservation returns what requests have revealed so far about the sender of one node, or
	// the zero value if there were no requests.
	SenderObservation(ctx context.Context, workflowID, nodeID string) (SenderObservation, error)

	// RefusedSenders returns the observations of senders whose requests were refused.
	RefusedSenders(ctx context.Context) ([]SenderObservation, error)

	// AddFiltered adds requests that did not match the filters of trigger nodes. Adding a report
	// again has no effect. Report IDs must be unique across all kinds of reports.
	AddFiltered(
		ctx context.Context,
		reportID string,
		at time.Time,
		filtered []FilteredRequests,
	) error

	// Filtered returns how many requests the filter of one node has rejected so far, and the most
	// recent of them. It returns the zero value if there were none.
	Filtered(ctx context.Context, workflowID, nodeID string) (FilteredRequests, error)

	// ForgetSender deletes the observation that SenderObservation returns for the node.
	ForgetSender(ctx context.Context, workflowID, nodeID string) error

	// Get returns one record, or ErrNotFound.
	Get(ctx context.Context, id string) (Record, error)

	// GetMany returns the existing records among at most MaxGetMany IDs, in any order.
	GetMany(ctx context.Context, ids []string) ([]Record, error)

	// List returns at most limit records after a position, newest first: by AcceptedAt, then by ID,
	// both descending. Like every method with a Filter, it can fail with ErrTooBroad.
	List(ctx context.Context, filter Filter, after Position, limit int) ([]Record, error)

	// ListOldest is like List in the opposite order: by AcceptedAt, then by ID, both ascending.
	ListOldest(ctx context.Context, filter Filter, after Position, limit int) ([]Record, error)

	// CountByTime counts the records that match a filter in intervals of length step, aligned to
	// the Unix epoch, oldest first. It omits intervals without records. step must be at least a
	// microsecond. It reads an index entry for each record, so the filter should set Since.
	CountByTime(ctx context.Context, filter Filter, step time.Duration) ([]IntervalCount, error)

	// TokensLastUsed returns when each token was last used for a webhook request: the AcceptedAt of
	// the newest record, including rejected ones. The map lacks tokens that were never used. The
	// store keeps the time when it deletes the record, so pruning does not make a used token look
	// unused.
	TokensLastUsed(ctx context.Context, tokenIDs []string) (map[string]time.Time, error)

	// AddTokenUses adds uses that have no record, such as those of operators' keys, to the result
	// of TokensLastUsed. A use that is older than the stored one is ignored.
	AddTokenUses(ctx context.Context, uses []TokenUse) error

	// MarkRequeued sets RequeuedAs on failed or canceled records, and returns the IDs of the
	// records that it changed. RequeuedAs is set only once: of several concurrent callers, only one
	// gets the ID back. Records in other states do not change; dismissed records may be marked.
	MarkRequeued(ctx context.Context, requeued []Requeue) (marked []string, err error)

	// RequestCancel sets CancelRequestedAt on records that have not ended and do not have it yet,
	// and returns their IDs. In the same transaction, it stores an audit entry for each of them,
	// unless audit is nil.
	RequestCancel(
		ctx context.Context, ids []string, at time.Time, audit func(id string) AuditEntry,
	) (requested []string, err error)

	// Cancel changes the status of records that are still queued to canceled, and returns their
	// IDs. It does not change any other record. It does not check that cancellation was requested:
	// call RequestCancel first.
	Cancel(ctx context.Context, ids []string, at time.Time) (canceled []string, err error)

	// Dismiss removes failed records and messages put aside from the dead letters, and returns the
	// IDs and keys of those that it removed. It ignores anything that is not a dead letter, and
	// keeps the contents of records and messages. In the same transaction it adds an audit entry
	// for each removed dead letter, which audit creates from the record's ID or the message's key.
	Dismiss(
		ctx context.Context, ids []string, messages []MessageKey, at time.Time, audit func(
			id string, message MessageKey,
		) AuditEntry,
	) (dismissed []string, messageKeys []MessageKey, err error)

	// CountDeadLetters counts the dead letters, stopping at limit.
	CountDeadLetters(ctx context.Context, limit int) (int, error)

	// GetAside returns a message put aside, dismissed or not, or ErrNotFound.
	GetAside(ctx context.Context, key MessageKey) (AsideMessage, error)

	// ListAside returns at most limit messages put aside after a position, newest first: by At,
	// then by stream sequence, both descending. It omits dismissed ones.
	ListAside(
		ctx context.Context, filter AsideFilter, after AsidePosition, limit int,
	) ([]AsideMessage, error)

	// Prune deletes at most limit records that were accepted before a time, in any state, with
	// everything that belongs to them. It also deletes messages put aside, duplicate counts and
	// report IDs from before that time. It returns the number of deleted records; fewer than limit
	// means that none are left to delete.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)

	// PruneCounts deletes the per-minute counts that Minutes returns, and the report IDs, from
	// before a time. It also deletes refusals by workflow from before that time, and further ones,
	// oldest first, until about keep rows are left. It deletes at most limit refusals in one call.
	// It returns the number of deleted refusals; fewer than limit means that none are left to
	// delete.
	PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error)

	// PrunePending deletes the progress steps of unrecorded executions that arrived before a time,
	// and returns how many it deleted.
	PrunePending(ctx context.Context, before time.Time) (int, error)

	// EndLost ends records as failed with a reason, and returns their IDs. It skips records that
	// are final or whose StreamSequence has changed.
	EndLost(ctx context.Context, lost []LostExecution, at time.Time, reason string) (ended []string,
		err error)

	// SetFailureCause sets the function that returns the event cause for an execution that Apply or
	// EndLost ends as failed, or nil if no event is wanted. The transaction that ends the execution
	// stores the cause; if a cause with the ID exists, it stays unchanged. Call SetFailureCause
	// before Apply and EndLost, or not at all.
	SetFailureCause(cause func(Failure) *EventCause)

	// DecideEvents replaces causes with events, in one transaction. It calls decide with the oldest
	// causes, at most MaxCausesPerDecision, and with the events decided since a time, oldest first
	// and without their inputs. decide returns the events to store, and the IDs of the causes that
	// these events report or that no event will report. If an event's ID already exists, the stored
	// event is kept. No two callers receive the same causes. DecideEvents also deletes published
	// events that are older than EventRetention.
	DecideEvents(
		ctx context.Context, now, since time.Time, decide func(
			causes []EventCause, decided []Event,
		) (events []Event, used []string),
	) error

	// HasEventCauses reports whether there are undecided causes.
	HasEventCauses(ctx context.Context) (bool, error)

	// UnpublishedEvents returns at most limit unpublished events, oldest first.
	UnpublishedEvents(ctx context.Context, limit int) ([]Event, error)

	// MarkEventsPublished marks events as published.
	MarkEventsPublished(ctx context.Context, ids []string, at time.Time) error

	// EventConditions returns all conditions.
	EventConditions(ctx context.Context) ([]OngoingCondition, error)

	// ChangeEventConditions stores the beginning and end of conditions, in one transaction. If two
	// callers make the same change, its cause is stored once.
	ChangeEventConditions(ctx context.Context, changes []OngoingConditionChange) error

	// AcquireEventLead acquires or renews a lease for detecting conditions, and reports whether the
	// caller holds it. Only one caller holds the lease at a time. The lease expires at the time
	// until of that caller's last successful call.
	AcquireEventLead(ctx context.Context, caller string, now, until time.Time) (bool, error)

	// EndSession records that a console session has ended. It keeps the entry until the given time,
	// when the session would have expired anyway. It deletes entries of sessions that expired
	// before now.
	EndSession(ctx context.Context, id string, until, now time.Time) error

	// SessionEnded reports whether a session was ended by EndSession.
	SessionEnded(ctx context.Context, id string) (bool, error)

	// HandledRanges returns which messages of a stream have been recorded or put aside: the
	// ranges of all batches committed to this database, merged and in order. A database that has
	// lost transactions has also lost their ranges. created identifies the stream; ranges with
	// another identity are deleted.
	HandledRanges(ctx context.Context, stream, created string) ([]HandledRange, error)

	// ForgetHandled removes the messages at and after a sequence from the ranges that HandledRanges
	// returns for a stream.
	ForgetHandled(ctx context.Context, stream, created string, from uint64) error

	// Reconnected returns a channel that receives a value when the store has opened a connection
	// that may lead to a different server than before. Several connections may cause a single
	// value. A nil channel means that this cannot happen.
	Reconnected() <-chan struct{}

	// AddAudit adds audit entries in one transaction. An entry whose ID exists already does not
	// change.
	AddAudit(ctx context.Context, entries []AuditEntry) error

	// ListAudit returns at most limit entries after a position, newest first: by At, then by ID,
	// both descending.
	ListAudit(ctx context.Context, filter AuditFilter, after AuditPosition,
		limit int) ([]AuditEntry, error)

	// PruneAudit deletes at most limit audit entries from before a time, oldest first, and returns
	// how many it deleted.
	PruneAudit(ctx context.Context, before time.Time, limit int) (int, error)

	// Installation returns the installation's identity, or "" if the database has none.
	Installation(ctx context.Context) (string, error)

	// AdoptInstallation stores an identity if the database has none, and returns the identity that
	// the database has afterwards.
	AdoptInstallation(ctx context.Context, id string) (inForce string, err error)

	// RegistryPosition returns the position of the database's copy of a registry bucket.
	RegistryPosition(ctx context.Context, bucket string) (RegistryPosition, error)

	// SaveRegistryCopy adds revisions of a registry bucket to the database's copy of it, in order,
	// with their audit entries, and advances the copy's position, in one transaction. An earlier
	// revision of a record does not replace a later one, and the position never goes back. The copy
	// must already have reached the position after; otherwise, SaveRegistryCopy fails with
	// ErrRegistryGap and stores nothing.
	SaveRegistryCopy(
		ctx context.Context, bucket string, records []RegistryRecord, entries []AuditEntry,
		after uint64, upTo RegistryPosition,
	) error

	// RegistryRecords returns at most limit records from the database's copy of a registry bucket,
	// sorted by key, starting after afterKey. Deleted records are included.
	RegistryRecords(ctx context.Context, bucket, afterKey string, limit int) ([]RegistryRecord,
		error)

	// Backup passes a consistent snapshot of the whole content to write, in parts of at most a few
	// hundred rows, oldest records first. It returns an error from write unchanged. It holds no
	// locks while write runs, so other callers can write in the meantime.
	Backup(ctx context.Context, write func(BackupPart) error) error

	// Restore writes a part of a backup in one transaction. Records, reports and messages that
	// already exist do not change, but counts are added to existing counts. Restore each part only
	// once, into a store for which IsEmpty returned true before the first part.
	Restore(ctx context.Context, part BackupPart) error

	// IsEmpty reports whether there are no records and no counts of accepted requests.
	IsEmpty(ctx context.Context) (bool, error)

	// Size returns the size of the database. It reads few rows, even in a large database.
	Size(ctx context.Context) (Size, error)

	// Observe sets the observer of all operations. It must be called before any other method, or
	// not at all.
	Observe(observer Observer)

	// Schema returns the schema version that this program uses. If another version of the program
	// has migrated the tables to a schema that this program cannot use, Ping and every method that
	// writes return a *NewerSchemaError.
	Schema() int64

	// DatabaseSchema returns the schema version of the database.
	DatabaseSchema(ctx context.Context) (int64, error)

	// Ping returns nil if the database responds and accepts writes; a standby is an error.
	Ping(ctx context.Context) error

	// Close waits for the operations in progress to finish. No method may be called afterwards.
	Close() error
}
