package apiserver

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/stream"
)

func (s *server) routeDeadLetters(to huma.API) {
	register(s, to, call{
		method: http.MethodGet, path: "/dead-letters", id: "list-dead-letters", tag: tagDeadLetters,
		summary:     "List the dead letters",
		description: "Executions that failed and were not requeued, and messages that could not be decoded. The newest first, by `at`.",
	}, s.listDeadLetters)
}

const deadLettersList = "dead-letters"

// messagePrefix begins the ID of a dead letter that is no execution.
const messagePrefix = "message-"

func (s *server) listDeadLetters(ctx context.Context, in *struct {
	Paging
	WorkflowID string `query:"workflowId" doc:"Only this workflow's; of a message that could not be decoded, the one in its subject."`
},
) (*listOutput[api.DeadLetter], error) {
	last, err := deadLetterPosition(in.Paging)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := store.DeadLetters(ctx, s.Store, in.WorkflowID, last, in.Limit+1)
	if err != nil {
		return nil, s.DatabaseError(ctx, err)
	}
	return page(deadLettersList, found, in.Limit, deadLetterOnWire, deadLetterPositionText), nil
}

func deadLetterID(d store.DeadLetter) string {
	if d.Record != nil {
		return d.Record.ID
	}
	return messagePrefix + strconv.FormatUint(d.Message.StreamSequence, 10)
}

// deadLetterPositionText is where a page ends: stored times are whole microseconds.
func deadLetterPositionText(d store.DeadLetter) string {
	return strconv.FormatInt(d.At().UnixMicro(), 10) + " " + deadLetterID(d)
}

func deadLetterPosition(in Paging) (store.DeadLetter, error) {
	text, err := in.after(deadLettersList)
	if err != nil || text == "" {
		return store.DeadLetter{}, err
	}
	micros, id, _ := strings.Cut(text, " ")
	unix, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || id == "" {
		return store.DeadLetter{}, badCursor()
	}
	at := time.UnixMicro(unix).UTC()
	number, isMessage := strings.CutPrefix(id, messagePrefix)
	if !isMessage {
		return store.DeadLetter{Record: &store.Record{AcceptedAt: at, ID: id}}, nil
	}
	sequence, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return store.DeadLetter{}, badCursor()
	}
	return store.DeadLetter{Message: &store.Unreadable{At: at, StreamSequence: sequence}}, nil
}

func deadLetterOnWire(d store.DeadLetter) api.DeadLetter {
	letter := api.DeadLetter{ID: deadLetterID(d), At: d.At()}
	if m := d.Message; m != nil {
		letter.Kind, letter.Reason, letter.StreamSequence, letter.Subject = api.DeadLetterUndecodable, m.Reason, m.StreamSequence, m.Subject
		return letter
	}
	r := d.Record
	letter.Kind, letter.Reason, letter.StreamSequence = api.DeadLetterFailed, r.Error, r.StreamSequence
	letter.Subject = stream.StartSubject(r.Queue, r.WorkflowID, r.NodeID)
	letter.ExecutionID, letter.WorkflowID, letter.NodeID, letter.FailedAt = r.ID, r.WorkflowID, r.NodeID, r.FinishedAt
	return letter
}
