package recorder

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/auditor"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// Operators' actions on executions get into the audit without a second write, too. The start that an operator asked for
// has the actor in a header, so that one is never stored without the other; the record and the audit entry are written in
// one transaction. The entry's ID is made of the execution's, so that a redelivered message adds no second entry.

// The actions in the audit that are not changes of the registry.
const (
	ActionRerun   = "execution.rerun"
	ActionReplay  = "execution.replay"
	ActionRequeue = "dead-letter.requeue"
	ActionDismiss = "dead-letter.dismiss"
)

// Fields of their entries.
const (
	FieldExecution  = "executionId" // the one that was started
	FieldDeadLetter = "deadLetter"  // its ID in the list
	fieldRerunOf    = "rerunOf"
	fieldReplayOf   = "replayOf"
)

// NoteActor says in the header of a start who asked for it.
func NoteActor(header nats.Header, by edit.Actor) {
	header[stream.HeaderActor] = []string{edit.EncodeActor(by)}
}

// deedOf makes the audit entry of a start that was recorded as r; none if a sender caused it. Only the actor is taken from
// the header; the action follows from the record.
func deedOf(header nats.Header, r store.Record, at time.Time) []store.AuditEntry {
	encoded := header.Get(stream.HeaderActor)
	if encoded == "" || r.Source != execution.Rerun {
		return nil
	}
	by, err := edit.DecodeActor(encoded)
	if err != nil {
		by = edit.Actor{Kind: "unknown"}
	}
	action, field := ActionRerun, fieldRerunOf
	switch {
	case r.ReplayOf != "":
		action, field = ActionReplay, fieldReplayOf
	case r.IsRequeue():
		action, field = ActionRequeue, FieldDeadLetter
	}
	changes := []edit.Changed{{Field: FieldExecution, To: r.ID}}
	if of := cmp.Or(r.ReplayOf, r.RerunOf); of != "" {
		changes = append(changes, edit.Changed{Field: field, To: of})
	}
	return []store.AuditEntry{Deed(r.ID, at, by, action, r, changes...)}
}

// RequeueOf is the audit entry of a message that was put aside at a time and is recorded now, as r or as a report of r.
// Its ID is made of the message's key, so that repeated attempts add one entry only.
func RequeueOf(letter string, aside, now time.Time, by edit.Actor, r store.Record) store.AuditEntry {
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(ActionRequeue+" "+letter+" "+store.Time(aside).Format(time.RFC3339Nano))).String()
	return Deed(id, now, by, ActionRequeue, r, edit.Changed{Field: FieldExecution, To: r.ID}, edit.Changed{Field: FieldDeadLetter, To: letter})
}

// Deed is an entry about a record; the zero Record: about none.
func Deed(id string, at time.Time, by edit.Actor, action string, about store.Record, changes ...edit.Changed) store.AuditEntry {
	return auditor.Stored(edit.Entry{
		ID: id, At: at, Actor: by, Action: action, Changes: changes,
		AccountID: about.AccountID, WorkflowID: about.WorkflowID, NodeID: about.NodeID,
	})
}

// CaughtUp waits until all that the stream holds now is recorded, or the context ends.
func CaughtUp(ctx context.Context, js jetstream.JetStream) {
	var last uint64
	for ctx.Err() == nil {
		consumer, err := js.Consumer(ctx, stream.Name, Durable)
		if err == nil && last == 0 {
			if s, err := js.Stream(ctx, stream.Name); err == nil {
				last = s.CachedInfo().State.LastSeq
			}
		}
		if err == nil && (consumer.CachedInfo().AckFloor.Stream >= last || consumer.CachedInfo().NumPending+uint64(consumer.CachedInfo().NumAckPending) == 0) { //nolint:gosec // a count
			return
		}
		retry.Wait(ctx, 20*time.Millisecond)
	}
}
