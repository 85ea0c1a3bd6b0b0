// Package child starts our programs for tools and tests: they end with their parent, and get none of the terminal's signals.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Process is a child that runs, or has run. Its methods may be called at the same time.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Self is the command that starts this binary under another name, a role. Its main, or its TestMain, finds it in os.Args[0].
func Self(role string, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // this very binary; it ends by signals
	cmd.Args[0] = role
	return cmd, nil
}

// Start starts the command, with Environment unless it has one of its own. The caller ends the process, with Kill or Terminate. On
// Linux it ends with this process even if that is killed. The terminal's Ctrl-C does not reach it. A command with SysProcAttr
// says all this itself.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.Env == nil {
		cmd.Env = Environment()
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = endsWithParent()
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux ends the child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in ProcessState
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// StartLogging is Start; what the process writes to stdout and stderr is added to the file log.
func StartLogging(cmd *exec.Cmd, log string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a path of the caller's own
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the process has its own copy
	cmd.Stdout, cmd.Stderr = file, file
	return Start(cmd)
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State is how the process ended. Only once it has exited.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Signal sends a signal. The error is os.ErrProcessDone when the process has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process with SIGKILL, one that is stopped too, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only when it has ended
	<-p.exited
}

// Terminate ends the process with SIGTERM, and returns when it has ended. It is an error that it failed, or had to be killed.
func (p *Process) Terminate(timeout time.Duration) error {
	_ = p.Signal(syscall.SIGTERM) // fails only when it has ended
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		if !p.State().Success() {
			return fmt.Errorf("ended with %s after SIGTERM", p.State())
		}
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("did not end within %s after SIGTERM", timeout)
	}
}

// Environment is this process's, without flags for the programs.
func Environment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HOOKSTART_") {
			kept = append(kept, variable)
		}
	}
	return kept
}
