package stream_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

const id = "01890a5d-ac96-774b-bcce-b302099a8057"

func newStart() execution.Start {
	return execution.Start{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      "gpu",
		Source:     execution.SourceRerun,
		DeliveryID: "d-1",
		RerunOf:    "01890a5d-ac96-774b-bcce-b302099a8058",
		ReplayOf:   "01890a5d-ac96-774b-bcce-b302099a8059",
		AcceptedAt: time.UnixMicro(1_700_000_000_123_456).UTC(),
		Payload: execution.Payload{
			ContentType: "application/json",
			Kind:        execution.BodyJSON,
			Body:        []byte(`{"a":1}`),
		},
		Headers:           execution.Values{"A": {"1", "2"}},
		Query:             execution.Values{"q": {""}},
		TokenID:           "0011223344556677",
		Trace:             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Sender:            "stripe",
		Verified:          true,
		DeliveryIDDerived: true,
	}
}

func TestMessagesKeepEverything(t *testing.T) {
	t.Parallel()
	start := newStart()
	msg, err := stream.StartMessage(start)
	if err != nil {
		t.Fatal(err)
	}
	if msg.Subject != "executions.start.gpu.wf.node" ||
		msg.Header.Get(jetstream.MsgIDHeader) != id {
		t.Errorf("%s %v", msg.Subject, msg.Header)
	}
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if diff := cmp.Diff(&start, event.Start); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	start.DeliveryID = ""
	if msg, err := stream.StartMessage(start); err != nil ||
		msg.Header.Get(jetstream.MsgIDHeader) != "" {
		t.Errorf("a start without a delivery ID has a Nats-Msg-Id: %v, %v", msg.Header, err)
	}

	rejection := execution.Rejection{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "node",
		AccountID:  "acme",
		Queue:      "gpu",
		DeliveryID: "d",
		At:         start.AcceptedAt,
		Payload: execution.Payload{
			ContentType: "text/plain",
			Kind:        execution.BodyText,
			Body:        []byte("hello"),
		},
		DeclaredSize:      5,
		Headers:           execution.Values{"A": {"1"}},
		Query:             execution.Values{},
		Code:              "workflow_inactive",
		TokenID:           "0011223344556677",
		Trace:             start.Trace,
		Sender:            "github",
		Verified:          true,
		DeliveryIDDerived: true,
	}
	if msg, err = stream.RejectedMessage(rejection); err != nil {
		t.Fatal(err)
	}
	event, err = stream.Decode(msg.Subject, msg.Header, msg.Data)
	if diff := cmp.Diff(&rejection, event.Rejection); diff != "" || err != nil ||
		msg.Subject != "executions.rejected.gpu.wf.node" {
		t.Errorf("%s %v\n%s", msg.Subject, err, diff)
	}

	progress := execution.Progress{
		ID:      id,
		Status:  execution.Failed,
		At:      start.AcceptedAt,
		Error:   "no",
		Attempt: 3,
		Group:   "gpus",

		EndedGroups: []string{"cpus", "tpus"},
	}
	if msg, err = stream.ProgressMessage("gpu", "wf", "node", start.Trace, progress); err != nil {
		t.Fatal(err)
	}
	event, err = stream.Decode(msg.Subject, msg.Header, msg.Data)
	progress.Queue, progress.WorkflowID = "gpu", "wf" // Decode takes these from the subject
	if diff := cmp.Diff(&progress, event.Progress); diff != "" || err != nil ||
		msg.Subject != "executions.progress.gpu.wf."+id {
		t.Errorf("%s %v\n%s", msg.Subject, err, diff)
	}
}

// The generated code can decode the start messages that the hand-written encoder writes: it finds
// the same values and no unknown fields, and encodes the result in the same number of bytes.
func TestStartsAreEncodedAsGenerated(t *testing.T) {
	t.Parallel()
	full := newStart()
	for name, s := range map[string]execution.Start{
		"full": full,
		"empty": {
			AcceptedAt: time.Unix(0, 0),
			Payload:    execution.Payload{Kind: execution.BodyText},
			Source:     execution.SourceWebhook,
		},
		"odd": {
			ID:         id,
			AcceptedAt: time.Unix(-1, 5).UTC(),
			Source:     execution.SourceWebhook,
			Payload: execution.Payload{
				Kind: execution.BodyBinary,
				Body: []byte(strings.Repeat("x", 70_000)),
			},
			Headers: execution.Values{
				"":     {""},
				"none": nil,
				"long": {strings.Repeat("v", 300), ""},
			},
		},
	} {
		msg, err := stream.StartMessage(s)
		if err != nil {
			t.Fatal(err)
		}
		var decoded hookstartv1.ExecutionStart
		if err := proto.Unmarshal(msg.Data, &decoded); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := proto.Marshal(&decoded)
		if err != nil || len(again) != len(msg.Data) ||
			len(decoded.ProtoReflect().GetUnknown()) != 0 {
			t.Errorf("%s: %d bytes, generated code writes %d", name, len(msg.Data), len(again))
		}
		if decoded.GetExecutionId() != s.ID ||
			!decoded.GetAcceptedAt().AsTime().Equal(s.AcceptedAt) ||
			string(decoded.GetBody()) != string(s.Payload.Body) ||
			len(decoded.GetHeaders()) != len(s.Headers) || decoded.GetTokenId() != s.TokenID ||
			int(decoded.GetBodyKind()) != int(s.Payload.Kind) ||
			decoded.GetSender() != s.Sender || decoded.GetVerified() != s.Verified ||
			decoded.GetDeliveryDerived() != s.DeliveryIDDerived {
			t.Errorf("%s: %v", name, &decoded)
		}
	}
	for name, s := range map[string]execution.Start{
		"an ID":   {DeliveryID: "\xff"},
		"a name":  {Headers: execution.Values{"\xff": nil}},
		"a value": {Query: execution.Values{"a": {"\xff"}}},
	} {
		if _, err := stream.StartMessage(s); err == nil {
			t.Errorf("%s that is not UTF-8 was encoded", name)
		}
	}
}

func TestProgressIsEncodedAsGenerated(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]execution.Progress{
		"running": {ID: id, Status: execution.Running, At: time.Unix(1, 2)},
		"failed": {
			ID:     id,
			Status: execution.Failed,
			At:     time.Unix(1_900_000_000, 999_999_999),
			Error:  strings.Repeat("ü", 200),
		},
		"output": {
			ID:     id,
			Status: execution.Succeeded,
			At:     time.Unix(-1, 5),
			Output: []byte(`{"a":"` + strings.Repeat("x", 300) + `"}`),
		},
		"began": {
			ID:        id,
			Status:    execution.Failed,
			At:        time.Unix(3, 0),
			StartedAt: time.Unix(2, 5),
			Error:     "no",
			Attempt:   300,
			Group:     "g",

			EndedGroups: []string{"h", "i"},
		},
		"empty": {At: time.Unix(0, 0)},
	} {
		msg, err := stream.ProgressMessage("q", "wf", "n", "", p)
		if err != nil {
			t.Fatal(err)
		}
		var began *timestamppb.Timestamp
		if !p.StartedAt.IsZero() {
			began = timestamppb.New(p.StartedAt)
		}
		want, err := proto.Marshal(&hookstartv1.ExecutionProgress{
			StartedAt:   began,
			ExecutionId: p.ID,
			State: map[execution.Status]hookstartv1.ExecutionState{
				execution.Running:   hookstartv1.ExecutionState_EXECUTION_STATE_RUNNING,
				execution.Failed:    hookstartv1.ExecutionState_EXECUTION_STATE_FAILED,
				execution.Succeeded: hookstartv1.ExecutionState_EXECUTION_STATE_SUCCEEDED,
			}[p.Status],
			At:      timestamppb.New(p.At),
			Error:   p.Error,
			Output:  p.Output,
			Attempt: uint32(p.Attempt),
			Group:   p.Group,

			EndedGroups: p.EndedGroups,
		})
		if err != nil || string(msg.Data) != string(want) {
			t.Errorf("%s: %x, generated code writes %x, %v", name, msg.Data, want, err)
		}
	}
	if _, err := stream.ProgressMessage("q", "wf", "n", "", execution.Progress{
		ID:    id,
		Error: "\xff",
	}); err == nil {
		t.Error("what is not UTF-8 was encoded")
	}
}

// Decode treats an invalid group name in a report as if the report named no group.
func TestDecodeIgnoresAnInvalidGroup(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"a b", strings.Repeat("g", 65)} {
		msg, err := stream.ProgressMessage("q", "wf", "n", "", execution.Progress{
			ID:     id,
			Status: execution.Succeeded,
			Group:  group,

			EndedGroups: []string{group, "good"},
		})
		if err != nil {
			t.Fatal(err)
		}
		event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		if err != nil {
			t.Errorf("group %q: %v", group, err)
		} else if p := event.Progress; p.Group != "" ||
			!slices.Equal(p.EndedGroups, []string{"good"}) {
			t.Errorf("group %q is read as %q %q", group, p.Group, p.EndedGroups)
		}
	}
}

func TestDecodeRefusesWhatIsNotAMessage(t *testing.T) {
	t.Parallel()
	message := func(change func(*execution.Start)) []byte {
		s := newStart()
		change(&s)
		msg, err := stream.StartMessage(s)
		if err != nil {
			t.Fatal(err)
		}
		return msg.Data
	}
	good := message(func(*execution.Start) {})
	progress, err := stream.ProgressMessage("q", "wf", "n", "", execution.Progress{
		ID:     id,
		Status: execution.Succeeded,
		Output: []byte("{"),
	})
	if err != nil {
		t.Fatal(err)
	}
	queued, err := stream.ProgressMessage("q", "wf", "n", "", execution.Progress{
		ID:     id,
		Status: execution.Queued,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		subject string
		data    []byte
	}{
		"garbage": {"executions.start.q.wf.node", []byte("\xff\xff")},
		"nothing": {"executions.start.q.wf.node", nil},
		"no UUID": {"executions.start.q.wf.node", message(func(s *execution.Start) {
			s.ID = strings.ToUpper(id)
		})},
		"a bad workflow": {"executions.start.q.wf.node", message(func(s *execution.Start) {
			s.WorkflowID = "a.b"
		})},
		"no body kind": {"executions.start.q.wf.node", message(func(s *execution.Start) {
			s.Payload.Kind = 0
		})},
		"another subject":          {"executions.other.q.wf.node", good},
		"output is not valid JSON": {progress.Subject, progress.Data},
		"a state too many":         {queued.Subject, queued.Data},
		"rejection, garbage":       {"executions.rejected.q.wf.node", []byte("x")},
	} {
		if _, err := stream.Decode(c.subject, nats.Header{}, c.data); !errors.Is(err,
			stream.ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	msg, err := stream.StartMessage(newStart())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(msg.Subject, msg.Data)
	f.Add("executions.progress.q.wf."+id, []byte("\x0a\x01x"))
	f.Add("executions.rejected.q.wf.n", []byte{})
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		if _, err := stream.Decode(subject, nats.Header{}, data); err != nil &&
			!errors.Is(err, stream.ErrUnreadable) {
			t.Error(err)
		}
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	if err := stream.DefaultSettings.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*stream.Settings){
		"two replicas":              func(s *stream.Settings) { s.Replicas = 2 },
		"window > age":              func(s *stream.Settings) { s.DedupWindow = s.MaxAge + 1 },
		"no window":                 func(s *stream.Settings) { s.DedupWindow = 0 },
		"no age":                    func(s *stream.Settings) { s.MaxAge = 0 },
		"negative bytes":            func(s *stream.Settings) { s.MaxBytes = -1 },
		"negative bytes of reports": func(s *stream.Settings) { s.ProgressMaxBytes = -1 },
	} {
		s := stream.DefaultSettings
		change(&s)
		if s.Validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_700_000_000_000_001).UTC()
	counts := map[string]int64{id: 3}
	msg, err := stream.DuplicatesMessage("report", at, counts)
	if err != nil || msg.Header.Get(jetstream.MsgIDHeader) != "report" {
		t.Fatal(err)
	}
	gotID, gotAt, got, err := stream.DecodeDuplicates(msg.Data)
	if gotID != "report" || !gotAt.Equal(at) || !cmp.Equal(got, counts) || err != nil {
		t.Errorf("%s %s %v %v", gotID, gotAt, got, err)
	}
	for _, bad := range []string{"\xff", ""} {
		if _, _, _, err := stream.DecodeDuplicates([]byte(bad)); !errors.Is(err,
			stream.ErrUnreadable) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
