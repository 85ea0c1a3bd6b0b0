//go:build unix

package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

// "hookstart run" is stopped while the program of a canceled execution is still running, because
// this program ignores SIGTERM. "hookstart run" kills the program once --drain-timeout has passed,
// and exits without an error.
func TestAStopEndsACanceledProgram(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	ingress := runnertest.NewIngress(t, server.Connect(t))
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() {
		var stderr strings.Builder
		code := Run(ctx, []string{
			"run", "--nats-url", server.URL(), "--drain-timeout", "1ms", "--timeout", "1m", "--",
			"sh", "-c", `exec >"$0"; trap "echo canceled" TERM; echo begun
				while :; do sleep 1; done`, fifo,
		}, StdStreams{In: strings.NewReader(""), Out: io.Discard, Err: &stderr})
		if code == 0 {
			stderr.Reset()
		}
		ended <- stderr.String()
	}()
	id := ingress.Start(t, runnertest.Post{})
	output, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	lines := bufio.NewReader(output)
	await := func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("the program says %q, %v; want %q", line, err, want)
		}
	}
	await("begun")
	ingress.Cancel(t, id)
	await("canceled")
	stop()
	// The program holds the write end of the pipe open while it runs, so ReadAll returns only once
	// the program has been killed.
	if err := output.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(lines); err != nil {
		t.Errorf("the program goes on: %v", err)
	}
	if failure := <-ended; failure != "" {
		t.Errorf("the command failed: %s", failure)
	}
	if final := ingress.Await(t, id); final.Status != execution.Canceled {
		t.Errorf("it ended as %+v", final)
	}
}
