package operate

import (
	"context"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/fromstream"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/stream"
)

const deadLettersCursorKind = "dead-letters"

// A dead letter is either an execution that has failed, whose ID is the execution's, or a message
// that was put aside because it could not be recorded. The ID of a message has the form message-17
// or, in a queue's own stream, message-QUEUE.17, where 17 is the stream sequence. For a report,
// which is in a stream for reports with its own sequences, the ID begins with reportIDPrefix
// instead of messageIDPrefix.
const (
	messageIDPrefix = "message-"
	reportIDPrefix  = "report-"
)

// IsMessageDeadLetterID reports whether a dead letter with the given ID is a message that was put
// aside, and not an execution.
func IsMessageDeadLetterID(id string) bool {
	_, ok := parseMessageDeadLetterID(id)
	return ok
}

// parseMessageDeadLetterID is the inverse of messageDeadLetterID. ok is false if the ID begins
// neither with messageIDPrefix nor with reportIDPrefix. If the sequence is invalid, StreamSequence
// is 0.
func parseMessageDeadLetterID(id string) (key store.MessageKey, ok bool) {
	number, ok := strings.CutPrefix(id, messageIDPrefix)
	if !ok {
		if number, ok = strings.CutPrefix(id, reportIDPrefix); !ok {
			return key, false
		}
		key.Progress = true
	}
	if queue, rest, own := strings.Cut(number, "."); own {
		key.Queue, number = queue, rest
	}
	key.StreamSequence, _ = strconv.ParseUint(number, 10, 64) // no message has the sequence 0
	return key, true
}

// DeadLetterFilter selects dead letters. A field with its zero value does not filter.
type DeadLetterFilter = store.DeadLetterFilter

// DeadLetters lists the dead letters that match a filter, newest first.
func (s *Service) DeadLetters(
	ctx context.Context, caller Caller, filter DeadLetterFilter, page PageOptions,
) (api.List[api.DeadLetter], error) {
	return runRead(ctx, s, caller, newAccessRule("DeadLetters",
		narrowToCallerAccount(&filter.AccountID)),
		func(ctx context.Context) (none api.List[api.DeadLetter], err error) {
			last, err := page.cursorDeadLetter()
			if err != nil {
				return none, err
			}
			found, err := store.ListDeadLetters(ctx, s.config.Store, filter, last, page.Limit+1)
			if err != nil {
				return none, err
			}
			return newListPage(deadLettersCursorKind, found, page, s.apiDeadLetter,
				func(d store.DeadLetter) string {
					return encodeTimePosition(d.SortTime(), deadLetterID(d))
				}), nil
		})
}

func deadLetterID(d store.DeadLetter) string {
	if d.Record != nil {
		return d.Record.ID
	}
	return messageDeadLetterID(messageKeyOf(*d.Message))
}

// messageDeadLetterID returns the ID of the dead letter for a message that was put aside.
func messageDeadLetterID(key store.MessageKey) string {
	prefix := messageIDPrefix
	if key.Progress {
		prefix = reportIDPrefix
	}
	if key.Queue != "" {
		prefix += key.Queue + "."
	}
	return prefix + strconv.FormatUint(key.StreamSequence, 10)
}

func messageKeyOf(u store.AsideMessage) store.MessageKey {
	return fromstream.MessageKeyOf(u.StreamSequence, u.Subject)
}

func (p PageOptions) cursorDeadLetter() (none store.DeadLetter, err error) {
	at, id, err := p.cursorTimePosition(deadLettersCursorKind, 1)
	if err != nil || at.IsZero() {
		return none, err
	}
	key, isMessage := parseMessageDeadLetterID(id[0])
	if !isMessage {
		return store.DeadLetter{Record: &store.Record{AcceptedAt: at, ID: id[0]}}, nil
	}
	if key.StreamSequence == 0 {
		return none, invalidCursorError()
	}
	return store.DeadLetter{Message: &store.AsideMessage{
		At: at, StreamSequence: key.StreamSequence,
	}}, nil
}

func (s *Service) apiDeadLetter(d store.DeadLetter) api.DeadLetter {
	letter := api.DeadLetter{ID: deadLetterID(d), At: d.SortTime()}
	if m := d.Message; m != nil {
		letter.Kind, letter.Reason, letter.StreamSequence, letter.Subject =
			api.DeadLetterUndecodable, m.Reason, m.StreamSequence, m.Subject
		if parts := strings.Split(m.Subject, "."); m.RefusedByDatabase() && len(parts) >= 5 {
			// The database refused this message after the executor had decoded it, so the subject
			// is valid: the workflow ID and the node ID can be taken from it.
			letter.Kind, letter.WorkflowID = api.DeadLetterRefused, parts[len(parts)-2]
			if !stream.IsProgressSubject(m.Subject) {
				letter.NodeID = parts[len(parts)-1]
			}
		}
		return letter
	}
	r := d.Record
	letter.Kind, letter.Reason, letter.StreamSequence = api.DeadLetterFailed, r.Error,
		r.StreamSequence
	letter.Subject = s.startSubject(r)
	letter.ExecutionID, letter.WorkflowID, letter.NodeID, letter.FailedAt = r.ID, r.WorkflowID,
		r.NodeID, r.FinishedAt
	return letter
}

// startSubject returns the subject of an execution's start message. It returns "" if the record
// does not determine the subject, because the execution may have an order key, or may be in its
// queue's own stream.
func (s *Service) startSubject(r *store.Record) string {
	settings, exist := s.config.RegistryIndex.Queue(r.Queue)
	if exist && (settings.Record.LaneCount > 0 || settings.Record.Stream != nil) {
		return ""
	}
	return stream.StartSubject(r.Queue, r.WorkflowID, r.NodeID)
}
