package natstest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hookstart/hookstart/shared/embednats"
)

// jobEnv makes a test binary a child: it holds its job in JSON.
const jobEnv = "HOOKSTART_NATSTEST_JOB"

// ready is the line with which a child says that it has begun. Any other line
// says why it cannot.
const ready = "ready"

// childTimeout bounds the start and the end of a child.
const childTimeout = 30 * time.Second

// job is what a child does; one of the fields is set. Either ends with the
// parent, which it knows by the end of its stdin.
type job struct {
	Server *embednats.Options // run this server
	Guard  int                // kill this process when the parent ends
}

func init() {
	text := os.Getenv(jobEnv) //nolint:forbidigo // there is no cmd: the child is any package's test binary
	if text == "" {
		return
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	parentEnds := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(parentEnds)
	}()
	if j.Guard != 0 {
		os.Exit(runGuard(j.Guard, parentEnds))
	}
	os.Exit(runServer(*j.Server, parentEnds))
}

func runServer(o embednats.Options, parentEnds <-chan struct{}) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	server, err := embednats.Start(o)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, ready)
	select {
	case <-stop:
		server.Shutdown()
		return 0
	case <-parentEnds:
		return 1
	}
}

func runGuard(pid int, parentEnds <-chan struct{}) int {
	process, err := os.FindProcess(pid)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, ready)
	<-parentEnds
	if err := process.Kill(); err != nil {
		return 1
	}
	return 0
}

// child is a process that does a job.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer // its end is the parent's
	stderr bytes.Buffer
	exited chan struct{}
	err    error // how it exited
}

// spawn starts a child and waits until it is ready.
func spawn(j job) (*child, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Not with a test's context: a child lives until the cleanup.
	c := &child{
		cmd:    exec.CommandContext(context.Background(), binary), //nolint:gosec // this very binary
		exited: make(chan struct{}),
	}
	c.cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	if _, set := os.LookupEnv("GORACE"); !set {
		// The race detector would let every child sleep a second before it exits.
		c.cmd.Env = append(c.cmd.Env, "GORACE=atexit_sleep_ms=0")
	}
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}

	hangs := time.AfterFunc(childTimeout, func() { _ = c.cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	hangs.Stop()
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	if line = strings.TrimSpace(line); line == ready {
		return c, nil
	}
	c.kill()
	if line != "" {
		return nil, errors.New(line)
	}
	return nil, fmt.Errorf("the process said nothing (%w): %w", err, c.failure())
}

// kill ends it and waits for that.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only when it has ended
	<-c.exited
}

// stop asks it to end and waits for that.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.kill()
		return err
	}
	hangs := time.AfterFunc(childTimeout, func() { _ = c.cmd.Process.Kill() })
	defer hangs.Stop()
	<-c.exited
	if c.err != nil {
		return c.failure()
	}
	return nil
}

func (c *child) ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// failure is how it ended, with its last words.
func (c *child) failure() error {
	<-c.exited
	return fmt.Errorf("%w %s", c.err, strings.TrimSpace(c.stderr.String()))
}
