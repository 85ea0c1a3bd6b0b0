package streamtest

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/stream"
)

func startJetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// The stream of reports ignores Nats-Msg-Id. Three reports with the same ID are all stored, and a
// start message with this ID is still accepted.
func TestReportsKnowNoMessageIDs(t *testing.T) {
	t.Parallel()
	js := startJetStream(t)
	if err := stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	withID := func(subject string) *jetstream.PubAck {
		t.Helper()
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: subject,
			Header:  nats.Header{jetstream.MsgIDHeader: {id}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	for n := range uint64(3) {
		if ack := withID(stream.ProgressSubject("q", "wf",
			id)); ack.Stream != stream.ProgressName || ack.Duplicate || ack.Sequence != n+1 {
			t.Errorf("report %d: %+v", n+1, ack)
		}
	}
	if ack := withID(stream.StartSubject("q", "wf", "node")); ack.Stream != stream.ExecutionsName ||
		ack.Duplicate {
		t.Errorf("the start with that ID: %+v", ack)
	}
	if ack := withID(stream.StartSubject("q", "wf", "node")); !ack.Duplicate {
		t.Errorf("its repeat: %+v", ack)
	}
}

// When the stream of reports reaches its size limit, it drops old reports to make room for new
// ones. So reports never use the space that is meant for start messages.
func TestOldReportsGiveWay(t *testing.T) {
	t.Parallel()
	js := startJetStream(t)
	settings := stream.DefaultSettings
	settings.ProgressMaxBytes = 64 << 10
	if err := stream.EnsureSharedStreams(t.Context(), js, settings); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if _, err := js.Publish(t.Context(), stream.ProgressSubject("q", "wf", id),
			make([]byte, 10<<10)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := js.Stream(t.Context(), stream.ProgressName)
	if err != nil || s.CachedInfo().State.LastSeq != 30 || s.CachedInfo().State.Bytes > 64<<10 {
		t.Errorf("%+v, %v", s.CachedInfo().State, err)
	}
}

// If the disk is small, the stream of reports gets a smaller size limit, so that all other streams
// can still be created.
func TestASmallDiskGetsASmallStreamOfReports(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t, func(o *embednats.Options) {
		o.MaxStore = 100 << 20
	}).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.EnsureReportsStream(t.Context(), js, 1),
		stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings)); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream.ProgressName)
	if err != nil || s.CachedInfo().Config.MaxBytes != 16<<20 {
		t.Errorf("%+v, %v", s, err)
	}
}
