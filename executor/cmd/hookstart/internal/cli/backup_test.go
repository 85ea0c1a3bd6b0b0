package cli

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
	"github.com/hookstart/hookstart/shared/stream"
)

// If a backup or restore is interrupted, the error says in which state the file and the
// installation are.
func TestInterruptedBackupAndRestore(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	js := registrytest.Start(t, node.Connect(t)).JetStream
	for _, name := range []string{stream.ExecutionsName, stream.ProgressName} {
		if _, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{
			Durable: stream.RecorderConsumerName, AckPolicy: jetstream.AckAllPolicy,
		}); err != nil {
			t.Fatal(err)
		}
	}
	interrupt := func() {}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/backup/records", func(w http.ResponseWriter, _ *http.Request) {
		interrupt()
		_, _ = io.WriteString(w, `{"Records":[]}`+"\n{}\n")
	})
	mux.HandleFunc("GET /api/v1/backup/audit", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}\n")
	})
	mux.HandleFunc("POST /api/v1/backup/records", func(http.ResponseWriter, *http.Request) {
		interrupt()
	})
	file := filepath.Join(t.TempDir(), "hookstart.backup")
	if code, _, stderr := run(t.Context(), t, mux, "admin", "backup", file, "--nats-url",
		node.URL()); code != 0 {
		t.Fatal(stderr)
	}
	for command, want := range map[string]string{
		"backup":  "hookstart: interrupted: no backup was made\n",
		"restore": "the installation is half restored: begin again with an empty one\n",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		interrupt = cancel
		code, _, stderr := run(ctx, t, mux, "admin", command, file, "--nats-url", node.URL())
		if code != 1 || !strings.HasPrefix(stderr, "hookstart: interrupted: ") ||
			!strings.Contains(stderr, want) || ctx.Err() == nil {
			t.Errorf("%s: %d\n%s", command, code, stderr)
		}
		cancel()
	}
}
