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

// Operators' actions on executions are added to the audit log without a second write, too. The
// start that an operator asked for has the actor in a header, so that the start is never stored
// without its actor; the record and the audit entry are written in one transaction. The entry's ID
// is derived from the execution's, so that a redelivered message adds no second entry.

// These are the actions in the audit log that are not changes of the registry.
const (
	ActionRerun   = "execution.rerun"
	ActionReplay  = "execution.replay"
	ActionRequeue = "dead-letter.requeue"
	ActionDismiss = "dead-letter.dismiss"
	ActionCancel  = "execution.cancel"
)

// These are the fields of the entries of these actions.
const (
	FieldExecution  = "executionId" // the execution that was started or canceled
	FieldDeadLetter = "deadLetter"  // its ID in the list
	fieldRerunOf    = "rerunOf"
	fieldReplayOf   = "replayOf"
)

// NoteActor adds the actor who asked for a start to the start's header.
func NoteActor(header nats.Header, actor edit.Actor) {
	header[stream.HeaderActor] = []string{edit.EncodeActor(actor)}
}

// auditActionOf returns the audit entry of a start that was recorded as r, or none if a sender
// caused the start. Only the actor is taken from the header; the action follows from the record.
func auditActionOf(header nats.Header, r store.Record, at time.Time) []store.AuditEntry {
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
	return []store.AuditEntry{AuditAction(r.ID, at, by, action, r, changes...)}
}

// RequeueOf returns the audit entry of a message that was quarantined at the time aside and is
// recorded now, as r or as a report of r. The entry's ID is derived from the message's key, so that
// repeated attempts add only one entry.
func RequeueOf(
	letter string, aside, now time.Time, actor edit.Actor, r store.Record,
) store.AuditEntry {
	id := uuid.NewSHA1(uuid.NameSpaceOID,
		[]byte(ActionRequeue+" "+letter+" "+store.Time(aside).Format(time.RFC3339Nano))).String()
	return AuditAction(id, now, actor, ActionRequeue, r, edit.Changed{
		Field: FieldExecution,
		To:    r.ID,
	}, edit.Changed{Field: FieldDeadLetter, To: letter})
}

// AuditAction returns an audit entry about a record. The zero Record means that the entry is about
// no record.
func AuditAction(
	id string, at time.Time, actor edit.Actor, action string, about store.Record,
	changes ...edit.Changed,
) store.AuditEntry {
	return auditor.Stored(edit.Entry{
		ID: id, At: at, Actor: actor, Action: action, Changes: changes,
		AccountID: about.AccountID, WorkflowID: about.WorkflowID, NodeID: about.NodeID,
	})
}

// AwaitRecorded waits until everything that the streams of starts hold now is recorded, or the
// context ends.
func AwaitRecorded(ctx context.Context, js jetstream.JetStream) {
	var names []string
	retry.Until(ctx, 20*time.Millisecond, func() bool {
		starts, _, err := stream.Streams(ctx, js)
		names = starts
		return err == nil
	})
	for _, name := range names {
		stream.AwaitConsumed(ctx, js, name, Durable)
	}
}
