package store

import (
	"context"
	"math"
	"time"
)

// DeadLetter is an execution or a message that needs an operator, because no runner or recorder
// will process it again. Exactly one field is set.
type DeadLetter struct {
	Record  *Record       // failed, and neither requeued nor dismissed
	Message *AsideMessage // put aside, and not dismissed
}

// DeadLetterFilter selects dead letters. Zero fields do not filter.
type DeadLetterFilter struct {
	// AccountID also excludes all messages, because a message's account is not reliably known.
	AccountID  string
	WorkflowID string
	Reason     string    // substring of the reason, case-sensitive
	Since      time.Time // At is not before it
	Until      time.Time // At is before it
}

// Records returns the Filter for the selected dead letters that are execution records, not
// messages.
func (f DeadLetterFilter) Records() Filter {
	return Filter{
		AccountID:  f.AccountID,
		WorkflowID: f.WorkflowID,
		Reason:     f.Reason,
		Since:      f.Since,
		Until:      f.Until,
		DeadLetter: true,
	}
}

// SortTime returns the time that the list of dead letters is sorted by.
func (d DeadLetter) SortTime() time.Time {
	if d.Record != nil {
		return d.Record.AcceptedAt
	}
	return d.Message.At
}

// DeadLetters returns at most limit dead letters after last, newest first by At. At equal times,
// records come before messages. It uses only the fields of last that determine the order. The zero
// DeadLetter returns the first page.
func DeadLetters(
	ctx context.Context, s Store, filter DeadLetterFilter, last DeadLetter, limit int,
) ([]DeadLetter, error) {
	var ofRecords Position
	var ofMessages AsidePosition
	switch {
	case last.Record != nil:
		ofRecords = Position{AcceptedAt: last.Record.AcceptedAt, ID: last.Record.ID}
		ofMessages = AsidePosition{At: last.Record.AcceptedAt, StreamSequence: math.MaxUint64}
	case last.Message != nil:
		ofRecords = Position{AcceptedAt: last.Message.At} // before every ID at that time
		ofMessages = AsidePosition{
			At:             last.Message.At,
			StreamSequence: last.Message.StreamSequence,
		}
	}
	records, err := s.List(ctx, filter.Records(), ofRecords, limit)
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
