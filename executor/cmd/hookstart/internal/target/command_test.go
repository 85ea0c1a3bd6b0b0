//go:build unix

package target_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/target"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/runner"
)

// When the runner stops, no process of the program's group survives, even if the program exits
// immediately and its child ignores SIGTERM.
func TestStopKillsTheWholeGroup(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &target.CommandHandler{
		Path: shell,
		Args: []string{"-c", `(trap "" TERM; echo; exec sleep 30) >"$FIFO" & wait`},
		Env:  append(os.Environ(), "FIFO="+fifo), Timeout: time.Minute, MaxOutputBytes: 1000,
		Stderr: io.Discard,
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Handle(ctx, runner.Execution{Start: execution.Start{ID: "id"}})
		ended <- err
	}()
	output, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	if _, err := output.Read(make([]byte, 1)); err != nil { // the child ignores SIGTERM now
		t.Fatal(err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Handle returned %v", err)
	}
	// The child holds the write end of the pipe open while it runs, so ReadAll returns only once
	// the child has been killed.
	if err := output.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(output); err != nil {
		t.Errorf("the child goes on: %v", err)
	}
}

// failingWriter returns an error for each write.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// If the runner cannot write to its own stderr, a program can still write a lot to stderr without
// blocking, and the end of that text is still in the execution's error.
func TestARunnerThatCannotWriteItsStderr(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	c := &target.CommandHandler{
		Path: shell, Args: []string{"-c", "head -c 200000 /dev/zero >&2; echo the end >&2; exit 1"},
		Env: os.Environ(), Timeout: 20 * time.Second, MaxOutputBytes: 1000, Stderr: failingWriter{},
	}
	_, err = c.Handle(t.Context(), runner.Execution{Start: execution.Start{ID: "id"}})
	if err == nil || !strings.Contains(err.Error(), "the end") {
		t.Errorf("the program ended with %v", err)
	}
}
