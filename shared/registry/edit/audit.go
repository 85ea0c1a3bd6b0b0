package edit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// A change and what the audit says of it are one message: the record is stored with the entry in a header. So there
// is no moment in which one is stored without the other, whoever is killed when. The executors take the entries out
// of the buckets' streams, in order, and into the database; an entry has an ID, by which it is there once. The
// buckets keep a record's earlier revisions until their entries are taken: see History.

// History is how many revisions of one record a bucket keeps at most. They are there until the executors have taken
// their entries of the audit, moments as a rule; it is many, so that none is lost while the database is away.
const History = 1 << 20

// Actor is who makes a change.
type Actor struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// system makes the changes that no caller asked for.
var system = Actor{Kind: "system", Name: "hookstart"}

type (
	actorKey struct{}
	// entryKey is of the entry of a record that says nothing by itself.
	entryKey struct{}
)

// By says who makes the changes of a context.
func By(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf says who that is: hookstart itself, if nobody was named.
func ActorOf(ctx context.Context) Actor {
	if actor, is := ctx.Value(actorKey{}).(Actor); is {
		return actor
	}
	return system
}

// Entry is what the audit says of one change.
type Entry struct {
	ID         string    `json:"id"`
	At         time.Time `json:"at,omitzero"` // when the change was stored; zero in the header
	Actor      Actor     `json:"actor"`
	Action     string    `json:"action"`
	AccountID  string    `json:"accountId,omitempty"`
	WorkflowID string    `json:"workflowId,omitempty"`
	NodeID     string    `json:"nodeId,omitempty"`
	Changes    []Changed `json:"changes,omitempty"`
}

// Changed is a field of a record that a change has changed. What is secret is never in it.
type Changed struct {
	Field string `json:"field"`
	From  any    `json:"from,omitempty"` // nil: it was not set
	To    any    `json:"to,omitempty"`   // nil: it is not set
}

// notShown is in the place of what is secret, or large.
const notShown = "(not shown)"

// The bounds of an entry: it is a part of the record's message.
const (
	maxChanges     = 100
	maxChangedText = 300
)

// EncodeEntry is an entry as it is in a header.
func EncodeEntry(e Entry) string { return encodeHeader(e) }

// EncodeActor is an actor as it is in a header.
func EncodeActor(a Actor) string { return encodeHeader(a) }

// DecodeActor reads what EncodeActor has written.
func DecodeActor(encoded string) (a Actor, err error) {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return Actor{}, fmt.Errorf("an actor of the audit cannot be read: %w", err)
	}
	return a, nil
}

func encodeHeader(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // texts, numbers and booleans always marshal
	}
	return base64.StdEncoding.EncodeToString(text)
}

// DecodeEntry reads the entry of a stored record. There is none where nobody changed anything: an intent that is
// carried out by another record, secrets of a new node, what a backup has restored.
func DecodeEntry(header nats.Header) (e Entry, exists bool, err error) {
	encoded := header.Get(registry.HeaderAudit)
	if encoded == "" {
		return e, false, nil
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil || e.ID == "" {
		return e, false, fmt.Errorf("an entry of the audit cannot be read: %w", err)
	}
	return e, true, nil
}

// NewEntry is an entry about nothing in the registry, as of a sign-in.
func NewEntry(actor Actor, action string) Entry {
	return Entry{ID: uuid.Must(uuid.NewV7()).String(), Actor: actor, Action: action}
}

// entryOf is the entry of a record that takes the place of another one; nil: there is none. It returns false for a
// change that is nobody's.
func (e *Editor) entryOf(ctx context.Context, key string, after proto.Message) (entry Entry, audited bool) {
	entry = NewEntry(ActorOf(ctx), "")
	var before proto.Message
	kind, id, _ := strings.Cut(key, ".")
	switch kind + "." {
	case registry.AccountPrefix:
		if have, exists := e.directory.Account(id); exists {
			before = have.Record
		}
		entry.AccountID = id
	case registry.WorkflowPrefix:
		if have, exists := e.directory.Workflow(id); exists {
			before, entry.AccountID = have.Record, have.Record.GetAccountId()
		}
		if w, is := after.(*hookstartv1.Workflow); is {
			entry.AccountID = w.GetAccountId()
		}
		entry.WorkflowID = id
	case registry.APIKeyPrefix:
		if have, exists := e.directory.Key(id); exists {
			before, entry.AccountID = have.Record, have.Record.GetAccountId()
		}
		if k, is := after.(*hookstartv1.Key); is {
			entry.AccountID = k.GetAccountId()
		}
	default: // the plan catalog is configuration
		return entry, false
	}
	was, is := fieldsOf(before), fieldsOf(after)
	fields := changedFields(was, is)
	if len(fields) == 0 && entry.WorkflowID == "" {
		return entry, false // an intent, which the workflow's record carries out
	}
	entry.Action = actionOf(kind, before, after, fields)
	entry.NodeID = nodeOf(fields)
	entry.Changes = changesOf(fields, was, is)
	return entry, true
}

// actionOf is the stable name of what was done to a record.
func actionOf(kind string, before, after proto.Message, fields []string) string {
	switch {
	case before == nil:
		return kind + ".create"
	case after == nil && kind == strings.TrimSuffix(registry.APIKeyPrefix, "."):
		return kind + ".revoke"
	case after == nil:
		return kind + ".delete"
	case slices.Contains(fields, "active"):
		if after.(*hookstartv1.Workflow).GetActive() { //nolint:errcheck,forcetypeassert // only workflows have it
			return "workflow.activate"
		}
		return "workflow.deactivate"
	case all(fields, func(field string) bool { return strings.HasSuffix(field, "].tokens") }):
		return "token.rotate"
	case all(fields, func(field string) bool { return strings.HasSuffix(field, "].sender.secrets") }):
		return "sender-secret.change"
	case all(fields, func(field string) bool { return strings.Contains(field, "].sender.") }):
		if is := fieldsOf(after); slices.ContainsFunc(slices.Collect(maps.Keys(is)), func(field string) bool { return slices.Contains(fields, field) }) {
			return "sender.set"
		}
		return "sender.delete"
	default:
		return kind + ".update"
	}
}

func all(fields []string, is func(string) bool) bool {
	return !slices.ContainsFunc(fields, func(field string) bool { return !is(field) })
}

// nodeOf is the only trigger node that fields are about; "": there is none, or there are several.
func nodeOf(fields []string) (node string) {
	for _, field := range fields {
		rest, is := strings.CutPrefix(field, "triggers[")
		id, _, _ := strings.Cut(rest, "]")
		if !is || (node != "" && node != id) {
			return ""
		}
		node = id
	}
	return node
}

// value is a field's.
type value struct {
	shown  any    // nil: it is not shown
	hidden string // what tells secret values apart
}

// unaudited are fields that say nothing of what somebody wanted.
var unaudited = map[protoreflect.Name]bool{
	"created_at": true, "updated_at": true, "activated_at": true, "transition": true, "last_transition": true, "id": true, "node_id": true, "sha256": true,
}

// secretFields are those of which an entry says only that they changed. So it does of all bytes, and of all maps:
// settings of a sender may be secret.
var secretFields = map[protoreflect.Name]bool{"tokens": true, "secrets": true}

// fieldsOf are the fields of a record, named as in the operators' API.
func fieldsOf(record proto.Message) map[string]value {
	fields := map[string]value{}
	if record != nil {
		addFields(fields, "", record.ProtoReflect())
	}
	return fields
}

func addFields(to map[string]value, prefix string, of protoreflect.Message) {
	of.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := prefix + field.JSONName()
		switch {
		case unaudited[field.Name()]:
		case secretFields[field.Name()], field.Kind() == protoreflect.BytesKind, field.IsMap():
			to[name] = value{hidden: bytesOf(field, v)}
		case field.IsList() && field.Message() != nil:
			for i := range v.List().Len() {
				one := v.List().Get(i).Message()
				at := name + "[" + idOf(one, i) + "]"
				to[at] = value{shown: true}
				addFields(to, at+".", one)
			}
		case field.IsList():
			to[name] = value{shown: shortened(fmt.Sprint(v.List()))}
		case field.Message() != nil:
			if at, is := v.Message().Interface().(*timestamppb.Timestamp); is {
				to[name] = value{shown: at.AsTime().Format(time.RFC3339)}
			} else {
				addFields(to, name+".", v.Message())
			}
		case field.Kind() == protoreflect.StringKind:
			to[name] = value{shown: shortened(v.String())}
		default:
			to[name] = value{shown: v.Interface()}
		}
		return true
	})
}

// bytesOf tells a field's contents from others.
func bytesOf(field protoreflect.FieldDescriptor, v protoreflect.Value) string {
	var text strings.Builder
	add := func(v protoreflect.Value) {
		if m, is := v.Interface().(protoreflect.Message); is {
			data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Interface())
			fmt.Fprintf(&text, "%q %v;", data, err)
			return
		}
		fmt.Fprintf(&text, "%q;", fmt.Sprint(v.Interface()))
	}
	switch {
	case field.IsMap():
		var pairs []string
		v.Map().Range(func(key protoreflect.MapKey, one protoreflect.Value) bool {
			pairs = append(pairs, fmt.Sprintf("%q=%q", key.String(), fmt.Sprint(one.Interface())))
			return true
		})
		slices.Sort(pairs)
		return strings.Join(pairs, ";")
	case field.IsList():
		for i := range v.List().Len() {
			add(v.List().Get(i))
		}
	default:
		add(v)
	}
	return text.String()
}

// idOf names one of several: by its node ID or ID.
func idOf(m protoreflect.Message, i int) string {
	for _, name := range []protoreflect.Name{"node_id", "id"} {
		if field := m.Descriptor().Fields().ByName(name); field != nil && field.Kind() == protoreflect.StringKind && m.Get(field).String() != "" {
			return m.Get(field).String()
		}
	}
	return fmt.Sprint(i)
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxChangedText {
		return string(runes[:maxChangedText]) + "…"
	}
	return text
}

func changedFields(was, is map[string]value) (fields []string) {
	for field, v := range was {
		if now, still := is[field]; !still || now != v {
			fields = append(fields, field)
		}
	}
	for field := range is {
		if _, before := was[field]; !before {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// changesOf says what became of fields.
func changesOf(fields []string, was, is map[string]value) (changes []Changed) {
	for _, field := range fields[:min(len(fields), maxChanges)] {
		changes = append(changes, Changed{field, shown(was, field), shown(is, field)})
	}
	if more := len(fields) - len(changes); more > 0 {
		changes = append(changes, Changed{Field: "…", To: fmt.Sprintf("%d more fields", more)})
	}
	return changes
}

func shown(values map[string]value, field string) any {
	v, exists := values[field]
	switch {
	case !exists:
		return nil
	case v.shown == nil:
		return notShown
	}
	return v.shown
}
