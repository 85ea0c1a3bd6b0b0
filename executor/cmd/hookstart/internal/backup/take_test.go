package backup

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/stream"
)

// emptyAPI is the API of an installation whose database is empty.
type emptyAPI struct{ API }

func (emptyAPI) BackUpRecords(context.Context, func([]byte) error) error { return nil }

func (emptyAPI) BackUpAudit(
	context.Context, string, time.Time, time.Time, func([]byte) error,
) error {
	return nil
}

// laggingJetStream simulates a server that lags behind the streams' leaders. Its consumers report
// after each message that no more are pending. In buckets, they deliver earlier records first.
type laggingJetStream struct{ jetstream.JetStream }

func (js laggingJetStream) OrderedConsumer(
	ctx context.Context, name string, config jetstream.OrderedConsumerConfig,
) (jetstream.Consumer, error) {
	if config.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy {
		config.DeliverPolicy = jetstream.DeliverAllPolicy
	}
	c, err := js.JetStream.OrderedConsumer(ctx, name, config)
	return laggingConsumer{c}, err
}

type laggingConsumer struct{ jetstream.Consumer }

func (c laggingConsumer) Messages(
	opts ...jetstream.PullMessagesOpt,
) (jetstream.MessagesContext, error) {
	messages, err := c.Consumer.Messages(opts...)
	return laggingMessages{messages}, err
}

type laggingMessages struct{ jetstream.MessagesContext }

func (m laggingMessages) Next(opts ...jetstream.NextOpt) (jetstream.Msg, error) {
	msg, err := m.MessagesContext.Next(opts...)
	return laggingMsg{msg}, err
}

type laggingMsg struct{ jetstream.Msg }

func (m laggingMsg) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := m.Msg.Metadata()
	if err == nil {
		meta.NumPending = 0
	}
	return meta, err
}

// A backup contains all messages and the newest records that the streams' leaders have, even if it
// reads from servers that lag behind the leaders.
func TestBackupThroughServersBehindTheLeader(t *testing.T) {
	t.Parallel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	for n := range 5 {
		_, err := r.JetStream.Publish(t.Context(), stream.StartSubject("default", "wf", "node"),
			[]byte(fmt.Sprint(n)))
		check(err)
	}
	executions, err := r.JetStream.Stream(t.Context(), stream.ExecutionsName)
	check(err)
	check(executions.DeleteMsg(t.Context(), 5)) // the stream's last sequence stays 5
	r.CreateWorkflow(t, "deleted", "free", false)
	r.CreateWorkflow(t, "wf", "pro", true)
	check(r.DeleteWorkflow(t.Context(), "deleted"))

	path := filepath.Join(t.TempDir(), "hookstart.backup")
	_, err = Take(t.Context(), Installation{
		JetStream: laggingJetStream{r.JetStream}, API: emptyAPI{}, Progress: io.Discard,
	}, path, true)
	check(err)
	file, err := openReader(path)
	check(err)
	defer file.close()
	var sequences []uint64
	check(file.forEachMessage(streamEntryName(stream.ExecutionsName), func(m message) error {
		sequences = append(sequences, m.Sequence)
		return nil
	}))
	if !slices.Equal(sequences, []uint64{1, 2, 3, 4}) {
		t.Errorf("the messages %v are in the file", sequences)
	}
	newest := map[string]message{} // keyed by subject
	check(file.forEachMessage(bucketEntryName(registry.Bucket), func(m message) error {
		newest[m.Subject] = m
		return nil
	}))
	if m := newest[registry.SubjectOf(registry.Bucket, "workflow.deleted")]; !m.isDeletion() {
		t.Error("a workflow that was deleted is in the file")
	}
	last := newest[registry.SubjectOf(registry.Bucket, "workflow.wf")]
	change, err := registry.DecodeChange(last.Subject, false, last.Sequence, last.StoredAt,
		last.Data)
	check(err)
	if change.Workflow == nil || !change.Workflow.Active {
		t.Error("the workflow is in the file as it was before its activation")
	}
}

// A backup that was taken while a queue moved to another stream is refused, because it may lack
// delivery IDs.
func TestBackupWhileAQueueMoves(t *testing.T) {
	t.Parallel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := registrytest.Start(t, natstest.Start(t).Connect(t))
	bucket, err := r.JetStream.KeyValue(t.Context(), registry.Bucket)
	check(err)
	put := func(queue string, lanes int, phase stream.QueueStreamPhase) {
		t.Helper()
		data, err := stream.EncodeQueueSettings(queue, lanes, phase)
		check(err)
		_, err = bucket.Put(t.Context(), registry.QueuePrefix+queue, data)
		check(err)
	}
	put("stays", 0, stream.QueuePhaseOwnStream)
	i := Installation{JetStream: r.JetStream}
	before, err := i.queuePhases(t.Context())
	check(err)
	put("stays", 16, stream.QueuePhaseOwnStream)
	put("new", 16, stream.QueuePhaseSharedStream)
	check(i.checkNoQueueMoved(t.Context(), before))
	put("new", 16, stream.QueuePhaseMovingToOwn)
	if err := i.checkNoQueueMoved(t.Context(), before); err == nil ||
		!strings.Contains(err.Error(), "the queue new was moved") {
		t.Errorf("the error is %v", err)
	}
}
