package audit

import (
	"cmp"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// A start that an operator requests is recorded in the audit log without a separate write. The
// start message carries the actor in a header, so it cannot be stored without its actor. The
// recorder writes the execution record and the audit entry in one transaction. The entry has the
// same ID as the execution, so a redelivered message does not add a second entry.

// SetActor adds the actor who requested a start to the header of the start message.
func SetActor(header nats.Header, actor edit.Actor) {
	header[stream.HeaderActor] = []string{edit.EncodeActor(actor)}
}

// NewStartEntry returns the audit entry for a start message that an operator requested. header is
// the message's header, r is the record made from the message, and at is when the stream stored it.
// The entry's actor comes from the header, and its action from r. The second result is false if no
// operator requested the start.
func NewStartEntry(header nats.Header, r store.Record, at time.Time) (store.AuditEntry, bool) {
	encoded := header.Get(stream.HeaderActor)
	if encoded == "" || r.Source != execution.SourceRerun {
		return store.AuditEntry{}, false
	}
	actor, err := edit.DecodeActor(encoded)
	if err != nil {
		actor = edit.Actor{Kind: "unknown"}
	}
	action, field := ActionRerun, fieldRerunOf
	switch {
	case r.ReplayOf != "":
		action, field = ActionReplay, fieldReplayOf
	case r.IsRequeue():
		action, field = ActionRequeue, fieldDeadLetter
	}
	changes := []edit.FieldChange{{Field: fieldExecution, To: r.ID}}
	if original := cmp.Or(r.ReplayOf, r.RerunOf); original != "" {
		changes = append(changes, edit.FieldChange{Field: field, To: original})
	}
	return newEntryAboutRecord(r.ID, at, actor, action, r, changes...), true
}
