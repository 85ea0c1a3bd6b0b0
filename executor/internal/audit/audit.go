// Package audit defines the parts of the audit log that both halves of the executor use: the
// operators' half (operate) and the recording half (recorder, auditor, databasecopy), which do not
// import each other. The operators' half knows the actor of each request. It stores the entries for
// requeues, dismissals, cancellations and sign-ins itself, and the recording half stores all
// others. This package defines:
//
//   - the actions other than changes to the registry, and the fields of their entries;
//   - how an entry is stored in the database: ToStoreEntry;
//   - how the actor is passed from operate to the recorder: SetActor adds it to the header of the
//     start message that the actor requested, and NewStartEntry reads it there.
//
// shared/registry/edit creates the entries for changes to the registry and stores them in the
// header of the changed record.
package audit

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/registry/edit"
)

// Actions in the audit log other than changes of the registry.
const (
	ActionRerun         = "execution.rerun"
	ActionReplay        = "execution.replay"
	ActionCancel        = "execution.cancel"
	ActionRequeue       = "dead-letter.requeue"
	ActionDismiss       = "dead-letter.dismiss"
	ActionSignIn        = "session.sign-in"
	ActionSignInRefused = "session.refused"
	ActionRestore       = "installation.restore"
)

// Names of the fields in audit entries about executions and dead letters.
const (
	fieldExecution  = "executionId" // the execution that was started, recorded or canceled
	fieldDeadLetter = "deadLetter"  // the ID in the list of dead letters
	fieldRerunOf    = "rerunOf"
	fieldReplayOf   = "replayOf"
)

// ToStoreEntry converts an entry to the form in which the database stores it.
func ToStoreEntry(e edit.AuditEntry) store.AuditEntry {
	changes := ""
	if len(e.Changes) > 0 {
		text, err := json.Marshal(e.Changes)
		if err != nil {
			panic(err) // strings, numbers and booleans always marshal
		}
		changes = string(text)
	}
	return store.AuditEntry{
		ID:         e.ID,
		At:         e.At,
		ActorKind:  e.Actor.Kind,
		ActorID:    e.Actor.ID,
		ActorName:  e.Actor.Name,
		Action:     e.Action,
		AccountID:  e.AccountID,
		WorkflowID: e.WorkflowID,
		NodeID:     e.NodeID,
		Changes:    changes,
	}
}

// NewRequeueEntry returns the audit entry for requeuing a message that was put aside at putAsideAt.
// now is the time of the requeue. deadLetterID is the message's ID in the list of dead letters, and
// r is the record of the execution that the message is about. The entry's ID is derived from
// deadLetterID and putAsideAt, so requeuing the message repeatedly adds only one entry.
func NewRequeueEntry(
	deadLetterID string, putAsideAt, now time.Time, actor edit.Actor, r store.Record,
) store.AuditEntry {
	id := uuid.NewSHA1(
		uuid.NameSpaceOID,
		[]byte(
			ActionRequeue+" "+deadLetterID+" "+store.StoredTime(putAsideAt).
				Format(time.RFC3339Nano),
		),
	).String()
	return newEntryAboutRecord(id, now, actor, ActionRequeue, r,
		edit.FieldChange{Field: fieldExecution, To: r.ID},
		edit.FieldChange{Field: fieldDeadLetter, To: deadLetterID})
}

// NewDismissEntry returns the audit entry for a dismissed dead letter. deadLetterID is its ID in
// the list of dead letters. r is the record of the failed execution, or zero if the dead letter is
// a message that was put aside.
func NewDismissEntry(
	deadLetterID string,
	now time.Time,
	actor edit.Actor,
	r store.Record,
) store.AuditEntry {
	return newEntryAboutRecord(newID(), now, actor, ActionDismiss, r,
		edit.FieldChange{Field: fieldDeadLetter, To: deadLetterID})
}

// NewCancelEntry returns the audit entry for a request to cancel the execution with the given ID. r
// is the execution's record.
func NewCancelEntry(id string, now time.Time, actor edit.Actor, r store.Record) store.AuditEntry {
	return newEntryAboutRecord(newID(), now, actor, ActionCancel, r,
		edit.FieldChange{Field: fieldExecution, To: id})
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// newEntryAboutRecord returns an audit entry that refers to the account, workflow and node of the
// record about. If the record is the zero Record, the entry refers to no account, workflow or node.
func newEntryAboutRecord(
	id string, at time.Time, actor edit.Actor, action string, about store.Record,
	changes ...edit.FieldChange,
) store.AuditEntry {
	return ToStoreEntry(edit.AuditEntry{
		ID: id, At: at, Actor: actor, Action: action, Changes: changes,
		AccountID: about.AccountID, WorkflowID: about.WorkflowID, NodeID: about.NodeID,
	})
}
