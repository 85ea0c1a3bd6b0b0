package recorder

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/fromstream"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// entry is a stream message that is being recorded.
type entry struct {
	msg            jetstream.Msg
	meta           *jetstream.MsgMetadata
	streamIdentity string // identity of the message's stream; "" if unknown
	kind           messageKind
	verdict        verdict
	// The following fields hold what the entry adds to the batch. The kind of the entry determines
	// which of them are set.
	record store.Record // set for a start or a rejection
	isCopy bool         // whether this start is a copy, for groups that skipped the original
	// progress is set for a report. For an unreadable report, it marks the execution named in the
	// report's subject as failed.
	progress execution.Progress
	aside    store.AsideMessage // set for an unreadable message
	audit    []store.AuditEntry // the audit entry, if an operator requested the start
}

// messageKind is the kind of a message. Entries are applied in the order of these constants.
type messageKind int

const (
	kindStart messageKind = iota
	kindRejection
	kindProgress
	kindUnreadable // a message that cannot be decoded
	// kindDedupMarker is an empty message with the same Nats-Msg-Id as a start message in another
	// stream. Because of the marker, the stream that stores it recognizes a copy of that start
	// message as a duplicate. The marker is not recorded.
	kindDedupMarker
	// kindExpired is a start, a rejection or a report that is older than the retention of records.
	// Such a message is delivered if, for example, the recorder's consumer was lost. It is not
	// recorded, because its record has already been deleted, or would be deleted immediately.
	kindExpired
)

// verdict says what the recorder has done with an entry. It determines how the entry's message is
// acknowledged.
type verdict int

const (
	// verdictUndecided means that the context was done before the entry had another verdict. The
	// message will be redelivered.
	verdictUndecided verdict = iota
	verdictRecorded
	verdictPutAside      // stored in the database as a dead letter
	verdictPoisonSuspect // refused by the database; it is retried before it is put aside
)

// decode decodes messages and sorts the entries in the order in which they are applied: start
// messages come before reports of progress. now is the time of recording. The parameter expired is
// a time limit: messages that their stream stored before this time are too old to be recorded, and
// their entries get the kind kindExpired. If the limit is zero, no message is too old.
func decode(messages []jetstream.Msg, now, expired time.Time) []*entry {
	now = store.StoredTime(now)
	entries, values := make([]*entry, 0, len(messages)), make([]entry, len(messages))
	for i, msg := range messages {
		yieldToOthers(i)
		meta, err := msg.Metadata()
		if err != nil {
			continue // the message is not from a stream
		}
		e := &values[i]
		e.msg, e.meta = msg, meta
		if from, ok := msg.(fetchedMsg); ok {
			e.streamIdentity = from.streamIdentity
		}
		e.decode(now)
		if e.kind <= kindProgress && meta.Timestamp.Before(expired) {
			e.kind = kindExpired
		}
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.kind, b.kind) })
	return entries
}

func (e *entry) decode(now time.Time) {
	if stream.IsDedupMarkerSubject(e.msg.Subject()) {
		e.kind = kindDedupMarker
		return
	}
	event, bodyBytes, err := stream.DecodeSummary(e.msg.Subject(), e.msg.Headers(), e.msg.Data())
	if err != nil {
		e.kind = kindUnreadable
		e.aside = e.asideMessage(err.Error())
		if queue, workflowID, id, ok := stream.ParseProgressSubject(e.msg.Subject()); ok {
			e.progress = execution.Progress{
				ID:         id,
				Queue:      queue,
				WorkflowID: workflowID,
				Status:     execution.Failed,
				At:         store.StoredTime(e.meta.Timestamp),
				Error:      unreadableErrorPrefix + err.Error(),
			}
		}
		return
	}
	e.setDecoded(event, bodyBytes, e.msg.Headers(), now)
}

// unreadableErrorPrefix is the beginning of the error that is stored for an execution whose runner
// sent an unreadable report. The error from decoding the report follows it.
const unreadableErrorPrefix = "its runner sent a report that cannot be read, so how it " +
	"ended is not " +
	"known: "

// executionID returns the execution ID in the message's header, or "" if it has none.
func (e *entry) executionID() string { return e.msg.Headers().Get(stream.HeaderExecutionID) }

// setDecoded sets the entry's fields from a decoded message.
func (e *entry) setDecoded(
	event stream.DecodedMessage,
	bodyBytes int,
	header nats.Header,
	now time.Time,
) {
	at := fromstream.MessagePosition{Sequence: e.meta.Sequence.Stream, StoredAt: e.meta.Timestamp}
	switch {
	case event.Start != nil:
		e.kind = kindStart
		e.record = fromstream.StartRecord(event.Start, bodyBytes, at, now)
		e.isCopy = strings.HasPrefix(header.Get(jetstream.MsgIDHeader), copiedStartMsgIDPrefix)
		e.audit = fromstream.AuditEntries(header, e.record, at)
	case event.Rejection != nil:
		e.kind = kindRejection
		e.record = fromstream.RejectionRecord(event.Rejection, at, now)
	case event.Progress != nil:
		e.kind = kindProgress
		e.progress = fromstream.ProgressWithDefaultTime(event.Progress, at)
	}
}

// asideMessage returns the dead letter that is stored when the entry is put aside for the given
// reason.
func (e *entry) asideMessage(reason string) store.AsideMessage {
	return store.AsideMessage{
		StreamSequence: e.meta.Sequence.Stream,
		Subject:        e.msg.Subject(),
		Reason:         reason,
		At:             store.StoredTime(e.meta.Timestamp),
	}
}
