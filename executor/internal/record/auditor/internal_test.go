package auditor

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
)

const (
	streamName = "STREAM"
	record     = "record"
	other      = "other"
)

// makeStream creates a stream and publishes one revision to each of the given subjects, in order.
func makeStream(t *testing.T, js jetstream.JetStream, revisions ...string) jetstream.Stream {
	t.Helper()
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:     streamName,
		Subjects: []string{record, other},
	})
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]uint64{}
	for _, subject := range revisions {
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject},
			jetstream.WithExpectLastSequencePerSubject(last[subject]))
		if err != nil {
			t.Fatal(err)
		}
		last[subject] = ack.Sequence
	}
	return s
}

// receiveLast returns the last message of a stream in the form in which the auditor receives it.
func receiveLast(t *testing.T, s jetstream.Stream) jetstream.Msg {
	t.Helper()
	consumer, err := s.CreateConsumer(t.Context(),
		jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func wantSequences(t *testing.T, s jetstream.Stream, want ...uint64) {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != uint64(len(want)) {
		t.Errorf("%d messages, want %d", info.State.Msgs, len(want))
	}
	for _, sequence := range want {
		if _, err := s.GetMsg(t.Context(), sequence); err != nil {
			t.Errorf("the message %d: %v", sequence, err)
		}
	}
}

func TestOlderRevisionsAreDeleted(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	s := makeStream(t, js, record, record, other, record)
	msg := receiveLast(t, s)
	auditor := New(js, nil, logrus.New())
	auditor.deleteOlderRevisions(t.Context(), streamName, msg)
	wantSequences(t, s, 3, 4)

	// Newer revisions of the record follow the received message. Nothing is deleted, because these
	// revisions have no entry in the audit log yet.
	for range 2 {
		if _, err := js.Publish(t.Context(), record, nil); err != nil {
			t.Fatal(err)
		}
	}
	auditor.deleteOlderRevisions(t.Context(), streamName, msg)
	wantSequences(t, s, 3, 4, 5, 6)
}

// While an auditor is frozen, the registry is lost and restored, so that the record's only revision
// has a lower sequence than the message that the auditor has received. When the auditor resumes, it
// does not delete that revision.
func TestARestoredRecordIsNotDeleted(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	msg := receiveLast(t, makeStream(t, js, other, record, record))
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	restored := makeStream(t, js, record, other)
	New(js, nil, logrus.New()).deleteOlderRevisions(t.Context(), streamName, msg)
	wantSequences(t, restored, 1, 2)
}

// NATS loses its storage. The auditor recreates its consumer and continues to copy audit entries.
func TestTheAuditGoesOnAfterTheStorageWasLost(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !holds(); {
			if time.Now().After(deadline) {
				t.Fatalf("this did not come true: %s", what)
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	makeStream(t, js, record)
	auditor := New(js, nil, logtest.Discard())
	auditor.heartbeat = 500 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		auditor.Run(ctx, streamName)
	}()
	defer func() { cancel(); <-ended }()
	isAudited := func() bool {
		consumer, err := js.Consumer(t.Context(), streamName, registry.AuditConsumer)
		return err == nil && consumer.CachedInfo().AckFloor.Stream == 1
	}
	await("the first change is audited", isAudited)
	server.Stop()
	if err := os.RemoveAll(server.StoreDir()); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	await("the server answers", func() bool {
		_, err := js.AccountInfo(t.Context())
		return err == nil
	})
	makeStream(t, js, record)
	await("the change after the loss is audited", isAudited)
}
