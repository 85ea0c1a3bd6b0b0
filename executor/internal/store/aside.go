package store

import (
	"context"
	"strings"
	"time"
)

// AsideMessages reads the stream messages that were put aside because they could not be decoded or
// because the database refused them. The recorder looks up single messages, and operate lists them
// among the dead letters. Other interfaces change them: Recording puts messages aside and removes
// recovered ones, and DeadLetters dismisses them.
type AsideMessages interface {
	// GetAside returns a message that was put aside, even if it was dismissed. It returns
	// ErrNotFound if there is no such message.
	GetAside(ctx context.Context, key MessageKey) (AsideMessage, error)

	// ListAside returns one page of the messages that were put aside and not dismissed, newest
	// first: by At, then by stream sequence, both descending. after is the position of the last
	// message on the previous page, or zero for the first page. A page has at most limit messages.
	ListAside(
		ctx context.Context, filter AsideFilter, after AsidePosition, limit int,
	) ([]AsideMessage, error)
}

// RefusedReasonPrefix is the prefix of the Reason of a message that was decoded but refused by the
// database.
const RefusedReasonPrefix = "the database refuses it: "

// AsideMessage is a stream message that was put aside because it cannot be decoded or because the
// database refuses its content.
type AsideMessage struct {
	StreamSequence uint64 // the sequence in the stream that stores messages with Subject
	Subject        string // stored as StoredSubject returns it
	// Reason describes for people why the message was put aside. It starts with RefusedReasonPrefix
	// if the message was decoded, but the database refused it.
	Reason string
	At     time.Time // when the stream stored the message
}

// MessageKey identifies a message put aside. It names the stream as well as the sequence, because
// each stream has sequences of its own.
type MessageKey struct {
	StreamSequence uint64
	Progress       bool   // whether the stream holds progress reports
	Queue          string // the queue that owns the stream; "" means a stream that queues share
}

// sharedStartPrefix is what SubjectPrefix returns for the shared stream of start messages. No
// subject prefix identifies that stream: its subjects share only the prefix "executions.", which
// the subjects of the other streams also have.
const sharedStartPrefix = "-"

// SubjectPrefix returns the subject prefix that identifies the message's stream, or
// sharedStartPrefix for the shared stream of start messages. SQL conditions derive the same value
// from the subjects of stored messages, and compare it with the result of SubjectPrefix.
func (k MessageKey) SubjectPrefix() string {
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

// MessageKeyFromPrefix returns the key of the message with the given sequence in the stream that
// prefix identifies. prefix is a result of SubjectPrefix.
func MessageKeyFromPrefix(sequence uint64, prefix string) MessageKey {
	key := MessageKey{StreamSequence: sequence, Progress: prefix == "executions.progress."}
	for _, own := range []string{"executions.reports.", "executions.queue."} {
		if queue, ok := strings.CutPrefix(prefix, own); ok {
			key.Progress, key.Queue = own == "executions.reports.", strings.TrimSuffix(queue, ".")
		}
	}
	return key
}

// RefusedByDatabase reports whether the message could be decoded but was refused by the database.
func (u AsideMessage) RefusedByDatabase() bool {
	return strings.HasPrefix(u.Reason, RefusedReasonPrefix)
}

// AsideFilter selects messages put aside. Fields that are zero are ignored.
type AsideFilter struct {
	WorkflowID string    // the workflow in the subject
	Since      time.Time // inclusive lower bound of At
	Until      time.Time // exclusive upper bound of At
	Reason     string    // substring of Reason, case-sensitive
}

// AsidePosition is a position in the list of messages put aside, immediately after the message with
// this time and sequence. The zero value is the beginning of the list.
type AsidePosition struct {
	At             time.Time // AsideMessage.At of the message before this position
	StreamSequence uint64
}
