// Package store defines how the records of executions are stored: the contract of the drivers
// sqlite and postgres, which pass the test suite storetest.
//
// A record is small. It holds the sequence of its message in the stream, from which headers and
// input are read.
package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// ErrNotFound means that there is no such record.
var ErrNotFound = errors.New("no such record")

// MaxGetMany is the maximum number of IDs for GetMany.
const MaxGetMany = 1_000

// Bounds of the reading for a list by delivery ID, or by the prefix of one. The drivers have no
// index of most delivery IDs.
const (
	// MaxDeliveryNodes is the maximum number of trigger nodes at which a delivery ID is looked up.
	MaxDeliveryNodes = 10_000
	// MaxDeliveryRecords is the maximum number of records of the filter's workflow and time that
	// are searched.
	MaxDeliveryRecords = 100_000
)

// ErrTooBroad means that a filter leaves too many records to search for a delivery ID or a prefix
// of one.
var ErrTooBroad = errors.New("there are too many executions to look through for a delivery ID")

// Record is one execution. Times are UTC in whole microseconds.
type Record struct {
	ID         string // a UUID in lower case; a driver may refuse another one as a DataError
	AccountID  string // the account of the workflow
	WorkflowID string
	NodeID     string           // the trigger node
	Queue      string           // the runner queue
	Source     execution.Source // what started the execution
	Status     execution.Status
	DeliveryID string // the sender's ID of the delivery; "" for none
	RerunOf    string // the ID of the execution that it reruns; "" for none
	ReplayOf   string // the ID of the execution whose request it repeats; "" for none
	RequeuedAs string // the ID of the execution that was started in its place; "" for none
	TokenID    string // the ID of the token that was used; "" for a rerun
	Sender     string // the preset of the node's sender; "" for none
	Verified   bool   // the request was verified as the sender's

	AcceptedAt time.Time // when the ingress or the operators' API accepted it
	RecordedAt time.Time // when the recorder began the batch that recorded it
	StartedAt  time.Time // when its run began; zero until a runner has reported it
	FinishedAt time.Time // when it succeeded, failed or was canceled; zero until then
	// CancelRequestedAt is the time at which an operator asked to end it. Zero means that none
	// did. A canceled execution always has it.
	CancelRequestedAt time.Time
	// DismissedAt is the time at which an operator dismissed it from the dead letters. Zero means
	// that none did.
	DismissedAt time.Time

	ContentType    string // the Content-Type header; "" for none
	BodyBytes      int64  // the length of the body in bytes
	StreamSequence uint64 // the sequence of its message in the stream
	Duplicates     int64  // the number of suppressed repeats of its delivery
	Attempts       int    // the number of the last attempt, from 1; 0 means not known
	Error          string // the reason of the failure or the rejection; "" for none
	Output         []byte // the output of the run: one JSON text, or nil
}

// IsRequeue reports whether the execution runs in place of the one in RerunOf, on its body.
func (r Record) IsRequeue() bool {
	return r.RerunOf != "" && r.ID == execution.IDForRequeue(r.RerunOf)
}

// Batch holds everything that one transaction records.
type Batch struct {
	// New holds executions that start as queued or rejected. If the ID is recorded already, the
	// message was delivered again and the record stays as it is. One exception: if the record is
	// not final and its message has another sequence by now, the record gets that StreamSequence.
	// The old message is lost, and without the change the execution would be taken for lost, too.
	New []Record
	// Progress is applied after New, in order. A step that execution.Status.Follows does not allow
	// changes nothing: it is late or repeated. A step whose Queue or WorkflowID differs from the
	// record's changes nothing either, because a runner may only report on executions that it was
	// given. A step whose execution is not recorded yet is kept, and applied when the execution is
	// recorded.
	Progress []execution.Progress
	// Unreadable holds messages to put into quarantine. A message whose stream sequence and subject
	// are there already is left unchanged.
	Unreadable []Unreadable
	// Recovered holds the keys of unreadable messages that the rest of the batch records. They
	// leave the quarantine.
	Recovered []MessageKey
	// Audit holds audit entries on what the batch records. An entry whose ID is there already is
	// left unchanged.
	Audit []AuditEntry
	// Decided holds the messages that the batch decides. They determine the database's position:
	// see Store.Decided.
	Decided []Range
}

// Applied is the effect of a batch.
type Applied struct {
	// Changed holds the IDs of the records that are new or have changed, each once.
	Changed []string
	// Unknown holds the IDs in Progress that are not recorded yet. This transaction keeps their
	// steps.
	Unknown []string
	// Dropped is the number of steps of unknown executions that were not kept, or are kept no
	// longer, because there are too many: see MaxPending and MaxPendingOfOne.
	Dropped int
	// Foreign holds the IDs of records that Progress named with another queue or workflow.
	Foreign []string
}

// Lost is a record whose start is no longer in the stream, with the sequence that the record had
// when that was noticed.
type Lost struct {
	ID             string
	StreamSequence uint64 // in the stream that has the starts of the record's queue
}

// RefusedReason is the prefix of the Reason of a message that was decoded but that the database
// refused.
const RefusedReason = "the database refuses it: "

// Unreadable is a message of the stream that cannot be decoded, or whose content the database
// refuses.
type Unreadable struct {
	StreamSequence uint64 // in the stream that Subject belongs to
	Subject        string
	Reason         string    // for people; it begins with RefusedReason if it could be decoded
	At             time.Time // when the stream stored the message
}

// MessageKey identifies an unreadable message. There are several streams, so a sequence alone is
// ambiguous.
type MessageKey struct {
	StreamSequence uint64
	Progress       bool   // in a stream of reports
	Queue          string // the queue whose own stream it is; "" means the stream that queues share
}

// sharedStarts stands for the shared stream of starts where other streams have the prefix of their
// subjects. The subjects in the shared stream have no such prefix.
const sharedStarts = "-"

// Prefix returns the prefix of the subjects in the message's stream. Conditions in SQL compare it.
func (k MessageKey) Prefix() string {
	switch {
	case k.Queue == "" && k.Progress:
		return "executions.progress."
	case k.Queue == "":
		return sharedStarts
	case k.Progress:
		return "executions.reports." + k.Queue + "."
	default:
		return "executions.queue." + k.Queue + "."
	}
}

// MessageKeyOf returns the key of a message of the stream whose subjects have a prefix.
func MessageKeyOf(sequence uint64, prefix string) MessageKey {
	key := MessageKey{StreamSequence: sequence, Progress: prefix == "executions.progress."}
	for _, own := range []string{"executions.reports.", "executions.queue."} {
		if queue, ok := strings.CutPrefix(prefix, own); ok {
			key.Progress, key.Queue = own == "executions.reports.", strings.TrimSuffix(queue, ".")
		}
	}
	return key
}

// Refused reports whether the database refused the message, which itself can be decoded.
func (u Unreadable) Refused() bool { return strings.HasPrefix(u.Reason, RefusedReason) }

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
	Since          time.Time // AcceptedAt not before
	Until          time.Time // AcceptedAt before
	Reason         string    // a part of Error; upper and lower case count
	DeadLetter     bool      // failed, and neither requeued nor dismissed
	Canceling      bool      // its end was asked for, and it has not ended
}

// Position is the position in a list after the record with that time and ID. The zero Position is
// the beginning.
type Position struct {
	AcceptedAt time.Time
	ID         string
}

// UnreadableFilter selects unreadable messages. Zero fields do not filter.
type UnreadableFilter struct {
	WorkflowID string    // the workflow in the subject
	Since      time.Time // At not before
	Until      time.Time // At before
	Reason     string    // a part of Reason; upper and lower case count
}

// Requeue names the execution that was started in place of a record's execution.
type Requeue struct {
	ID, As string // the ID of the record, and the ID of the execution in its place
}

// UnreadablePosition is the position in the list after the unreadable message with that time and
// sequence. Its zero value is the beginning.
type UnreadablePosition struct {
	At             time.Time
	StreamSequence uint64
}

// Count is the number of records that were accepted in one step of time.
type Count struct {
	At      time.Time // the step's beginning
	Records int64
}

// Observer is called with the duration and the error of each database operation. An operation has
// the name of the method of Store in lower case with spaces. If a method runs several queries
// outside a transaction, the observer is called for each.
type Observer func(ctx context.Context, operation string, took time.Duration, err error)

// Store is safe for concurrent use, also by several processes. When a method returns without an
// error, its changes are committed and survive a crash of the process and of the machine. No method
// retries, and a method that returns an error has changed nothing. The error of a method that
// changes something is a DataError if and only if the data is its cause.
type Store interface {
	// Apply records a batch in one transaction. An empty batch does nothing. A step and the record
	// that it is about never miss each other, even if two processes apply them at once.
	Apply(ctx context.Context, batch Batch) (Applied, error)

	// AddDuplicates counts suppressed repeats by execution ID. A report is applied once, however
	// often it comes. The count for an execution that is not recorded yet is kept for it.
	AddDuplicates(ctx context.Context, reportID string, at time.Time, counts map[string]int64) error

	// AddRefusals counts refused requests by workflow, code and minute, and by code and minute. A
	// report is applied once, however often it comes. No report of duplicates may have the same ID.
	AddRefusals(ctx context.Context, reportID string, at time.Time, refusals []Refusal) error

	// Refusals returns the sums of one workflow's refusals by code since the minute of a time, last
	// refused first. A workflowID of "" selects the refusals without a workflow.
	Refusals(ctx context.Context, workflowID string, since time.Time) ([]RefusalSum, error)

	// AllRefusals returns the sums of refusals by workflow ("" for none) and code since the minute
	// of a time. It returns at most limit sums after a position, last refused first: by Last.At,
	// then by workflow and code, all descending. It reads every row of that time.
	AllRefusals(ctx context.Context, since time.Time, after RefusalPosition,
		limit int) ([]WorkflowRefusalSum, error)

	// Minutes returns the counts of all requests since the minute of a time, oldest first: accepted
	// requests by the records that Apply inserted, deduplicated ones by the reports that
	// AddDuplicates applied, refused ones by code. It reads a few rows for each minute, however
	// many requests there were.
	Minutes(ctx context.Context, since time.Time) ([]MinuteCount, error)

	// AddSenders adds what requests have shown of the senders of trigger nodes. A report is applied
	// once, however often it comes. No other report may have the same ID.
	AddSenders(ctx context.Context, reportID string, at time.Time, seen []SenderSeen) error

	// SenderSeen returns what requests have shown of the sender of one node so far, or the zero
	// value.
	SenderSeen(ctx context.Context, workflowID, nodeID string) (SenderSeen, error)

	// SendersRefused returns the reports on senders with refused requests.
	SendersRefused(ctx context.Context) ([]SenderSeen, error)

	// AddFiltered adds the requests that did not match the filters of trigger nodes. A report is
	// applied once, however often it comes. No other report may have the same ID.
	AddFiltered(ctx context.Context, reportID string, at time.Time, filtered []Filtered) error

	// Filtered returns the requests that did not match the filter of one node so far. The zero
	// value means that there were none.
	Filtered(ctx context.Context, workflowID, nodeID string) (Filtered, error)

	// ForgetSender deletes what SenderSeen returns.
	ForgetSender(ctx context.Context, workflowID, nodeID string) error

	// Get returns one record, or ErrNotFound.
	Get(ctx context.Context, id string) (Record, error)

	// GetMany returns the records that exist, in any order, for at most MaxGetMany IDs.
	GetMany(ctx context.Context, ids []string) ([]Record, error)

	// List returns at most limit records after a position, newest first: by AcceptedAt, then by ID,
	// both descending. It can fail with ErrTooBroad, as can every method with such a filter.
	List(ctx context.Context, filter Filter, after Position, limit int) ([]Record, error)

	// ListOldest is like List in the opposite order: oldest first and, at the same time, lowest ID
	// first.
	ListOldest(ctx context.Context, filter Filter, after Position, limit int) ([]Record, error)

	// CountByTime counts the records that match a filter in steps of time since 1970, UTC, oldest
	// first. It leaves out steps without a record. step is at least a microsecond. It reads an
	// index entry for each record, so the filter should have a Since.
	CountByTime(ctx context.Context, filter Filter, step time.Duration) ([]Count, error)

	// TokensLastUsed returns when each token was last used for a webhook: the AcceptedAt of the
	// newest record, including rejected ones. Tokens that were never used are not in the map. The
	// time of the last use outlives the record, so pruning does not make a used token look unused.
	TokensLastUsed(ctx context.Context, tokenIDs []string) (map[string]time.Time, error)

	// AddTokenUses adds uses that have no record, such as those of operators' keys, for
	// TokensLastUsed. A use that is older than the known one changes nothing.
	AddTokenUses(ctx context.Context, uses []TokenUse) error

	// MarkRequeued sets the executions that were started in place of failed or canceled records,
	// and returns the IDs of the records that it changed. Only the first such execution counts: of
	// concurrent callers only one gets the ID back. Records in other states do not change. A
	// dismissed record is marked, too.
	MarkRequeued(ctx context.Context, requeued []Requeue) (marked []string, err error)

	// RequestCancel notes, for records that have not ended, that an operator has asked to end them.
	// It returns the IDs of the records for which that was not noted before. In the same
	// transaction it stores an audit entry for each of them, unless audit is nil.
	RequestCancel(
		ctx context.Context, ids []string, at time.Time, audit func(id string) AuditEntry,
	) (requested []string, err error)

	// Cancel ends queued records as canceled if an operator has asked to end them, and returns
	// their IDs. It leaves all other records unchanged.
	Cancel(ctx context.Context, ids []string, at time.Time) (canceled []string, err error)

	// Dismiss removes failed records and unreadable messages from the dead letters, and returns the
	// IDs and keys that it removed. It ignores anything that is not a dead letter, and does not
	// change the content. In the same transaction it adds an audit entry for each, which audit
	// makes from the ID, or from the key of a message.
	Dismiss(
		ctx context.Context, ids []string, messages []MessageKey, at time.Time, audit func(
			id string, message MessageKey,
		) AuditEntry,
	) (dismissed []string, messageKeys []MessageKey, err error)

	// CountDeadLetters counts the dead letters up to a limit.
	CountDeadLetters(ctx context.Context, limit int) (int, error)

	// GetUnreadable returns an unreadable message, dismissed or not, or ErrNotFound.
	GetUnreadable(ctx context.Context, key MessageKey) (Unreadable, error)

	// ListUnreadable returns at most limit unreadable messages after a position, without the
	// dismissed ones, newest first: by At, then by stream sequence, both descending.
	ListUnreadable(
		ctx context.Context, filter UnreadableFilter, after UnreadablePosition, limit int,
	) ([]Unreadable, error)

	// Prune deletes at most limit records that were accepted before a time, whatever their state,
	// with everything that belongs to them, and the unreadable messages, duplicate counts and
	// report IDs of that age. It returns the number of deleted records; fewer than limit means that
	// nothing is left to do.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)

	// PruneCounts deletes the counts by the minute of AddRefusals and Minutes, and report IDs, from
	// before a time, and the oldest refusals by workflow until about keep rows are left. It deletes
	// at most limit rows in one transaction and returns their number; fewer than limit means that
	// nothing is left to do.
	PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error)

	// PrunePending deletes the steps of unrecorded executions that arrived before a time, and
	// returns their number.
	PrunePending(ctx context.Context, before time.Time) (int, error)

	// EndLost ends records as failed with a reason, and returns their IDs. It skips records that
	// are final or whose StreamSequence has changed.
	EndLost(ctx context.Context, lost []Lost, at time.Time, reason string) (ended []string,
		err error)

	// OnFailure sets the function that returns the cause of an operator event for an execution that
	// a batch or EndLost ends as failed, or nil if no event is wanted. The cause is stored in the
	// transaction that ends the execution; a cause whose ID exists is left unchanged. It must be
	// called before Apply and EndLost, or not at all.
	OnFailure(cause func(Failure) *EventCause)

	// DecideEvents replaces causes by events, in one transaction. decide is called with the oldest
	// causes, at most MaxEventCauses, and with the events that were decided since a time, oldest
	// first and without their inputs. It returns the events to store, and the IDs of the causes
	// that these events report, or that no event will report. An event whose ID exists is left
	// unchanged. Two callers never get the same causes. Published events that are older than
	// EventMemory are deleted.
	DecideEvents(
		ctx context.Context, now, since time.Time, decide func(
			causes []EventCause, decided []Event,
		) (events []Event, used []string),
	) error

	// HasEventCauses reports whether there are causes.
	HasEventCauses(ctx context.Context) (bool, error)

	// UnpublishedEvents returns at most limit events that are not published, oldest first.
	UnpublishedEvents(ctx context.Context, limit int) ([]Event, error)

	// EventsPublished marks events as published.
	EventsPublished(ctx context.Context, ids []string, at time.Time) error

	// EventConditions returns all conditions.
	EventConditions(ctx context.Context) ([]Condition, error)

	// ChangeEventConditions begins and ends conditions, in one transaction. Two callers that make
	// the same change store its cause once.
	ChangeEventConditions(ctx context.Context, changes []ConditionChange) error

	// LeadEvents reports whether the caller looks for conditions now: only one does, until the time
	// of its last call that returned true.
	LeadEvents(ctx context.Context, caller string, now, until time.Time) (bool, error)

	// EndSession stores that a session of the console has ended, until the time at which it would
	// have expired anyway. It deletes entries whose time is before now.
	EndSession(ctx context.Context, id string, until, now time.Time) error

	// SessionEnded reports whether EndSession has ended a session.
	SessionEnded(ctx context.Context, id string) (bool, error)

	// Decided returns the messages of a stream that are decided: the ranges of all batches that
	// this database has committed, merged, in order. A database that has lost transactions has lost
	// their ranges, too. created is the stream's identity; ranges with another identity are
	// deleted.
	Decided(ctx context.Context, stream, created string) ([]Range, error)

	// ForgetDecided removes the messages of a stream at and after a sequence from the result of
	// Decided.
	ForgetDecided(ctx context.Context, stream, created string, from uint64) error

	// Reconnected returns a channel that receives a value after the store has made a connection
	// that may lead to another server than the previous connections. Several connections may cause
	// a single value. nil means that this cannot happen.
	Reconnected() <-chan struct{}

	// AddAudit adds audit entries in one transaction. An entry whose ID is there already is left
	// unchanged.
	AddAudit(ctx context.Context, entries []AuditEntry) error

	// ListAudit returns at most limit entries after a position, newest first: by At, then by ID,
	// both descending.
	ListAudit(ctx context.Context, filter AuditFilter, after AuditPosition,
		limit int) ([]AuditEntry, error)

	// PruneAudit deletes at most limit entries from before a time, oldest first, and returns their
	// number.
	PruneAudit(ctx context.Context, before time.Time, limit int) (int, error)

	// Installation returns the installation's identity, or "" if the database has none.
	Installation(ctx context.Context) (string, error)

	// AdoptInstallation stores an identity if the database has none, and returns the identity of
	// the database.
	AdoptInstallation(ctx context.Context, id string) (inForce string, err error)

	// RegistryPosition returns the position of the copy of a bucket of the registry.
	RegistryPosition(ctx context.Context, bucket string) (RegistryPosition, error)

	// KeepRegistry adds revisions of a bucket to its copy, in order, with their audit entries, and
	// moves the copy's position, in one transaction. An earlier revision of a record does not
	// replace a later one, and the position does not go back. after is the position that the copy
	// must have reached before; otherwise KeepRegistry fails with ErrRegistryGap, and stores
	// nothing.
	KeepRegistry(
		ctx context.Context, bucket string, records []RegistryRecord, entries []AuditEntry,
		after uint64, upTo RegistryPosition,
	) error

	// RegistryRecords returns at most limit records of the copy of a bucket after a key, including
	// deleted ones, in the order of their keys.
	RegistryRecords(ctx context.Context, bucket, afterKey string, limit int) ([]RegistryRecord,
		error)

	// Backup passes the whole content, in the state of one moment, to write, in parts of at most
	// some hundred rows, oldest records first. It returns an error of write unchanged. Other
	// callers can write meanwhile: nothing in the database is locked while write works.
	Backup(ctx context.Context, write func(Part) error) error

	// Restore writes a part of a backup in one transaction. Records, reports and messages that are
	// there already are left unchanged; counts are added. So restore a part only once, into a store
	// that IsEmpty.
	Restore(ctx context.Context, part Part) error

	// IsEmpty reports whether there are no records and no counts.
	IsEmpty(ctx context.Context) (bool, error)

	// Size returns the size of the database. It reads few rows, however many there are.
	Size(ctx context.Context) (Size, error)

	// Observe sets the observer of every operation. It must be called before all other methods, or
	// not at all.
	Observe(observer Observer)

	// Schema returns the version of the tables with which this program works. If another version
	// has migrated them so that this program cannot work with them, every method that writes, and
	// Ping, return a *NewerSchemaError.
	Schema() int64

	// HasSchema returns the version that the tables have.
	HasSchema(ctx context.Context) (int64, error)

	// Ping returns nil if the database answers and takes writes: a standby is an error.
	Ping(ctx context.Context) error

	// Close waits until the operations in progress have ended. No method may be called afterwards.
	Close() error
}
