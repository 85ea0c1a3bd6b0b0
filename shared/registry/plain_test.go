package registry

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// FuzzDecodePlainWorkflow checks that decodeWorkflowFast and proto.Unmarshal decode a plain
// workflow to the same result.
func FuzzDecodePlainWorkflow(f *testing.F) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, w := range []*Workflow{
		{},
		plainWorkflow(at),
		{
			ID: "wf",
			Triggers: []Trigger{
				{NodeID: "a", Sender: &Sender{Preset: "github"}}, {
					NodeID:  "b",
					unknown: unknownFields{0x98, 0x06, 0x01},
				},
			},
		},
		{
			ID:          "wf",
			ActivatedAt: time.Unix(0, 0),
			UpdatedAt:   time.Unix(-1, 999_999_999),
			unknown:     unknownFields{0x98, 0x06, 0x01},
		},
	} {
		data, err := w.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(append(data, data...)) // repeated fields: the last value counts; messages are merged
	}
	f.Add([]byte("\x0a\x01\xff"))             // not UTF-8
	f.Add([]byte("\x4a\x04\x1a\x02\x0a\x00")) // not a valid hash
	f.Fuzz(func(t *testing.T, data []byte) {
		plain := decodeWorkflowFast(data)
		if plain == nil {
			return
		}
		if want, err := decodeWorkflowGeneric(data); err != nil || !reflect.DeepEqual(plain, want) {
			t.Errorf("%x\ngot  %+v\nwant %+v, %v", data, plain, want, err)
		}
	})
}

func plainWorkflow(at time.Time) *Workflow {
	return &Workflow{
		ID:          "wf",
		AccountID:   "a",
		Name:        "Ä",
		Queue:       "q",
		Active:      true,
		ActivatedAt: at,
		Transition:  7,
		RateLimit:   RateLimit{Requests: 5, Window: time.Minute},
		CreatedAt:   at,
		UpdatedAt:   at,
		Triggers: []Trigger{
			{
				NodeID: "one",
				Name:   "One",
				Tokens: []HashedToken{
					{Hash: HashToken("x"), ExpiresAt: at.UnixNano()}, {Hash: HashToken("y")},
				},
			},
			{NodeID: "two", Tokens: []HashedToken{}},
		},
	}
}

// Most workflows are plain, so decodeWorkflowFast must be able to decode them. It must also decode
// each field that is added to the record.
func TestAWorkflowWithoutSendersIsPlain(t *testing.T) {
	t.Parallel()
	want := plainWorkflow(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got := decodeWorkflowFast(data); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// BenchmarkDecodeWorkflow compares decodeWorkflowFast with the generated code. The figures of the
// generated code do not include the conversion to a Workflow.
func BenchmarkDecodeWorkflow(b *testing.B) {
	w := plainWorkflow(time.Now())
	w.Triggers = w.Triggers[:1]
	w.Triggers[0].Tokens = w.Triggers[0].Tokens[1:]
	data, err := w.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("hookstart", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeWorkflow(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m hookstartv1.Workflow
			if err := proto.Unmarshal(data, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
