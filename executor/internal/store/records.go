package store

import (
	"context"
	"errors"
	"time"

	"github.com/hookstart/hookstart/shared/execution"
)

// Records reads the records of executions. The recorder, operate and package events use it. Other
// interfaces change the records: Recording writes them, Cancellations and DeadLetters change them
// for operators, and Pruner deletes them.
type Records interface {
	// Get returns one record. It returns ErrNotFound if there is none.
	Get(ctx context.Context, id string) (Record, error)

	// GetMany returns the records with the given IDs, in any order. It leaves out IDs that do not
	// exist. There may be at most MaxGetMany IDs.
	GetMany(ctx context.Context, ids []string) ([]Record, error)

	// List returns one page of the records that match the filter, newest first: by AcceptedAt, then
	// by ID, both descending. after is the position of the last record on the previous page, or
	// zero for the first page. A page has at most limit records. Like every method with a
	// RecordFilter, List can fail with ErrTooBroad.
	List(ctx context.Context, filter RecordFilter, after RecordPosition, limit int) ([]Record,
		error)

	// ListOldest is like List in the opposite order: by AcceptedAt, then by ID, both ascending.
	ListOldest(ctx context.Context, filter RecordFilter, after RecordPosition, limit int) ([]Record,
		error)

	// CountByTime counts the records that match a filter in intervals of length step, aligned to
	// the Unix epoch, oldest first. It omits intervals without records. step must be at least a
	// microsecond. CountByTime reads an index entry for each matching record, so the filter should
	// set Since.
	CountByTime(ctx context.Context, filter RecordFilter, step time.Duration) ([]IntervalCount,
		error)
}

// MaxGetMany is the maximum number of IDs accepted by GetMany.
const MaxGetMany = 1_000

// Limits of a search by delivery ID or by a prefix of one. They are needed because the drivers do
// not index most delivery IDs, so a search may have to read many records.
const (
	// MaxDeliverySearchNodes is the maximum number of trigger nodes at which a delivery ID is
	// looked up.
	MaxDeliverySearchNodes = 10_000
	// MaxDeliverySearchRecords is the maximum number of records that a search reads after applying
	// the filter's workflow and time.
	MaxDeliverySearchRecords = 100_000
)

// ErrTooBroad means that a search by delivery ID, or by a prefix of one, would have to read too
// many records: more than MaxDeliverySearchRecords match the filter's workflow and time.
var ErrTooBroad = errors.New("there are too many executions to look through for a delivery ID")

// Record is the record of one execution. Its times are in UTC, in whole microseconds.
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
	// CancelRequestedAt is when an operator requested the cancellation of the execution, or zero if
	// nobody has. It is set for every canceled execution.
	CancelRequestedAt time.Time
	// DismissedAt is when an operator dismissed the execution from the dead letters, or zero if
	// nobody has.
	DismissedAt time.Time

	ContentType    string // the Content-Type header; "" for none
	BodyBytes      int64  // the length of the body in bytes
	StreamSequence uint64 // the sequence of its message in the stream
	Duplicates     int64  // the number of suppressed duplicates of its delivery
	Attempts       int    // the number of the last attempt, starting at 1; 0 means unknown
	// Error is the reason for the failure or rejection, or what the runner reported when it
	// canceled the execution. "" means that there is none.
	Error  string
	Output []byte // the handler's output as one JSON text, or nil
}

// IsRequeue reports whether the execution is a requeue of another one, RerunOf: it replaces that
// execution and uses its body.
func (r Record) IsRequeue() bool {
	return r.RerunOf != "" && r.ID == execution.IDForRequeue(r.RerunOf)
}

// RecordFilter selects records. Fields that are zero are ignored.
type RecordFilter struct {
	AccountID  string
	WorkflowID string
	NodeID     string
	Status     execution.Status
	Source     execution.Source
	DeliveryID string
	// DeliveryPrefix selects the records whose delivery ID begins with this text.
	DeliveryPrefix  string
	Since           time.Time // inclusive lower bound of AcceptedAt
	Until           time.Time // exclusive upper bound of AcceptedAt
	Reason          string    // substring of Error, case-sensitive
	OnlyDeadLetters bool      // failed, and neither requeued nor dismissed
	OnlyCanceling   bool      // cancellation was requested, and the execution has not ended
}

// RecordPosition is a position in a list of records, immediately after the record with this time
// and ID. The zero value is the beginning of the list.
type RecordPosition struct {
	AcceptedAt time.Time
	ID         string
}

// IntervalCount is the number of records accepted within one interval.
type IntervalCount struct {
	At      time.Time // the start of the interval
	Records int64
}
