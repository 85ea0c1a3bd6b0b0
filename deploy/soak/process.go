package soak

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hookstart/hookstart/shared/child"
)

// terminateTimeout is the maximum time a program may take to exit after SIGTERM. It is longer than
// the program's own shutdown timeout.
const terminateTimeout = 60 * time.Second

// restartPause is the time that a process which exited unexpectedly stays down before it is
// restarted.
const restartPause = 500 * time.Millisecond

// process is one of the programs of an installation. It can be stopped and started again with the
// same arguments. If it exits unexpectedly, it is restarted, as a supervisor such as systemd would
// do.
type process struct {
	name    string
	args    []string     // the first one is the role in which the process runs
	logFile string       // the file for its output
	host    *programHost // the host to run on; nil means this machine
	env     []string     // NAME=value, added to this process's environment; used only with a host

	mu            sync.Mutex
	running       *child.Process // nil while the process is not running
	restartOnExit bool           // whether to restart the process if it exits
	problems      []string
}

func newProcess(folder, name string, args ...string) *process {
	return &process{name: name, args: args, logFile: filepath.Join(folder, name+".log")}
}

// start starts the process unless it is running.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restartOnExit = true
	return p.startLocked()
}

// startLocked starts the process unless it is running. The caller holds mu.
func (p *process) startLocked() error {
	if p.running != nil {
		return nil
	}
	cmd, err := p.command()
	if err != nil {
		return err
	}
	r, err := child.StartWithLogFile(cmd, p.logFile)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.running = r
	go func() {
		<-r.Exited()
		p.restartUnlessStopped(r)
	}()
	return nil
}

// command returns the command that starts the process.
func (p *process) command() (*exec.Cmd, error) {
	if p.host == nil {
		return child.SelfCommand(p.args[0], p.args[1:]...)
	}
	cmd := p.host.Command(filepath.Join(p.host.programFolder, p.args[0]), p.args[1:]...)
	cmd.Env = append(child.EnvironmentWithoutFlagVariables(), p.env...)
	return cmd, nil
}

// restartUnlessStopped is called after r, a run of the process, has ended. If r ended by itself,
// restartUnlessStopped records a problem and restarts the process after restartPause.
func (p *process) restartUnlessStopped(r *child.Process) {
	p.mu.Lock()
	byItself := p.running == r
	if byItself {
		p.running = nil
		p.problems = append(p.problems,
			fmt.Sprintf("%s ended by itself: %s: %s", p.name, r.State(), p.lastLogLine()))
	}
	p.mu.Unlock()
	if !byItself {
		return
	}
	<-time.After(restartPause)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.restartOnExit {
		return
	}
	if err := p.startLocked(); err != nil {
		p.problems = append(p.problems, err.Error())
	}
}

// detachRunning returns the current run of the process, or nil if the process is not running, and
// makes sure that the process is not restarted when that run ends. The caller must end the run.
func (p *process) detachRunning() *child.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.running
	p.running, p.restartOnExit = nil, false
	return r
}

// kill ends the process with SIGKILL, even if it is paused. The process is not restarted.
func (p *process) kill() {
	if r := p.detachRunning(); r != nil {
		r.Kill()
	}
}

// terminate ends the process with SIGTERM, and records a problem if it does not exit cleanly.
func (p *process) terminate() {
	r := p.detachRunning()
	if r == nil {
		return
	}
	if err := r.Terminate(terminateTimeout); err != nil {
		p.addProblem(p.name + " " + err.Error())
	}
}

// signal sends a signal such as SIGSTOP or SIGCONT to the process, if it is running.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return nil
	}
	if err := p.running.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (p *process) addProblem(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
}

// recordedAndLoggedProblems returns the problems of the process that were recorded so far. If the
// process's log reports a panic or a data race, the first such line of the log is appended to them.
func (p *process) recordedAndLoggedProblems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.problems
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return all
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") ||
			strings.Contains(line, "DATA RACE") {
			return append(all, p.name+" wrote "+strings.TrimSpace(line))
		}
	}
	return all
}

// lastLogLine returns the last line of the process's output.
func (p *process) lastLogLine() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
