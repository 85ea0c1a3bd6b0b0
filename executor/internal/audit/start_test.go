package audit_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/executor/internal/audit"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/stream"
)

// NewStartEntry derives the action from the record, and reads the actor from the header. If the
// actor in the header cannot be decoded, the entry has an unknown actor.
func TestStartEntry(t *testing.T) {
	t.Parallel()
	const original = "original"
	actor := edit.Actor{Kind: "key", ID: "k", Name: "deploy"}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	header := nats.Header{}
	audit.SetActor(header, actor)
	unreadable := nats.Header{stream.HeaderActor: {"%"}}

	record := store.Record{
		ID: "new", AccountID: "acme", WorkflowID: "wf", NodeID: "node",
		Source: execution.SourceRerun,
	}
	with := func(change func(*store.Record)) store.Record {
		changed := record
		change(&changed)
		return changed
	}
	requeue := with(func(r *store.Record) {
		r.RerunOf, r.ID = original, execution.IDForRequeue(original)
	})
	for name, test := range map[string]struct {
		header  nats.Header
		record  store.Record
		action  string // "" means no entry
		actor   edit.Actor
		changes string
	}{
		"on the sample": {
			header, record, audit.ActionRerun, actor,
			`[{"field":"executionId","to":"new"}]`,
		},
		"rerun": {
			header, with(func(r *store.Record) { r.RerunOf = original }), audit.ActionRerun, actor,
			`[{"field":"executionId","to":"new"},{"field":"rerunOf","to":"original"}]`,
		},
		"replay": {
			header, with(func(r *store.Record) { r.ReplayOf = original }), audit.ActionReplay,
			actor,
			`[{"field":"executionId","to":"new"},{"field":"replayOf","to":"original"}]`,
		},
		"requeue": {
			header, requeue, audit.ActionRequeue, actor,
			`[{"field":"executionId","to":"` + requeue.ID +
				`"},{"field":"deadLetter","to":"original"}]`,
		},
		"unreadable actor": {
			unreadable, record, audit.ActionRerun,
			edit.Actor{Kind: "unknown"},
			`[{"field":"executionId","to":"new"}]`,
		},
		"no actor": {header: nats.Header{}, record: record},
		"of a sender": {
			header: header,
			record: with(func(r *store.Record) { r.Source = execution.SourceWebhook }),
		},
	} {
		var want store.AuditEntry
		if test.action != "" {
			want = store.AuditEntry{
				ID: test.record.ID, At: at, Action: test.action, Changes: test.changes,
				ActorKind: test.actor.Kind, ActorID: test.actor.ID, ActorName: test.actor.Name,
				AccountID: "acme", WorkflowID: "wf", NodeID: "node",
			}
		}
		got, audited := audit.NewStartEntry(test.header, test.record, at)
		if audited != (test.action != "") || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, audited, want)
		}
	}
}

// Two requeues of the same message have the same audit entry ID, so the database keeps one entry.
// If the message is put aside again after that, the entry for its next requeue has a different ID.
func TestRequeueEntryHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	aside := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id := func(letter string, aside, now time.Time) string {
		return audit.NewRequeueEntry(letter, aside, now, edit.Actor{}, store.Record{}).ID
	}
	first := id("message-1", aside, aside.Add(time.Hour))
	if again := id("message-1", aside, aside.Add(2*time.Hour)); again != first {
		t.Errorf("requeued again: %s; want %s", again, first)
	}
	if other := id("message-2", aside, aside.Add(time.Hour)); other == first {
		t.Error("another message has the same ID")
	}
	if later := id("message-1", aside.Add(time.Minute), aside.Add(time.Hour)); later == first {
		t.Error("a message that was put aside again has the same ID")
	}
}
