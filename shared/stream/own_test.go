package stream_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// Every subject in the shared streams and in a queue's own streams is recognized as that of exactly
// one kind of message.
func TestSubjectsOfBothPlaces(t *testing.T) {
	t.Parallel()
	for _, layout := range []stream.Layout{{}, {Own: true}} {
		starts := layout.StreamName("q")
		for subject, want := range map[string]stream.StartSubjectParts{
			layout.StartSubject("q", "wf", "n"): {
				Layout:     layout,
				Queue:      "q",
				Lane:       -1,
				WorkflowID: "wf",
				NodeID:     "n",
			},
			layout.OrderedSubject("q", 12, "wf", "n"): {
				Layout:     layout,
				Queue:      "q",
				Lane:       12,
				WorkflowID: "wf",
				NodeID:     "n",
			},
			layout.StartSubject("start", "queue", "n"): {
				Layout:     layout,
				Queue:      "start",
				Lane:       -1,
				WorkflowID: "queue",
				NodeID:     "n",
			},
		} {
			got, ok := stream.ParseStartSubject(subject)
			if diff := cmp.Diff(want, got); diff != "" || !ok || !stream.IsStartSubject(subject) ||
				stream.IsProgressSubject(subject) || stream.IsDedupMarkerSubject(subject) {
				t.Errorf("%s: %v\n%s", subject, ok, diff)
			}
			if name := stream.StreamOf(subject); name != layout.StreamName(want.Queue) {
				t.Errorf("%s is in %s", subject, name)
			}
		}
		rejected, remembered := layout.RejectedSubject("q", "wf", "n"),
			layout.DedupMarkerSubject("q", "wf")
		report := layout.ProgressSubject("q", "wf", id)
		for _, subject := range []string{
			rejected, remembered, report, "executions.queue.q", "executions.queue.q.start.wf",
			"nonsense",
		} {
			if _, ok := stream.ParseStartSubject(subject); ok {
				t.Errorf("%s is a start", subject)
			}
		}
		if stream.IsDedupMarkerSubject(rejected) || !stream.IsDedupMarkerSubject(remembered) ||
			stream.IsStartSubject(remembered) || stream.IsStartSubject(rejected) {
			t.Error(rejected, remembered)
		}
		queue, workflowID, executionID, ok := stream.ParseProgressSubject(report)
		if !ok || queue != "q" || workflowID != "wf" || executionID != id ||
			!stream.IsProgressSubject(report) {
			t.Error(report, queue, workflowID, executionID, ok)
		}
		if stream.StreamOf(report) != layout.ProgressStreamName("q") ||
			stream.StreamOf(rejected) != starts || stream.StreamOf(remembered) != starts {
			t.Error(stream.StreamOf(report), stream.StreamOf(rejected))
		}
		group := stream.RunnerGroup{Queue: "q", Group: "g-3"}
		main := group.ConsumerConfigForLayout(layout, stream.RunnerAckWait)
		lane := group.LaneConsumerConfig(3, &jetstream.ConsumerInfo{Config: main})
		start, ordered := layout.StartSubject("q", "wf", "n"),
			layout.OrderedSubject("q", 3, "wf", "n")
		if !stream.ConsumerReceives(main, start) || stream.ConsumerReceives(main, ordered) ||
			!stream.ConsumerReceives(lane, ordered) || stream.ConsumerReceives(lane, start) {
			t.Error("the filters of runners' consumers do not match")
		}
		if !stream.IsRunnerConsumer(main) || !stream.IsRunnerConsumer(lane) {
			t.Error("the consumers of the kits are not those of runners")
		}
		name, number, ok := stream.LaneOfConsumer(lane, "q")
		if !ok || name != "g-3" || number != 3 ||
			lane.FilterSubject != layout.LaneFilterSubject("q", 3) {
			t.Error(name, number, ok, lane.FilterSubject)
		}
		if !stream.IsQueueConsumer(lane, "q") || !stream.IsQueueConsumer(main, "q") ||
			stream.IsQueueConsumer(main, "other") {
			t.Error("the queue of the consumers is not known")
		}
	}
}

// Messages for a queue's own stream have the same contents as messages for the shared stream.
func TestMessagesOfOwnStreams(t *testing.T) {
	t.Parallel()
	own := stream.Layout{Own: true}
	start := newStart()
	for _, key := range []string{"", "k"} {
		start.OrderKey = key
		msg, err := own.StartMessage(start)
		if err != nil {
			t.Fatal(err)
		}
		event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
		if diff := cmp.Diff(&start, event.Start); diff != "" || err != nil ||
			stream.StreamOf(msg.Subject) != "QUEUE_gpu" {
			t.Errorf("%s %v\n%s", msg.Subject, err, diff)
		}
	}
	msg, err := own.ProgressMessage("gpu", "wf", "n", "", execution.Progress{
		ID:     id,
		Status: execution.Running,
		At:     start.AcceptedAt,
	})
	if err != nil {
		t.Fatal(err)
	}
	event, err := stream.Decode(msg.Subject, msg.Header, msg.Data)
	if err != nil || event.Progress.Queue != "gpu" || event.Progress.WorkflowID != "wf" ||
		stream.StreamOf(msg.Subject) != "PROGRESS_gpu" {
		t.Errorf("%s %v %+v", msg.Subject, err, event.Progress)
	}
	rejection := execution.Rejection{
		ID:         id,
		WorkflowID: "wf",
		NodeID:     "n",
		AccountID:  "acme",
		Queue:      "gpu",
		At:         start.AcceptedAt,
	}
	if msg, err = own.RejectedMessage(rejection); err != nil {
		t.Fatal(err)
	}
	if event, err = stream.Decode(msg.Subject, msg.Header, msg.Data); err != nil ||
		event.Rejection.ID != id {
		t.Errorf("%s %v %+v", msg.Subject, err, event.Rejection)
	}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	for number, name := range hookstartv1.QueueStreamPhase_name {
		data, err := proto.Marshal(&hookstartv1.QueueSettings{
			Stream: &hookstartv1.QueueStream{
				Phase:         hookstartv1.QueueStreamPhase(number),
				MaxAgeSeconds: 60,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		settings, err := stream.DecodeQueueSettings(data)
		if err != nil || settings.Stream.Limits.MaxAge.Seconds() != 60 {
			t.Fatal(settings, err)
		}
		layout, open := settings.Stream.Phase.Layout()
		wantOwn := name == "QUEUE_STREAM_PHASE_OWN" || name == "QUEUE_STREAM_PHASE_MOVING_OUT" ||
			name == "QUEUE_STREAM_PHASE_CLOSED_OUT"
		wantOpen := name != "QUEUE_STREAM_PHASE_CLOSED_IN" &&
			name != "QUEUE_STREAM_PHASE_CLOSED_OUT"
		if layout.Own != wantOwn || open != wantOpen {
			t.Errorf("%s: own %v, open %v", name, layout.Own, open)
		}
	}
}
