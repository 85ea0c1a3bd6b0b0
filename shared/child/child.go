// Package child starts programs as child processes. On Unix, each child leads its own process group
// and therefore does not receive the terminal's signals. On Linux, a child also ends when its
// parent ends.
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

// Process is a child process that is running or has run. Its methods may be called concurrently.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // the result of cmd.Wait; valid once exited is closed
}

// SelfCommand returns a command that starts this binary again, with role as its os.Args[0] and args
// as its arguments. The binary's main or TestMain must check os.Args[0] to determine which program
// to run.
func SelfCommand(role string, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // this very binary; it ends by signals
	cmd.Args[0] = role
	return cmd, nil
}

// Start starts the command. If cmd.Env is nil, the process gets this process's environment without
// the variables that set flags of Hookstart's programs. The caller must end the process with Kill
// or Terminate.
//
// Unless cmd.SysProcAttr is set, Ctrl-C on the terminal does not reach the process on Unix, and on
// Linux the process also ends when this process ends, even by SIGKILL. If cmd.SysProcAttr is set,
// Start leaves it unchanged.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.Env == nil {
		cmd.Env = EnvironmentWithoutFlagVariables()
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = sysProcAttr()
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux kills the child when the thread that started it exits, so keep this goroutine on
		// its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// StartWithLogFile is like Start, but appends the process's stderr to the log file. It appends
// stdout there as well, unless the command has a Stdout set.
func StartWithLogFile(cmd *exec.Cmd, log string) (*Process, error) {
	//nolint:gosec // a path of the caller's own
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the process has a copy
	if cmd.Stderr = file; cmd.Stdout == nil {
		cmd.Stdout = file
	}
	return Start(cmd)
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has exited.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State describes how the process exited, including its exit code. It must not be called before
// Exited is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Err returns the error from exec.Cmd.Wait: nil if the exit code was 0, and otherwise usually an
// *exec.ExitError. It must not be called before Exited is closed.
func (p *Process) Err() error { return p.err }

// Signal sends a signal. It returns os.ErrProcessDone if the process has exited.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill sends SIGKILL, which also ends a process that SIGSTOP has paused, and returns once the
// process has exited.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has exited
	<-p.exited
}

// Terminate sends SIGTERM and returns once the process has exited. It returns an error if the exit
// code is not 0, or if the process did not exit within timeout and had to be killed.
func (p *Process) Terminate(timeout time.Duration) error {
	_ = p.Signal(syscall.SIGTERM) // fails only if it has exited
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

// TerminateGroup sends SIGTERM to the process and to all other processes of its group, even after
// the process itself has exited. On systems other than Unix it kills only the process. It must not
// be called if the command's SysProcAttr was set.
func (p *Process) TerminateGroup() { signalGroup(p.cmd.Process, syscall.SIGTERM) }

// KillGroup is like TerminateGroup, but sends SIGKILL.
func (p *Process) KillGroup() { signalGroup(p.cmd.Process, syscall.SIGKILL) }

// EnvironmentWithoutFlagVariables returns this process's environment without the variables that set
// flags of Hookstart's programs.
func EnvironmentWithoutFlagVariables() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HOOKSTART_") {
			kept = append(kept, variable)
		}
	}
	return kept
}
