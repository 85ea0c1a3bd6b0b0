package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/runner"
)

// retryExitCode is the exit code with which a program requests another attempt: EX_TEMPFAIL in
// sysexits.h.
const retryExitCode = 75

// Time limits for ending a program. After its timeout, a program gets SIGTERM and must exit within
// stopGrace. When the runner stops, a program must exit within shutdownGrace after SIGTERM, which
// is shorter, because the runner kit abandons a handler that has not returned within a second.
// pipeGrace limits how long the output of a program is read after the program has exited.
const (
	stopGrace     = 5 * time.Second
	shutdownGrace = 500 * time.Millisecond
	pipeGrace     = time.Second
)

// CommandGrace is the time that handling an execution may take in addition to the program's
// timeout.
const CommandGrace = stopGrace + pipeGrace + time.Second

// CommandHandler runs a program for each execution. The program receives the input on stdin, and
// the details of the execution in environment variables. The result of the execution depends on how
// the program ends:
//
//	exit code 0                   succeeded, with stdout as the output
//	exit code 75                  tried again
//	another code, or a signal     failed, with the end of stderr
//	the execution is canceled     SIGTERM; canceled, unless it exits with 0
//	no end within Timeout         failed: SIGTERM, then SIGKILL five seconds later
//	the output is too long        failed, once the program has ended
//	it cannot be started          tried again, unless every attempt would fail: see newStartError
//
// Each program runs in a separate process group. Processes that are left in that group when the
// program exits are killed. If the runner itself is killed, Linux kills the program as well.
type CommandHandler struct {
	// Path is the program's path, as returned by exec.LookPath.
	Path string
	Args []string
	// Env is the program's environment. The variables of the execution are added to it.
	Env []string
	// RawBody means that the program receives the unmodified request body instead of the input as
	// JSON.
	RawBody bool
	// Timeout limits the program's run time.
	Timeout time.Duration
	// MaxOutputBytes is the maximum size of the output, in bytes.
	MaxOutputBytes int64
	// Stderr receives what the programs write to stderr. Several programs may write to it
	// concurrently. Required.
	Stderr io.Writer
	// RunnerStopping is closed when the runner stops. CommandHandler then ends the programs of
	// canceled executions. The contexts passed to Handle cannot tell it that the runner stops,
	// because the cancellation has already canceled them. If RunnerStopping is nil, only Timeout
	// limits how long such a program may run.
	RunnerStopping <-chan struct{}
}

// Handle runs the program for one execution and returns its output. It implements runner.Handler.
func (c *CommandHandler) Handle(ctx context.Context, e runner.Execution) (any, error) {
	p, err := c.start(e)
	if err != nil {
		return nil, err
	}
	defer p.closePipes()
	timer := time.NewTimer(c.Timeout)
	defer timer.Stop()
	select {
	case <-p.Exited():
		p.killRestAndDrain()
		return c.result(p)
	case <-timer.C:
		p.stop(stopGrace)
		p.killRestAndDrain()
		return nil,
			runner.Permanent(
				errors.New(describeWithOutput(fmt.Sprintf("did not end within %s and was stopped",
					c.Timeout), p.stderr.String())),
			)
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), runner.ErrCanceled) {
			return c.cancel(p, timer.C)
		}
		p.stop(shutdownGrace)
		p.KillGroup()
		return nil, fmt.Errorf("was stopped, as the runner stops: %w", ctx.Err())
	}
}

// cancel sends SIGTERM to a program whose execution was canceled. It then waits until the program
// exits, the timeout expires or the runner stops. If the program exits without an error, cancel
// returns its output, and the execution counts as succeeded.
func (c *CommandHandler) cancel(p *process, timeout <-chan time.Time) (any, error) {
	p.TerminateGroup()
	select {
	case <-p.Exited():
		p.killRestAndDrain()
		output, err := c.result(p)
		if err != nil {
			err = fmt.Errorf("was canceled: %w", err)
		}
		return output, err
	case <-timeout:
		p.stop(stopGrace)
		p.killRestAndDrain()
		return nil, fmt.Errorf("was canceled, did not end within %s, and was stopped", c.Timeout)
	case <-c.RunnerStopping:
		p.stop(shutdownGrace)
		p.KillGroup()
		return nil, errors.New("was canceled, and was stopped, as the runner stops")
	}
}

// result converts a program's exit into the result of the execution.
func (c *CommandHandler) result(p *process) (any, error) {
	err := p.Err()
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil && p.stdout.truncated:
		return nil, outputTooLongError(c.MaxOutputBytes)
	case err == nil:
		return parseOutput(p.stdout.kept.Bytes()), nil
	case !exited:
		return nil, fmt.Errorf("wait for the program: %w", err)
	}
	failure := errors.New(describeWithOutput(describeExit(exit), p.stderr.String()))
	if exit.ExitCode() == retryExitCode {
		return nil, failure
	}
	return nil, runner.Permanent(failure)
}

// describeExit returns how a program ended, such as "exit status 3" or "ended by a signal: killed".
func describeExit(exit *exec.ExitError) string {
	if exit.ExitCode() < 0 {
		return "ended by a " + exit.Error()
	}
	return exit.Error()
}

// process is a running program, with its output so far.
type process struct {
	*child.Process
	stdout        headBuffer
	stderr        tailBuffer
	pipes         []*os.File // this process's ends of the program's pipes
	outputReaders sync.WaitGroup
}

// start starts the program. It creates the pipes itself. If exec.Cmd created them, its Wait method
// would wait for every process that holds them open, such as a daemon that the program has started.
func (c *CommandHandler) start(e runner.Execution) (*process, error) {
	//nolint:gosec,noctx // the operator's own program; the group is killed, not the process alone
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(append([]string{}, c.Env...), executionEnvironment(e)...)
	p := &process{stdout: headBuffer{maxBytes: c.MaxOutputBytes}}
	var childFiles []*os.File
	defer func() {
		for _, end := range childFiles {
			_ = end.Close()
		}
	}()
	var ours [3]*os.File
	for i := range ours {
		read, write, err := os.Pipe()
		if err != nil {
			p.closePipes()
			return nil, fmt.Errorf("cannot start %s: %w", c.Path, err)
		}
		if i == 0 {
			read, write = write, read
		}
		ours[i], childFiles = read, append(childFiles, write)
		p.pipes = append(p.pipes, read)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childFiles[0], childFiles[1], childFiles[2]
	var err error
	if p.Process, err = child.Start(cmd); err != nil {
		p.closePipes()
		return nil, newStartError(c.Path, err)
	}
	input := e.Input
	if c.RawBody {
		input = e.Payload.Body
	}
	go func() {
		_, _ = ours[0].Write(input) // fails if the program does not read its input
		_ = ours[0].Close()
	}()
	p.outputReaders.Go(func() { _, _ = io.Copy(&p.stdout, ours[1]) })
	p.outputReaders.Go(func() {
		_, _ = io.Copy(io.MultiWriter(&p.stderr, errorIgnoringWriter{c.Stderr}), ours[2])
	})
	return p, nil
}

// errorIgnoringWriter ignores the errors of a writer, such as a file on a full disk. Otherwise,
// io.Copy would stop at such an error, nothing would read the program's stderr, and the program
// would block.
type errorIgnoringWriter struct{ io.Writer }

func (w errorIgnoringWriter) Write(p []byte) (int, error) {
	_, _ = w.Writer.Write(p)
	return len(p), nil
}

// newStartError returns the error for a program that could not be started. If the file is neither a
// binary for this system nor a script with an interpreter line, or if the environment is too long,
// the error is permanent, because another attempt would fail in the same way.
func newStartError(path string, err error) error {
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err
	}
	failure := fmt.Errorf("cannot start %s: %w", path, err)
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return runner.Permanent(fmt.Errorf("%w; a script must begin with its interpreter, as "+
			"#!/bin/sh", failure))
	case errors.Is(err, syscall.E2BIG):
		return runner.Permanent(failure)
	default:
		return failure
	}
}

// stop sends SIGTERM to the process group, and kills the group if the program has not exited after
// grace.
func (p *process) stop(grace time.Duration) {
	p.TerminateGroup()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Exited():
	case <-timer.C:
		p.KillGroup()
		<-p.Exited()
	}
}

// killRestAndDrain kills the processes that remain in the program's group, and reads the rest of
// their output. A process that has left the group, such as a daemon, may keep the pipes open, so
// killRestAndDrain stops reading after pipeGrace.
func (p *process) killRestAndDrain() {
	p.KillGroup()
	done := make(chan struct{})
	go func() {
		p.outputReaders.Wait()
		close(done)
	}()
	timer := time.NewTimer(pipeGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		p.closePipes()
		<-done
	}
}

// closePipes closes this process's ends of the pipes. It may be called twice.
func (p *process) closePipes() {
	for _, end := range p.pipes {
		_ = end.Close()
	}
}
