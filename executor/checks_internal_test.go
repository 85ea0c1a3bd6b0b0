package executor

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor/internal/recorder"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/stream"
)

// Without either of its consumers a recorder records nothing, or no report.
func TestBothConsumersAreNeeded(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Ensure(t.Context(), js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	names := []string{stream.Name, stream.ProgressName}
	create := func(name string) {
		t.Helper()
		if _, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{Durable: recorder.Durable, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		create(name)
	}
	if err := hasConsumer(t.Context(), js); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if err := js.DeleteConsumer(t.Context(), name, recorder.Durable); err != nil {
			t.Fatal(err)
		}
		if err := hasConsumer(t.Context(), js); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without the consumer of %s: %v", name, err)
		}
		create(name)
	}
}

// A stream is deleted while messages in it are not recorded: the log says which.
func TestALostStreamIsNamed(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	var logged logtest.Buffer
	log := &logrus.Logger{Out: &logged, Formatter: &logrus.JSONFormatter{}, Hooks: logrus.LevelHooks{}, Level: logrus.InfoLevel}
	k := &knownStreams{js: js, config: Config{Replicas: 1, StreamMaxAge: 168 * time.Hour, DedupWindow: 24 * time.Hour}, log: log, reached: map[string]reached{}}
	if err := ensureStreams(t.Context(), js, k.config); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(t.Context(), stream.RejectedSubject("wf", "node", "id"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), stream.Name); err != nil {
		t.Fatal(err)
	}
	if err := k.keep(t.Context()); err == nil {
		t.Error("a lost stream is not told of")
	}
	if told := logged.String(); !strings.Contains(told, "3 messages that were accepted, from 1 to 3") {
		t.Errorf("the log: %s", told)
	}
	if err := k.keep(t.Context()); err != nil {
		t.Error(err)
	}
}
