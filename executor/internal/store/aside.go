package store

import (
	"context"
	"strings"
	"time"
)

// AsideMessages reads the messages put aside. Recording puts them aside and removes those that were
// recovered; DeadLetters dismisses them. The recorder looks messages up, and operate lists them
// among the dead letters.
type AsideMessages interface {
	// GetAside returns a message put aside, dismissed or not, or ErrNotFound.
	GetAside(ctx context.Context, key MessageKey) (AsideMessage, error)

	// ListAside returns at most limit messages put aside after a position, newest first: by At,
	// then by stream sequence, both descending. It omits dismissed ones.
	ListAside(
		ctx context.Context, filter AsideFilter, after AsidePosition, limit int,
	) ([]AsideMessage, error)
}

// RefusedReasonPrefix is the prefix of the Reason of a message that was decoded but refused by the
// database.
const RefusedReasonPrefix = "the database refuses it: "

// AsideMessage is a stream message that was put aside: it cannot be decoded, or the database
// refuses its content.
type AsideMessage struct {
	StreamSequence uint64 // the sequence in the stream that stores messages with Subject
	Subject        string // stored as StoredSubject returns it
	// Reason is for people. It starts with RefusedReasonPrefix if the message was decoded, but the
	// database refused it.
	Reason string
	At     time.Time // when the stream stored the message
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

// SubjectPrefix returns the prefix of the subjects in the message's stream. SQL conditions compare
// it.
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

// MessageKeyFromPrefix returns the key with the given sequence whose SubjectPrefix method returns
// prefix.
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

// AsideFilter selects messages put aside. Zero fields do not filter.
type AsideFilter struct {
	WorkflowID string    // the workflow in the subject
	Since      time.Time // inclusive lower bound of At
	Until      time.Time // exclusive upper bound of At
	Reason     string    // substring of Reason, case-sensitive
}

// AsidePosition is a position in the list of messages put aside, immediately after the message with
// this time and sequence. The zero value is the beginning of the list.
type AsidePosition struct {
	At             time.Time
	StreamSequence uint64
}
