package registry_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// aLaterField is the encoding of a field that only a later version defines.
var aLaterField = protowire.AppendString(protowire.AppendTag(nil, 1999, protowire.BytesType),
	"later")

// fill sets every field of m and of the messages in m, and adds one field that this version does
// not define. depth is how deeply m is nested; it makes the timestamps differ.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsMap():
			value := field.MapValue()
			text := protoreflect.ValueOfString("value")
			if value.Kind() == protoreflect.BytesKind {
				text = protoreflect.ValueOfBytes([]byte("box"))
			}
			m.Mutable(field).Map().Set(protoreflect.ValueOfString("key").MapKey(), text)
		case field.IsList():
			if field.Message() == nil {
				m.Mutable(field).List().Append(protoreflect.ValueOfString("text"))
				continue
			}
			for range 2 {
				one := m.Mutable(field).List().NewElement()
				fill(one.Message(), depth+1)
				m.Mutable(field).List().Append(one)
			}
		case field.Message() != nil && field.Message().Name() == "Timestamp":
			at := time.Date(2026, 1, i+1, depth, 0, 0, 5000, time.UTC)
			set := m.Mutable(field).Message()
			set.Set(set.Descriptor().Fields().ByName("seconds"),
				protoreflect.ValueOfInt64(at.Unix()))
			set.Set(set.Descriptor().Fields().ByName("nanos"),
				protoreflect.ValueOfInt32(int32(at.Nanosecond())))
		case field.Message() != nil:
			fill(m.Mutable(field).Message(), depth+1)
		default:
			setScalar(m, field, i)
		}
	}
	// Rate limits, plans, actors and token hashes get no unknown field, because they are decoded
	// into plain values, which do not preserve unknown fields.
	switch m.Descriptor().Name() {
	case "RateLimit", "Plan", "PlanCatalog", "Actor", "TokenHash":
	default:
		m.SetUnknown(aLaterField)
	}
}

func setScalar(m protoreflect.Message, field protoreflect.FieldDescriptor, i int) {
	switch field.Kind() { //nolint:exhaustive // those that records have
	case protoreflect.BoolKind:
		m.Set(field, protoreflect.ValueOfBool(true))
	case protoreflect.Int64Kind:
		m.Set(field, protoreflect.ValueOfInt64(int64(i+1)))
	case protoreflect.EnumKind:
		m.Set(field, protoreflect.ValueOfEnum(1))
	case protoreflect.BytesKind:
		m.Set(field, protoreflect.ValueOfBytes([]byte(strings.Repeat("x", 32))))
	default:
		m.Set(field, protoreflect.ValueOfString("text"))
	}
}

// Decoding a stored record and encoding it again changes nothing. Even fields that only a later
// version defines are kept. The test also fails if a message has a field that the functions for
// decoding and encoding do not handle, because changing a stored record would then lose that field.
func TestRecordsAreStoredAsTheyWere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wire   proto.Message
		decode func([]byte) (registry.Record, error)
	}{
		{&hookstartv1.PlanCatalog{}, func(b []byte) (registry.Record, error) {
			return registry.DecodePlans(b)
		}},
		{&hookstartv1.Account{}, func(b []byte) (registry.Record, error) {
			return registry.DecodeAccount(b)
		}},
		{&hookstartv1.Workflow{}, func(b []byte) (registry.Record, error) {
			w, err := registry.DecodeWorkflow(b)
			if err != nil {
				return nil, err
			}
			return w.Clone(), nil
		}},
		{&hookstartv1.Key{}, func(b []byte) (registry.Record, error) {
			return registry.DecodeAPIKey(b)
		}},
		{&hookstartv1.Installation{}, func(b []byte) (registry.Record, error) {
			return registry.DecodeInstallation(b)
		}},
		{&hookstartv1.QueueSettings{}, func(b []byte) (registry.Record, error) {
			return registry.DecodeQueue(b)
		}},
		{&hookstartv1.TriggerSecrets{}, func(b []byte) (registry.Record, error) {
			return registry.DecodeTriggerSecrets(b)
		}},
	} {
		name := c.wire.ProtoReflect().Descriptor().Name()
		for _, set := range []bool{false, true} {
			want := proto.Clone(c.wire)
			if set {
				fill(want.ProtoReflect(), 0)
			} else if key, ok := want.(*hookstartv1.Key); ok {
				key.Sha256 = make([]byte, 32) // every key has a hash
			}
			stored, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			record, err := c.decode(stored)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := record.Encode()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := c.wire.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(again, got); err != nil || !proto.Equal(got, want) {
				t.Errorf("%s, all fields set: %v\ngot  %v\nwant %v (%v)", name, set, got, want, err)
			}
			if same, err := c.decode(again); err != nil || !registry.Equal(record, same) {
				t.Errorf("%s is not equal to itself: %v", name, err)
			}
		}
	}
}

func TestAHashThatIsNoneOpensNothing(t *testing.T) {
	t.Parallel()
	data, err := proto.Marshal(&hookstartv1.Workflow{
		Triggers: []*hookstartv1.TriggerNode{
			{Tokens: []*hookstartv1.TokenHash{{Sha256: []byte("short")}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if w, err := registry.DecodeWorkflow(data); err != nil || len(w.Triggers) != 1 ||
		len(w.Triggers[0].Tokens) != 0 {
		t.Errorf("%+v, %v", w, err)
	}
}

// Clone returns a deep copy of a workflow. Changing it, including its nodes, tokens and sender,
// does not affect the original, which other code may be reading.
func TestAClonedWorkflowIsOnesOwn(t *testing.T) {
	t.Parallel()
	shared := func() *registry.Workflow {
		return &registry.Workflow{ID: "wf", Triggers: []registry.Trigger{{
			NodeID: "node", Tokens: []registry.HashedToken{{ExpiresAt: 1}},
			Sender: &registry.Sender{
				Secrets:        []registry.SenderSecret{{ID: "s"}},
				Settings:       map[string]string{"a": "b"},
				SealedSettings: map[string][]byte{"c": {1}},
			},
		}}}
	}
	w := shared()
	own := w.Clone()
	own.ID = "other"
	node := own.Trigger("node")
	node.Name, node.Tokens[0].ExpiresAt, node.Sender.Secrets[0].ID = "n", 2, "t"
	node.Sender.Settings["a"], node.Sender.SealedSettings["c"] = "x", nil
	if !reflect.DeepEqual(w, shared()) {
		t.Errorf("%+v", w)
	}
}

// Every field of a record has the struct tag audit, which either gives the field a name for the
// audit log or explicitly excludes the field from it.
func TestEveryFieldOfARecordHasItsPlaceInTheAudit(t *testing.T) {
	t.Parallel()
	var check func(record reflect.Type)
	check = func(record reflect.Type) {
		for field := range record.Fields() {
			tag, tagged := field.Tag.Lookup("audit")
			if !tagged || tag == "" {
				t.Errorf("%s.%s has no tag audit", record.Name(), field.Name)
			}
			inner := field.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if tag != "-" && !strings.HasSuffix(tag, ",hidden") && inner.Kind() == reflect.Struct &&
				inner != reflect.TypeFor[time.Time]() {
				check(inner)
			}
		}
	}
	for _, record := range []any{registry.Account{}, registry.Workflow{}, registry.APIKey{}} {
		check(reflect.TypeOf(record))
	}
}
