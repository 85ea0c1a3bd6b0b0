// Package store keeps what became of every execution: the contract of the drivers sqlite and postgres, which pass the suite storetest.
//
// A record is small. It holds the sequence of its message in the stream, from which headers and input are read.
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

// MaxGetMany is how many IDs GetMany takes.
const MaxGetMany = 1_000

// Bounds of what a list by delivery ID, or by the beginning of one, reads. The drivers have no index of most delivery IDs.
const (
	// MaxDeliveryNodes is at how many trigger nodes a delivery ID is looked up.
	MaxDeliveryNodes = 10_000
	// MaxDeliveryRecords is how many records of the filter's workflow and time are looked through.
	MaxDeliveryRecords = 100_000
)

// ErrTooBroad means that a filter leaves too many records to look through for a delivery ID, or for one that begins so.
var ErrTooBroad = errors.New("there are too many executions to look through for a delivery ID")

// Record is one execution. Times are UTC, in whole microseconds.
type Record struct {
	ID             string // a UUID in lower case; a driver may refuse another one as a DataError
	AccountID      string
	WorkflowID     string
	NodeID         string
	Queue          string
	Source         execution.Source
	Status         execution.Status
	DeliveryID     string // "" for none
	RerunOf        string // "" for none
	ReplayOf       string // the execution whose request it runs on once more, "" for none
	RequeuedAs     string // the execution that was started in its place, "" for none
	TokenID        string // which token opened the webhook, "" for a rerun
	Sender         string // the preset of the node's sender, "" for none
	Verified       bool   // the request was the sender's
	AcceptedAt     time.Time
	RecordedAt     time.Time
	StartedAt      time.Time // zero until a runner said so
	FinishedAt     time.Time // zero until it is succeeded or failed
	DismissedAt    time.Time // when an operator took it off the dead letters; zero: nobody did
	ContentType    string
	BodyBytes      int64
	StreamSequence uint64
	Duplicates     int64  // suppressed repeats of its delivery
	Attempts       int    // the number of the attempt that runs or ended it, from 1; 0: not known
	Error          string // why it failed, or was rejected
	Output         []byte // what the run returned: a JSON text, or nil
}

// IsRequeue says whether it runs in the place of the execution that it is a rerun of, on its body.
func (r Record) IsRequeue() bool {
	return r.RerunOf != "" && r.ID == execution.IDForRequeue(r.RerunOf)
}

// Batch is what one transaction records.
type Batch struct {
	// New are executions that start queued or rejected. One whose ID is recorded
	// already is left as it is: the message came twice. Only a record that is not final, and
	// whose message is another one by now, gets its StreamSequence: that of the lost one would
	// make it look lost, too.
	New []Record
	// Progress is applied after New, in order. A step that execution.Status.Follows does
	// not allow changes nothing: it is late or repeated. Nor does one whose Queue or
	// WorkflowID is not the record's: no runner reports of what it was not given. A step whose
	// execution is not recorded is kept, and applied when that is.
	Progress []execution.Progress
	// Unreadable are messages that are put aside. One whose stream sequence and subject are kept is left as it is.
	Unreadable []Unreadable
	// Recovered are the unreadable messages that the rest of the batch records: they are no longer kept as unreadable.
	Recovered []MessageKey
	// Audit are entries of the audit about what the batch records. One whose ID is there already is left as it is.
	Audit []AuditEntry
}

// Applied is what a batch did.
type Applied struct {
	// Changed are the IDs of the records that are new or moved on, each once.
	Changed []string
	// Unknown are the IDs in Progress that are not recorded (yet): their steps are kept, in this transaction.
	Unknown []string
	// Dropped is how many steps of unknown executions are kept no longer, or were not kept,
	// because there are too many: see MaxEarly and MaxEarlyOfOne.
	Dropped int
	// Foreign are the IDs of records that Progress named with another queue or workflow.
	Foreign []string
}

// Lost is a record whose start the stream has lost, as it was when that was found out.
type Lost struct {
	ID             string
	StreamSequence uint64
}

// RefusedReason begins the Reason of a decoded message that the database refused.
const RefusedReason = "the database refuses it: "

// Unreadable is a message of the stream that could not be decoded, or that the database refused for what it holds.
type Unreadable struct {
	StreamSequence uint64
	Subject        string
	Reason         string
	At             time.Time
}

// MessageKey names an unreadable message. Messages of progress, in a stream of its own, and of starts may have the same sequence.
type MessageKey struct {
	StreamSequence uint64
	Progress       bool
}

// Refused says that the database refused it: the message itself can be decoded.
func (u Unreadable) Refused() bool { return strings.HasPrefix(u.Reason, RefusedReason) }

// Filter says which records a list shows; zero fields do not filter.
type Filter struct {
	AccountID  string
	WorkflowID string
	Status     execution.Status
	Source     execution.Source
	DeliveryID string
	// DeliveryPrefix is what the delivery ID begins with.
	DeliveryPrefix string
	Since          time.Time // AcceptedAt not before
	Until          time.Time // AcceptedAt before
	Reason         string    // a part of Error, in upper and lower case as it is there
	DeadLetter     bool      // failed, and neither requeued nor dismissed
}

// Position is a place in a list, after the record of that time and ID. The zero Position is the beginning.
type Position struct {
	AcceptedAt time.Time
	ID         string
}

// UnreadableFilter says which unreadable messages a list shows; zero fields do not filter.
type UnreadableFilter struct {
	WorkflowID string    // the one in the subject
	Since      time.Time // At not before
	Until      time.Time // At before
	Reason     string    // a part of Reason, in upper and lower case as it is there
}

// Requeue says of a record which execution was started in its place.
type Requeue struct {
	ID, As string
}

// UnreadablePosition is the place in the list after the unreadable message of that time and sequence. Its zero value is the beginning.
type UnreadablePosition struct {
	At             time.Time
	StreamSequence uint64
}

// Count is how many records were accepted in one step of time.
type Count struct {
	At      time.Time // the step's beginning
	Records int64
}

// Observer is told how long the database took for an operation, and of its error. An operation is named after the method of
// Store, in lower case with spaces. What needs several queries outside of a transaction is told of once for each.
type Observer func(ctx context.Context, operation string, took time.Duration, err error)

// Store is safe for concurrent use, also by several processes. What a method has
// returned without an error is committed, and survives a crash of the process and
// of the machine. No method retries; an error leaves nothing half done. An error of a method
// that changes something is a DataError when the data is at fault, and only then.
type Store interface {
	// Apply records a batch in one transaction. An empty batch does nothing. A step and the
	// record that it is about never miss each other, also when two processes apply them at once.
	Apply(ctx context.Context, batch Batch) (Applied, error)

	// AddDuplicates counts suppressed repeats by execution ID. A report is applied once, however often it comes. The count of an
	// execution that is not recorded yet is kept for it.
	AddDuplicates(ctx context.Context, reportID string, at time.Time, counts map[string]int64) error

	// AddRefusals counts refused requests by workflow, code and minute, and by code and
	// minute. A report is applied once, however often it comes; no report of duplicates may
	// have its ID.
	AddRefusals(ctx context.Context, reportID string, at time.Time, refusals []Refusal) error

	// Refusals sums the refusals of one workflow ("": of none) since the minute of a time, by
	// code, the last refused first.
	Refusals(ctx context.Context, workflowID string, since time.Time) ([]RefusalSum, error)

	// AllRefusals sums the refusals since the minute of a time by workflow ("": of none) and
	// code. It returns at most limit sums after a position, the last refused first: by Last.At,
	// then by workflow and code, all descending. It reads every row of that time.
	AllRefusals(ctx context.Context, since time.Time, after RefusalPosition, limit int) ([]WorkflowRefusalSum, error)

	// Minutes are the counts of all requests since the minute of a time, the oldest first:
	// accepted ones by the records that Apply inserted, deduplicated ones by the reports that
	// AddDuplicates applied, refused ones by code. It reads a few rows for each minute, however
	// many requests there were.
	Minutes(ctx context.Context, since time.Time) ([]MinuteCount, error)

	// AddSenders adds what was seen of the senders of trigger nodes. A report is applied once, however often
	// it comes; no other report may have its ID.
	AddSenders(ctx context.Context, reportID string, at time.Time, seen []SenderSeen) error

	// SenderSeen returns what was seen of the sender of one node so far; nothing if there was nothing.
	SenderSeen(ctx context.Context, workflowID, nodeID string) (SenderSeen, error)

	// ForgetSender forgets what SenderSeen returns.
	ForgetSender(ctx context.Context, workflowID, nodeID string) error

	// Get returns one record, or ErrNotFound.
	Get(ctx context.Context, id string) (Record, error)

	// GetMany returns the records that exist, in any order. At most MaxGetMany IDs.
	GetMany(ctx context.Context, ids []string) ([]Record, error)

	// List returns at most limit records after a position, the newest first: by AcceptedAt,
	// then by ID, both descending. It can fail with ErrTooBroad, as can all that take such a filter.
	List(ctx context.Context, filter Filter, after Position, limit int) ([]Record, error)

	// ListOldest is List in the opposite order: the oldest first, of the same time the lowest ID.
	ListOldest(ctx context.Context, filter Filter, after Position, limit int) ([]Record, error)

	// CountByTime counts the records that List shows under a filter, by steps of time since
	// 1970, UTC, the oldest first. Steps without a record are left out. step is at least a
	// microsecond. It reads an index entry for each record: give the filter a Since.
	CountByTime(ctx context.Context, filter Filter, step time.Duration) ([]Count, error)

	// TokensLastUsed says when each token last opened a webhook (AcceptedAt of the newest
	// record, rejected ones too). Tokens that were never used are not in the map. A last
	// use outlives the record: pruning does not make a used token look unused.
	TokensLastUsed(ctx context.Context, tokenIDs []string) (map[string]time.Time, error)

	// AddTokenUses notes uses that no record tells of, those of the operators' keys: TokensLastUsed says of them, too.
	// An older use than the one that is known changes nothing.
	AddTokenUses(ctx context.Context, uses []TokenUse) error

	// MarkRequeued says of failed records which executions were started in their place, and returns
	// the IDs of those that it changed. Only the first one counts: however many callers there are at
	// once, one gets an ID back. It changes nothing of any other record. One that was dismissed is
	// marked, too.
	MarkRequeued(ctx context.Context, requeued []Requeue) (marked []string, err error)

	// Dismiss takes failed records and unreadable messages off the dead letters, and returns those
	// that it took: not what is none. What they say stays as it is. In the same transaction it keeps an entry of the
	// audit for each, which audit makes of the ID, or of the key of a message.
	Dismiss(ctx context.Context, ids []string, messages []MessageKey, at time.Time, audit func(id string, message MessageKey) AuditEntry) (dismissed []string, of []MessageKey, err error)

	// CountDeadLetters counts the dead letters, up to a limit.
	CountDeadLetters(ctx context.Context, limit int) (int, error)

	// GetUnreadable returns an unreadable message, dismissed or not, or ErrNotFound.
	GetUnreadable(ctx context.Context, key MessageKey) (Unreadable, error)

	// ListUnreadable returns at most limit unreadable messages that were not dismissed after a
	// position, the newest first: by At, then by stream sequence, both descending.
	ListUnreadable(ctx context.Context, filter UnreadableFilter, after UnreadablePosition, limit int) ([]Unreadable, error)

	// Prune deletes at most limit records accepted before a time, whatever their state, and
	// what belongs to them, and the unreadable messages, duplicate counts and report IDs of
	// that age. It returns how many records it deleted: fewer than limit means that nothing is left to do.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)

	// PruneCounts deletes what AddRefusals and Minutes count by the minute, and report IDs,
	// before a time; and of the refusals by workflow the oldest, until about keep rows are
	// left. It deletes at most limit of those in one transaction and returns how many: fewer
	// than limit means that nothing is left to do.
	PruneCounts(ctx context.Context, before time.Time, keep, limit int) (int, error)

	// PruneEarly deletes the steps of unrecorded executions that came before a time, and returns how many.
	PruneEarly(ctx context.Context, before time.Time) (int, error)

	// EndLost ends records as failed for a reason, and returns their IDs. It leaves those that are final, or whose StreamSequence changed.
	EndLost(ctx context.Context, lost []Lost, at time.Time, reason string) (ended []string, err error)

	// EndSession remembers that a session of the console has ended, until the time at which it would have ended by itself. It
	// forgets those of which that time is before now.
	EndSession(ctx context.Context, id string, until, now time.Time) error

	// SessionEnded reports whether EndSession has ended a session.
	SessionEnded(ctx context.Context, id string) (bool, error)

	// AddAudit keeps entries of the audit, in one transaction. One whose ID is there already is left as it is.
	AddAudit(ctx context.Context, entries []AuditEntry) error

	// ListAudit returns at most limit entries after a position, the newest first: by At, then by ID, both descending.
	ListAudit(ctx context.Context, filter AuditFilter, after AuditPosition, limit int) ([]AuditEntry, error)

	// PruneAudit deletes at most limit entries from before a time, the oldest first, and returns how many.
	PruneAudit(ctx context.Context, before time.Time, limit int) (int, error)

	// Backup hands all that is kept to write, as it was at one moment, in parts of at most some hundred rows,
	// the oldest records first. It returns write's error as it is. Others may write meanwhile; nothing of the
	// database is locked while write works.
	Backup(ctx context.Context, write func(Part) error) error

	// Restore writes a part of a backup, in one transaction. Of a record, a report or a message that is there
	// already nothing is changed; counts are added to those that are there. So a part is to be restored once,
	// into a store that IsEmpty.
	Restore(ctx context.Context, part Part) error

	// IsEmpty says whether there is no record and no count.
	IsEmpty(ctx context.Context) (bool, error)

	// Observe has an observer told of every operation. It is called before all other methods, or not at all.
	Observe(observer Observer)

	// Schema is the version of the tables that this program works with. When another version has migrated them so that this
	// one cannot work with them any more, all that writes, and Ping, fail with a *NewerSchemaError.
	Schema() int64

	// HasSchema returns the version that the tables have.
	HasSchema(ctx context.Context) (int64, error)

	// Ping says whether the database answers.
	Ping(ctx context.Context) error

	// Close waits for what is under way. Nothing may be called after it.
	Close() error
}
