package store

import (
	"context"
	"math"
	"time"
)

// DeadLetters counts the dead letters, and records that operators have requeued or dismissed them.
// The function ListDeadLetters lists them through Records and AsideMessages. operate uses
// DeadLetters, and so does the executor, to export the count as a metric.
type DeadLetters interface {
	// CountDeadLetters returns the number of dead letters, or limit if there are more.
	CountDeadLetters(ctx context.Context, limit int) (int, error)

	// MarkRequeued sets RequeuedAs on records, and returns the IDs of those that it has changed. It
	// changes only failed or canceled records, even dismissed ones, that have no RequeuedAs yet. If
	// several callers mark the same record concurrently, only one of them gets its ID back.
	MarkRequeued(ctx context.Context, requeued []Requeue) (marked []string, err error)

	// Dismiss removes failed records and messages put aside from the dead letters, but keeps their
	// contents. It returns the IDs and the message keys of the dead letters that it has removed,
	// and ignores anything that is not a dead letter. In the same transaction, it adds an audit
	// entry for each removed dead letter. audit creates the entry from the record's ID or the
	// message's key.
	Dismiss(
		ctx context.Context, ids []string, messages []MessageKey, at time.Time, audit func(
			id string, message MessageKey,
		) AuditEntry,
	) (dismissed []string, messageKeys []MessageKey, err error)
}

// Requeue names a record and the execution that was started to replace the record's execution.
type Requeue struct {
	ID, ReplacementID string // the ID of the record, and the ID of the execution that replaces it
}

// DeadLetter is an execution or a message that needs an operator, because no runner or
// recorder will process it again. Exactly one field is set.
type DeadLetter struct {
	Record  *Record       // failed, and neither requeued nor dismissed
	Message *AsideMessage // put aside, and not dismissed
}

// DeadLetterFilter selects dead letters. Fields that are zero are ignored.
type DeadLetterFilter struct {
	// A non-empty AccountID excludes all messages, because the account of a message is not reliably
	// known.
	AccountID  string
	WorkflowID string
	Reason     string    // substring of the reason, case-sensitive
	Since      time.Time // inclusive lower bound of SortTime
	Until      time.Time // exclusive upper bound of SortTime
}

// RecordFilter returns the filter that selects the failed executions among the dead letters.
func (f DeadLetterFilter) RecordFilter() RecordFilter {
	return RecordFilter{
		AccountID:       f.AccountID,
		WorkflowID:      f.WorkflowID,
		Reason:          f.Reason,
		Since:           f.Since,
		Until:           f.Until,
		OnlyDeadLetters: true,
	}
}

// SortTime returns the time by which the list of dead letters is sorted: when the execution was
// accepted, or when the stream stored the message.
func (d DeadLetter) SortTime() time.Time {
	if d.Record != nil {
		return d.Record.AcceptedAt
	}
	return d.Message.At
}

// ListDeadLetters returns at most limit dead letters, newest first by SortTime. At equal times,
// records come before messages. last is the last dead letter on the previous page, or the zero
// DeadLetter for the first page; only its time and its ID or sequence are used.
func ListDeadLetters(
	ctx context.Context, s interface {
		Records
		AsideMessages
	}, filter DeadLetterFilter, last DeadLetter, limit int,
) ([]DeadLetter, error) {
	var ofRecords RecordPosition
	var ofMessages AsidePosition
	switch {
	case last.Record != nil:
		ofRecords = RecordPosition{AcceptedAt: last.Record.AcceptedAt, ID: last.Record.ID}
		ofMessages = AsidePosition{At: last.Record.AcceptedAt, StreamSequence: math.MaxUint64}
	case last.Message != nil:
		// The list continues after a message, and records come before messages of the same time. So
		// all records of that time were listed already. A position with an empty ID is after all of
		// them.
		ofRecords = RecordPosition{AcceptedAt: last.Message.At}
		ofMessages = AsidePosition{
			At:             last.Message.At,
			StreamSequence: last.Message.StreamSequence,
		}
	}
	records, err := s.List(ctx, filter.RecordFilter(), ofRecords, limit)
	if err != nil {
		return nil, err
	}
	var messages []AsideMessage
	if filter.AccountID == "" {
		messages, err = s.ListAside(ctx, AsideFilter{
			WorkflowID: filter.WorkflowID,
			Reason:     filter.Reason,
			Since:      filter.Since,
			Until:      filter.Until,
		}, ofMessages, limit)
		if err != nil {
			return nil, err
		}
	}
	var merged []DeadLetter
	for len(merged) < limit && len(records)+len(messages) > 0 {
		if len(messages) == 0 || len(records) > 0 && !records[0].AcceptedAt.Before(messages[0].At) {
			merged = append(merged, DeadLetter{Record: &records[0]})
			records = records[1:]
		} else {
			merged = append(merged, DeadLetter{Message: &messages[0]})
			messages = messages[1:]
		}
	}
	return merged, nil
}

// DismissalAuditEntries returns the audit entries for the dead letters that Dismiss removed.
func DismissalAuditEntries(
	ids []string, messages []MessageKey, audit func(id string, message MessageKey) AuditEntry,
) []AuditEntry {
	entries := make([]AuditEntry, 0, len(ids)+len(messages))
	for _, id := range ids {
		entries = append(entries, audit(id, MessageKey{}))
	}
	for _, key := range messages {
		entries = append(entries, audit("", key))
	}
	return entries
}
