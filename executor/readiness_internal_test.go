package executor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/stream"
)

// An executor is not ready if the recorder's consumer of start messages or of reports is missing or
// paused. Without the consumer of start messages, no execution is recorded. Without the consumer of
// reports, no execution is shown as running or ended.
func TestBothConsumersAreNeeded(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings); err != nil {
		t.Fatal(err)
	}
	names := []string{stream.ExecutionsName, stream.ProgressName}
	create := func(name string) {
		t.Helper()
		if _, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{
			Durable:   stream.RecorderConsumerName,
			AckPolicy: jetstream.AckExplicitPolicy,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		create(name)
	}
	if err := checkConsumers(t.Context(), js); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if err := js.DeleteConsumer(t.Context(), name, stream.RecorderConsumerName); err != nil {
			t.Fatal(err)
		}
		if err := checkConsumers(
			t.Context(),
			js,
		); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("without the consumer of %s: %v", name, err)
		}
		create(name)
	}
	for _, name := range names { // a restore that was killed leaves consumers paused
		if _, err := js.PauseConsumer(t.Context(), name, stream.RecorderConsumerName,
			time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := checkConsumers(t.Context(), js); err == nil ||
			!strings.Contains(err.Error(), name+" is paused") {
			t.Errorf("with the consumer of %s paused: %v", name, err)
		}
		if _, err := js.ResumeConsumer(t.Context(), name, stream.RecorderConsumerName); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkConsumers(t.Context(), js); err != nil {
		t.Error(err)
	}
}

// Someone edits a stream while an executor is running. A metric shows the number of settings that
// differ, and the executor logs the edit once.
func TestEditedStreamsAreNoticed(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err == nil {
		err = errors.Join(stream.EnsureReportsStream(t.Context(), js, 1),
			stream.EnsureSharedStreams(t.Context(), js, stream.DefaultSettings))
	}
	if err != nil {
		t.Fatal(err)
	}
	logs := &logtest.Buffer{}
	log := logtest.Discard()
	log.SetOutput(logs)
	registry := prometheus.NewRegistry()
	s := newStreamSettingsMonitor(registry, log)
	differ := func() (sum float64) {
		t.Helper()
		s.compare(t.Context(), js, stream.DefaultSettings)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families[0].GetMetric() {
			sum += m.GetGauge().GetValue()
		}
		return sum
	}
	if n := differ(); n != 0 || logs.String() != "" {
		t.Errorf("%v differ at first: %s", n, logs)
	}
	for name, edit := range map[string]func(*jetstream.StreamConfig){
		"size of a message":  func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 },
		"number of messages": func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
		"dedup window":       func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
		"discard": func(c *jetstream.StreamConfig) {
			c.Discard = jetstream.DiscardOld
		},
		"messages per subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
		"age":                  func(c *jetstream.StreamConfig) { c.MaxAge = 48 * time.Hour },
	} {
		config := stream.DefaultSettings.ExecutionsStreamConfig()
		edit(&config)
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n := differ(); n != 1 {
				t.Errorf("%s: %v differ", name, n)
			}
		}
		if strings.Count(logs.String(), `"`+name+" is ") != 1 {
			t.Errorf("%s is not said once:\n%s", name, logs)
		}
	}
	if _, err := js.UpdateStream(
		t.Context(),
		stream.DefaultSettings.ExecutionsStreamConfig(),
	); err != nil {
		t.Fatal(err)
	}
	if n := differ(); n != 0 || !strings.Contains(logs.String(), "as configured again") {
		t.Errorf("%v differ at last", n)
	}
}

// An executor is not ready if a queue's own stream lacks the recorder's consumer at two successive
// checks. The first check ignores this, because the stream may have just been created.
func TestReadinessOfOwnStreams(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := errors.Join(stream.EnsureReportsStream(ctx, js, 1),
		stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings),
		stream.EnsureOwnStreams(ctx, js, stream.DefaultSettings, "q",
			stream.QueueStreamLimits{})); err != nil {
		t.Fatal(err)
	}
	own := &queueStreamConsumerCheck{js: js}
	if err := own.check(ctx); err != nil {
		t.Errorf("of a new stream: %v", err)
	}
	if err := own.check(ctx); err == nil || !strings.Contains(err.Error(), "QUEUE_q") ||
		!strings.Contains(err.Error(), "PROGRESS_q") {
		t.Errorf("without consumers: %v", err)
	}
	for _, name := range []string{"QUEUE_q", "PROGRESS_q"} {
		if _, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
			Durable:   stream.RecorderConsumerName,
			AckPolicy: jetstream.AckExplicitPolicy,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := own.check(ctx); err != nil {
		t.Errorf("with consumers: %v", err)
	}
	if _, err := js.PauseConsumer(ctx, "QUEUE_q", stream.RecorderConsumerName,
		time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := own.check(ctx); err == nil || !strings.Contains(err.Error(), "is paused") {
		t.Errorf("with a paused consumer: %v", err)
	}
}

// When a stream is deleted before its messages are recorded, the executor logs the range of their
// sequences.
func TestALostStreamIsNamed(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	var logged logtest.Buffer
	log := &logrus.Logger{
		Out:       &logged,
		Formatter: &logrus.JSONFormatter{},
		Hooks:     logrus.LevelHooks{},
		Level:     logrus.InfoLevel,
	}
	config := Config{Replicas: 1}
	config.StreamMaxAge, config.DedupWindow = 168*time.Hour, 24*time.Hour
	k := &lostStreamCheck{
		js:             js,
		config:         config,
		log:            log,
		lastPositions:  map[string]streamPosition{},
		missingStreams: stream.MissingStreams{},
	}
	if err := ensureStreams(t.Context(), js, k.config); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(t.Context(), stream.RejectedSubject("wf", "node", "id"),
			nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.recreateDeletedStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), stream.ExecutionsName); err != nil {
		t.Fatal(err)
	}
	if err := k.recreateDeletedStreams(t.Context()); err == nil {
		t.Error("a lost stream is not told of")
	}
	if _, err := js.Stream(t.Context(),
		stream.ExecutionsName); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("it is created while the server may still delete it: %v", err)
	}
	k.missingStreams[stream.ExecutionsName] = time.Now().Add(-time.Minute)
	if err := k.recreateDeletedStreams(t.Context()); err == nil {
		t.Error("a lost stream is not told of")
	}
	if told := logged.String(); !strings.Contains(told,
		"3 messages that were accepted, from 1 to 3") {
		t.Errorf("the log: %s", told)
	}
	if err := k.recreateDeletedStreams(t.Context()); err != nil {
		t.Error(err)
	}
}

// When an executor starts, it immediately creates the stream that holds the copy of the registry.
// If that stream is lost later, the executor waits before it recreates the stream, because the
// server may still be deleting it.
func TestALostCopyOfTheRegistryIsCreatedAgain(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Start(t).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(missing stream.MissingStreams, want bool) {
		t.Helper()
		if err := ensureRegistryCopy(t.Context(), js, 1, missing); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Stream(t.Context(), registry.Stream); (err == nil) != want {
			t.Errorf("the copy: %v", err)
		}
	}
	ensure(nil, true)
	missing := stream.MissingStreams{}
	ensure(missing, true)
	if err := js.DeleteStream(t.Context(), registry.Stream); err != nil {
		t.Fatal(err)
	}
	ensure(missing, false)
	ensure(stream.MissingStreams{registry.Stream: time.Now().Add(-time.Minute)}, true)
}
