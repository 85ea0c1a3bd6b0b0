package store

import (
	"context"
	"math"
	"time"
)

// DeadLetter is what nobody works on any more and an operator has to look at: exactly one
// field is set.
type DeadLetter struct {
	Record  *Record     // failed, and not requeued
	Message *Unreadable // could not be decoded
}

// At is its time in the list.
func (d DeadLetter) At() time.Time {
	if d.Record != nil {
		return d.Record.AcceptedAt
	}
	return d.Message.At
}

// DeadLetterFilter says which dead letters a list shows; empty fields do not filter.
type DeadLetterFilter struct {
	AccountID  string // leaves out messages: whose they are is not known
	WorkflowID string
}

// DeadLetters returns at most limit dead letters after one, the newest first: by At; at
// one time, records come before messages. last is the last dead letter of the previous page, of
// which only the fields that determine the order are needed. The zero DeadLetter gives the first page.
func DeadLetters(ctx context.Context, s Store, filter DeadLetterFilter, last DeadLetter, limit int) ([]DeadLetter, error) {
	var ofRecords Position
	var ofMessages UnreadablePosition
	switch {
	case last.Record != nil:
		ofRecords = Position{AcceptedAt: last.Record.AcceptedAt, ID: last.Record.ID}
		ofMessages = UnreadablePosition{At: last.Record.AcceptedAt, StreamSequence: math.MaxUint64}
	case last.Message != nil:
		ofRecords = Position{AcceptedAt: last.Message.At} // before every ID of that time
		ofMessages = UnreadablePosition{At: last.Message.At, StreamSequence: last.Message.StreamSequence}
	}
	records, err := s.List(ctx, Filter{AccountID: filter.AccountID, WorkflowID: filter.WorkflowID, DeadLetter: true}, ofRecords, limit)
	if err != nil {
		return nil, err
	}
	var messages []Unreadable
	if filter.AccountID == "" {
		if messages, err = s.ListUnreadable(ctx, filter.WorkflowID, ofMessages, limit); err != nil {
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
