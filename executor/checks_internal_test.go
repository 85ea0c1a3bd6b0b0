package executor

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/executor/internal/recorder"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
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
