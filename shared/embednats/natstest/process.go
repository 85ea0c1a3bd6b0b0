package natstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/embednats"
)

// serverEnv is the environment variable that makes a test binary run as a server. It contains the
// server's options in JSON.
const serverEnv = "HOOKSTART_NATSTEST_SERVER"

// readyLine is the first line that a server process writes once it has started. Any other line is
// the reason why it could not start.
const readyLine = "ready"

// processTimeout limits how long a server process may take to start and to stop.
const processTimeout = 30 * time.Second

// canServe is true once Main or ServeIfAsked has been called, which shows that the test binary can
// run as a server process.
var canServe atomic.Bool

// Main runs the tests of a package that starts server processes; call it in TestMain. In a server
// process it runs the server and does not return.
func Main(m *testing.M) (code int) {
	ServeIfAsked()
	return m.Run()
}

// ServeIfAsked runs the server and does not return if this process was started to be a server. In
// any other process it returns immediately. A TestMain that cannot call Main must call ServeIfAsked
// before it does anything else.
func ServeIfAsked() {
	canServe.Store(true)
	//nolint:forbidigo // there is no cmd: the process is any package's test binary
	text := os.Getenv(serverEnv)
	if text == "" {
		return
	}
	var o embednats.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(runServer(o))
}

// runServer runs a server until it receives SIGTERM, or until the parent process exits, which
// closes stdin. It returns the exit code.
func runServer(o embednats.Options) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	parentEnds := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(parentEnds)
	}()
	server, err := embednats.Start(o)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, readyLine)
	select {
	case <-stop:
		server.Shutdown()
		return 0
	case <-parentEnds:
		return 1
	}
}

// process is a NATS server that runs in a process of its own.
type process struct {
	*child.Process
	stderr *bytes.Buffer // may be read once the process has exited
	paused bool
}

// startProcess starts a server and waits until it is ready.
func startProcess(o embednats.Options) (*process, error) {
	if !canServe.Load() {
		return nil,
			errors.New("a server process is this test binary, started once more: the package " +
				"needs func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }")
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd, err := child.SelfCommand("natstest")
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), serverEnv+"="+string(text))
	if _, set := os.LookupEnv("GORACE"); !set {
		// Without this setting, the race detector makes every process sleep for a second before it
		// exits.
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	}
	if _, err := cmd.StdinPipe(); err != nil { // the pipe stays open until this process exits
		return nil, err
	}
	p := &process{stderr: &bytes.Buffer{}}
	output := &child.Output{}
	cmd.Stdout, cmd.Stderr = output, p.stderr
	if p.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), processTimeout)
	defer cancel()
	line, err := output.Await(ctx, p.Process, firstLinePattern)
	if err == nil && line[1] == readyLine {
		return p, nil
	}
	p.Kill()
	if err == nil {
		return nil, errors.New(line[1])
	}
	return nil, fmt.Errorf("the process %w: %w", err, p.exitError())
}

// firstLinePattern matches the first line that a process prints.
var firstLinePattern = regexp.MustCompile(`^(.*)\n`)

// stop terminates the process gracefully, and waits until it has exited.
func (p *process) stop() error {
	if err := p.Terminate(processTimeout); err != nil {
		return fmt.Errorf("it %w: %w", err, p.exitError())
	}
	return nil
}

// exitError returns an error that describes how the process exited and contains its output on
// stderr.
func (p *process) exitError() error {
	return fmt.Errorf("%s %s", p.State(), strings.TrimSpace(p.stderr.String()))
}
