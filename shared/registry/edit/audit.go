package edit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/registry"
)

// A change and its audit entry are stored as one message: the message's data is the record, and a
// header contains the entry. So neither is ever stored without the other, no matter when a process
// is killed. The executors copy the entries, in order, from the buckets' streams to the database,
// where the entry's ID is unique. The buckets keep a record's earlier revisions until their entries
// have been copied: see MaxRecordRevisions.

// MaxRecordRevisions is the maximum number of revisions of one record that a bucket keeps.
// Executors usually copy the audit entries within moments. The limit is high so that no entry is
// lost while the database is unavailable.
const MaxRecordRevisions = 1 << 20

// Actor is the operator or program that makes a change.
type Actor = registry.Actor

// systemActor is the actor of changes that no caller has requested.
var systemActor = Actor{Kind: "system", Name: "hookstart"}

type (
	actorKey struct{}
	// auditEntryKey is the context key of an audit entry. If the context has one, put stores that
	// entry with the record and does not call auditEntryFor.
	auditEntryKey struct{}
)

// WithActor returns a context whose changes are attributed to actor in the audit log.
func WithActor(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the actor of a context, or Hookstart itself if the context has none.
func ActorOf(ctx context.Context) Actor {
	if actor, ok := ctx.Value(actorKey{}).(Actor); ok {
		return actor
	}
	return systemActor
}

// AuditEntry records who made a change, and what it changed.
type AuditEntry struct {
	ID         string        `json:"id"`
	At         time.Time     `json:"at,omitzero"` // when it was stored; zero in a message's header
	Actor      Actor         `json:"actor"`
	Action     string        `json:"action"` // such as workflow.activate
	AccountID  string        `json:"accountId,omitempty"`
	WorkflowID string        `json:"workflowId,omitempty"`
	NodeID     string        `json:"nodeId,omitempty"`
	Changes    []FieldChange `json:"changes,omitempty"` // the fields that differ, sorted by name
}

// FieldChange is a field of a record that was changed, with its old and its new value. It never
// contains a secret value.
type FieldChange struct {
	Field string `json:"field"`          // the field's path, such as triggers[webhook].name
	From  any    `json:"from,omitempty"` // nil means that it was not set
	To    any    `json:"to,omitempty"`   // nil means that it is not set
}

// redactedValue replaces secret or large values in audit entries.
const redactedValue = "(not shown)"

// Limits on an entry, which must fit into the headers of the record's message. NATS allows 64 KiB
// for all headers together.
const (
	maxAuditChanges       = 100
	maxAuditChangesLength = 32 << 10 // bytes of all changes as JSON, before base64
	maxAuditValueLength   = 300      // characters
)

// EncodeAuditEntry returns the encoded form of an entry, as stored in a header.
func EncodeAuditEntry(e AuditEntry) string { return encodeHeaderValue(e) }

// EncodeActor returns the encoded form of an actor, as stored in a header.
func EncodeActor(a Actor) string { return encodeHeaderValue(a) }

// DecodeActor decodes the result of EncodeActor.
func DecodeActor(encoded string) (a Actor, err error) {
	if err := decodeHeaderValue(encoded, &a); err != nil {
		return Actor{}, fmt.Errorf("an actor of the audit cannot be read: %w", err)
	}
	return a, nil
}

func encodeHeaderValue(value any) string {
	return base64.StdEncoding.EncodeToString(encodeJSON(value))
}

func encodeJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings, numbers and booleans can always be marshaled
	}
	return text
}

func decodeHeaderValue(encoded string, into any) error {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// DecodeAuditEntry returns the audit entry in the header of a stored record. exists is false for a
// revision without an entry, for example the secrets of a new node or a record restored from a
// backup. An account's record with the intent to activate or deactivate a workflow has no entry
// either, because the entry is stored with the workflow's record.
func DecodeAuditEntry(header nats.Header) (e AuditEntry, exists bool, err error) {
	encoded := header.Get(registry.AuditHeader)
	if encoded == "" {
		return e, false, nil
	}
	if err = decodeHeaderValue(encoded, &e); err != nil || e.ID == "" {
		return e, false, fmt.Errorf("an entry of the audit cannot be read: %w", err)
	}
	return e, true, nil
}

// NewAuditEntry returns an entry that does not refer to a record of the registry, for example an
// entry for a sign-in.
func NewAuditEntry(actor Actor, action string) AuditEntry {
	return AuditEntry{ID: uuid.Must(uuid.NewV7()).String(), Actor: actor, Action: action}
}

// AuditBucket returns the bucket whose records contain the audit entries of an action, or "" if the
// action does not change a record.
func AuditBucket(action string) string {
	if action == actionSamplePayloadSet || action == actionSamplePayloadDelete {
		return registry.SecretsBucket
	}
	kind, _, _ := strings.Cut(action, ".")
	switch kind + "." {
	case registry.AccountPrefix, registry.WorkflowPrefix, registry.APIKeyPrefix,
		registry.QueuePrefix, "queue-group.", "queue-stream.", "token.", "sender.",
		"sender-secret.":
		return registry.Bucket
	}
	return ""
}

// auditEntryFor returns the audit entry for a change that replaces the record under key with after,
// or deletes it if after is nil. audited is false if such a change has no audit entry.
func (e *Editor) auditEntryFor(
	ctx context.Context, key string, after registry.Record,
) (entry AuditEntry, audited bool) {
	entry = NewAuditEntry(ActorOf(ctx), "")
	var before registry.Record
	kind, id, _ := strings.Cut(key, ".")
	switch kind + "." {
	case registry.AccountPrefix:
		if have, exists := e.index.Account(id); exists {
			before = have.Record
		}
		entry.AccountID = id
	case registry.WorkflowPrefix:
		if have, exists := e.index.Workflow(id); exists {
			before, entry.AccountID = have.Record, have.Record.AccountID
		}
		if w, ok := after.(*registry.Workflow); ok {
			entry.AccountID = w.AccountID
		}
		entry.WorkflowID = id
	case registry.APIKeyPrefix:
		if have, exists := e.index.APIKey(id); exists {
			before, entry.AccountID = have.Record, have.Record.AccountID
		}
		if k, ok := after.(*registry.APIKey); ok {
			entry.AccountID = k.AccountID
		}
	case registry.QueuePrefix:
		if have, exists := e.index.Queue(id); exists {
			before = have.Record
		}
		was, now := prefixedFields(
			"queues["+id+"].",
			before,
		), prefixedFields(
			"queues["+id+"].",
			after,
		)
		fields := changedFields(was, now)
		entry.Action, entry.Changes = queueAuditAction(fields, now), fieldChanges(fields, was, now)
		return entry, len(fields) > 0
	default: // the plan catalog: it comes from the configuration, so its changes are not audited
		return entry, false
	}
	was, now := fieldsOf(before), fieldsOf(after)
	fields := changedFields(was, now)
	if len(fields) == 0 && changesIntakeClosed(before, after) {
		// Closing or reopening a workflow is only a step of changing its queue. The change of the
		// queue has an audit entry of its own.
		return entry, false
	}
	if len(fields) == 0 && entry.WorkflowID == "" {
		// The account's record only states the intent to activate or deactivate a workflow. The
		// change of the workflow's record has the audit entry.
		return entry, false
	}
	entry.Action = auditAction(kind, before, after, fields)
	entry.NodeID = commonNodeID(fields)
	entry.Changes = fieldChanges(fields, was, now)
	return entry, true
}

// auditAction returns the name of the action that changed a record, for example workflow.activate.
// fields holds the names of the changed fields. before is nil for a new record, and after is nil
// for a deletion.
func auditAction(kind string, before, after registry.Record, fields []string) string {
	switch {
	case before == nil:
		return kind + ".create"
	case after == nil && kind == strings.TrimSuffix(registry.APIKeyPrefix, "."):
		return kind + ".revoke"
	case after == nil:
		return kind + ".delete"
	case slices.Contains(fields, "active"):
		//nolint:errcheck,forcetypeassert // only workflows have it
		if after.(*registry.Workflow).Active {
			return "workflow.activate"
		}
		return "workflow.deactivate"
	case allFieldsMatch(fields, func(field string) bool {
		return strings.HasSuffix(field,
			"].tokens")
	}):
		return "token.rotate"
	case allFieldsMatch(fields, func(field string) bool {
		return strings.HasSuffix(field, "].sender.secrets")
	}):
		return "sender-secret.change"
	case allFieldsMatch(fields, func(field string) bool {
		return strings.Contains(field,
			"].sender.")
	}):
		if now := fieldsOf(after); slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(
			field string,
		) bool {
			return slices.Contains(fields, field)
		}) {
			return "sender.set"
		}
		return "sender.delete"
	default:
		return kind + ".update"
	}
}

// queueAuditAction returns the name of the action that changed a queue's settings, for example
// queue.pause. fields holds the names of the changed fields. now holds all fields of the changed
// settings.
func queueAuditAction(fields []string, now map[string]fieldValue) string {
	if i := slices.IndexFunc(fields, isStreamField); i >= 0 {
		if slices.ContainsFunc(slices.Collect(maps.Keys(now)), isStreamField) {
			return "queue-stream.set"
		}
		return "queue-stream.delete"
	}
	pause := slices.ContainsFunc(fields, func(field string) bool {
		return strings.HasSuffix(field, "].pausedSince") ||
			strings.HasSuffix(field, "].pausedUntil")
	})
	if !pause {
		return "queue-group.update"
	}
	for field := range now {
		if strings.HasSuffix(field, "].pausedSince") {
			return "queue.pause"
		}
	}
	return "queue.resume"
}

// changesIntakeClosed reports whether a change makes ingresses refuse all requests for a workflow,
// or accept them again: see Workflow.IntakeClosed.
func changesIntakeClosed(before, after registry.Record) bool {
	was, wasOne := before.(*registry.Workflow)
	now, nowOne := after.(*registry.Workflow)
	return wasOne && nowOne && was.IntakeClosed != now.IntakeClosed
}

// isStreamField reports whether a field of a queue configures the queue's own stream.
func isStreamField(field string) bool {
	_, name, _ := strings.Cut(field, "].")
	return name == "stream" || strings.HasPrefix(name, "stream.")
}

func allFieldsMatch(fields []string, holds func(string) bool) bool {
	return !slices.ContainsFunc(fields, func(field string) bool { return !holds(field) })
}

// commonNodeID returns the ID of the trigger node to which all of the fields belong, or "" if they
// do not all belong to the same node.
func commonNodeID(fields []string) (node string) {
	for _, field := range fields {
		rest, ok := strings.CutPrefix(field, "triggers[")
		id, _, _ := strings.Cut(rest, "]")
		if !ok || (node != "" && node != id) {
			return ""
		}
		node = id
	}
	return node
}

// fieldValue is the value of a record's field, in a form that can be compared and shown.
type fieldValue struct {
	displayValue any    // nil means that the value is not shown
	hiddenText   string // text of a hidden value, only for comparison
}

// fieldsOf returns the non-zero fields of a record, keyed by the names in their "audit" tags, which
// are the names in the operators' API.
func fieldsOf(record registry.Record) map[string]fieldValue {
	return prefixedFields("", record)
}

// prefixedFields is like fieldsOf, but adds a prefix to each name.
func prefixedFields(prefix string, record registry.Record) map[string]fieldValue {
	fields := map[string]fieldValue{}
	if record != nil {
		addFields(fields, prefix, reflect.Indirect(reflect.ValueOf(record)))
	}
	return fields
}

// addFields adds the non-zero fields of record to a map, with a prefix before each name.
func addFields(to map[string]fieldValue, prefix string, record reflect.Value) {
	for i := range record.NumField() {
		tag, option, _ := strings.Cut(record.Type().Field(i).Tag.Get("audit"), ",")
		v, name := record.Field(i), prefix+tag
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if tag == "-" || !v.IsValid() || v.IsZero() {
			continue
		}
		switch content := v.Interface().(type) {
		case time.Time:
			to[name] = fieldValue{displayValue: content.Format(time.RFC3339)}
		case time.Duration:
			to[name] = fieldValue{displayValue: int64(content / time.Second)}
		case string:
			to[name] = fieldValue{displayValue: shortened(content)}
		case []string:
			to[name] = fieldValue{displayValue: shortened(strings.Join(content, ", "))}
		case []registry.Trigger:
			for _, node := range content {
				at := name + "[" + node.NodeID + "]"
				to[at] = fieldValue{displayValue: true}
				addFields(to, at+".", reflect.ValueOf(node))
			}
		case registry.QueueStream:
			// The audit log shows whether operators requested a separate stream for the queue, not
			// the phases of the move that follows.
			if content.Phase < registry.QueuePhaseMovingToShared {
				to[name] = fieldValue{displayValue: "own"}
				addFields(to, name+".", v)
			}
		case []registry.QueueGroup:
			for _, group := range content {
				addFields(to, name+"["+group.Group+"].", reflect.ValueOf(group))
			}
		default:
			switch {
			case option == "hidden" && v.Len() > 0:
				// %#v prints maps in the order of their keys, so equal maps give equal strings.
				to[name] = fieldValue{hiddenText: fmt.Sprintf("%#v", content)}
			case option == "hidden":
			case v.Kind() == reflect.Struct:
				addFields(to, name+".", v)
			default:
				to[name] = fieldValue{displayValue: content}
			}
		}
	}
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxAuditValueLength {
		return string(runes[:maxAuditValueLength]) + "…"
	}
	return text
}

// changedFields returns the names of the fields that differ, sorted.
func changedFields(was, after map[string]fieldValue) (fields []string) {
	for field, v := range was {
		if now, still := after[field]; !still || now != v {
			fields = append(fields, field)
		}
	}
	for field := range after {
		if _, before := was[field]; !before {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// fieldChanges returns the old and the new value of each field, in the order of fields. If the
// entry would become too large, the last fields are omitted, and the last element says how many.
func fieldChanges(fields []string, was, now map[string]fieldValue) (changes []FieldChange) {
	length := 0
	for _, field := range fields[:min(len(fields), maxAuditChanges)] {
		change := FieldChange{field, valueOrRedacted(was, field), valueOrRedacted(now, field)}
		if length += len(encodeJSON(change)); length > maxAuditChangesLength {
			break
		}
		changes = append(changes, change)
	}
	if more := len(fields) - len(changes); more > 0 {
		changes = append(changes, FieldChange{Field: "…", To: fmt.Sprintf("%d more fields", more)})
	}
	return changes
}

func valueOrRedacted(values map[string]fieldValue, field string) any {
	v, ok := values[field]
	switch {
	case !ok:
		return nil
	case v.displayValue == nil:
		return redactedValue
	}
	return v.displayValue
}
