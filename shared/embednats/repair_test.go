package embednats_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
)

// Consumers work again after a power cut has damaged their states. nats-server itself refuses both
// to load such consumers and to recreate them.
func TestConsumersWhoseStateCannotBeRead(t *testing.T) {
	for name, damage := range map[string]func(state []byte) []byte{
		"cut off": func(state []byte) []byte { return state[:3] },
		"zeros":   func(state []byte) []byte { return make([]byte, len(state)) },
		"garbage": func(state []byte) []byte { return bytes.Repeat([]byte{0xff}, len(state)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			js, stop := connect(t, embednats.Options{StoreDir: dir, NoListener: true})
			if _, err := js.CreateStream(t.Context(),
				jetstream.StreamConfig{Name: "S"}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				publish(t, js)
			}
			for _, name := range []string{"first", "last", "whole"} {
				taken(t, js, name, 1, 2, 3)
			}
			stop()
			for _, name := range []string{"first", "last"} {
				path := filepath.Join(dir, "jetstream", "$G", "streams", "S", "obs", name, "o.dat")
				state, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage(state), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			var warnings atomic.Int64
			interrupted := errors.New("interrupted")
			o := embednats.Options{
				StoreDir: dir, NoListener: true,
				AfterLast: func(stream, consumer string) (bool, error) {
					last := stream == "S" && consumer == "last"
					if last && interrupted != nil {
						return false, interrupted
					}
					return last, nil
				},
				Log: func(level slog.Level, line string) {
					if level == slog.LevelWarn && strings.Contains(line, "could not be read") {
						warnings.Add(1)
					}
				},
			}
			// AfterLast returns an error, which interrupts the repair. The next start completes it.
			if s, err := embednats.Start(o); !errors.Is(err, interrupted) {
				s.Shutdown()
				t.Fatal(err)
			}
			interrupted = nil
			js, stop = connect(t, o)
			if got := warnings.Load(); got != 2 {
				t.Errorf("%d warnings", got)
			}
			publish(t, js)
			taken(t, js, "first", 1, 2, 3, 4)
			taken(t, js, "last", 4)
			taken(t, js, "whole", 4)
			stop()
			connect(t, o)
			if got := warnings.Load(); got != 2 {
				t.Errorf("%d warnings after a second start", got)
			}
		})
	}
}

// repair.go relies on the format of nats-server's file with a consumer's state, and on its warning
// about an unreadable file, but nats-server guarantees neither. So after an upgrade of nats-server,
// this test fails until a developer has compared both with the new version.
func TestComparedWithNATSServer(t *testing.T) {
	t.Parallel()
	const compared = "2.15.2"
	if server.VERSION != compared {
		t.Errorf("repair.go was compared with nats-server %s, and this is %s. Compare it again: "+
			"encodeAckedState with encodeConsumerState in server/store.go, the path in "+
			"resetConsumer with consumerDir and consumerState in server/filestore.go, and "+
			"parseUnreadableConsumer with the warning about a consumer in server/jetstream.go and "+
			"errCorruptState in server/filestore.go. Then name the new version here",
			compared, server.VERSION)
	}
}

func connect(t *testing.T, o embednats.Options) (js jetstream.JetStream, stop func()) {
	t.Helper()
	s := start(t, o)
	nc, err := nats.Connect("", s.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return js, s.Shutdown
}

func publish(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if _, err := js.Publish(t.Context(), "S", nil); err != nil {
		t.Fatal(err)
	}
}

// taken checks that a consumer delivers exactly the messages with the given sequences, and
// acknowledges them.
func taken(t *testing.T, js jetstream.JetStream, name string, sequences ...uint64) {
	t.Helper()
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), "S", jetstream.ConsumerConfig{
		Durable:   name,
		AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := consumer.Fetch(len(sequences), jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for msg := range batch.Messages() {
		about, err := msg.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, about.Sequence.Stream)
		if err := msg.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, sequences) {
		t.Errorf("the consumer %s got %v, not %v", name, got, sequences)
	}
}
