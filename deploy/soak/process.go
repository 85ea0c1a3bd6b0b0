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

// endTimeout is the maximum time that a program may take to end after SIGTERM. It is longer than
// the program drains.
const endTimeout = 60 * time.Second

// restartPause is the time for which a supervisor waits before it restarts a program that ended by
// itself.
const restartPause = 500 * time.Millisecond

// process is one of the programs. It can be started again with the same flags.
type process struct {
	name string
	args []string     // the first one is its role
	log  string       // the file to which it writes
	host *programHost // the host on which the process runs; nil means this machine
	env  []string     // NAME=value, in addition to this process's own environment; only with a host

	mu       sync.Mutex
	run      *child.Process // nil means that the process does not run
	wanted   bool           // whether a run that ends by itself is followed by another one
	problems []string
}

func newProcess(folder, name string, args ...string) *process {
	return &process{name: name, args: args, log: filepath.Join(folder, name+".log")}
}

// start starts the process unless it runs.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	return p.launch()
}

// launch starts the process. The caller holds mu.
func (p *process) launch() error {
	if p.run != nil {
		return nil
	}
	cmd, err := p.command()
	if err != nil {
		return err
	}
	r, err := child.StartLogging(cmd, p.log)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.run = r
	go func() {
		<-r.Exited()
		p.restartUnlessMeant(r)
	}()
	return nil
}

// command returns the command that starts the process.
func (p *process) command() (*exec.Cmd, error) {
	if p.host == nil {
		return child.SelfCommand(p.args[0], p.args[1:]...)
	}
	cmd := p.host.Command(filepath.Join(p.host.programs, p.args[0]), p.args[1:]...)
	cmd.Env = append(child.Environment(), p.env...)
	return cmd, nil
}

// restartUnlessMeant starts the process again if the run was not meant to end.
func (p *process) restartUnlessMeant(r *child.Process) {
	p.mu.Lock()
	byItself := p.run == r
	if byItself {
		p.run = nil
		p.problems = append(p.problems,
			fmt.Sprintf("%s ended by itself: %s: %s", p.name, r.State(), p.lastLine()))
	}
	p.mu.Unlock()
	if !byItself {
		return
	}
	<-time.After(restartPause)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return
	}
	if err := p.launch(); err != nil {
		p.problems = append(p.problems, err.Error())
	}
}

// detachRun returns the run to a caller that ends it, and keeps the process from being restarted.
func (p *process) detachRun() *child.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run
	p.run, p.wanted = nil, false
	return r
}

// kill ends the process with SIGKILL, even if it is paused.
func (p *process) kill() {
	if r := p.detachRun(); r != nil {
		r.Kill()
	}
}

// terminate ends the process with SIGTERM, and notes a problem if it does not end well.
func (p *process) terminate() {
	r := p.detachRun()
	if r == nil {
		return
	}
	if err := r.Terminate(endTimeout); err != nil {
		p.problem(p.name + " " + err.Error())
	}
}

// signal sends SIGSTOP or SIGCONT.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil
	}
	if err := p.run.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (p *process) problem(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, text)
}

// complaints returns what went wrong with the process, and the first line of a panic or a data race
// in its log.
func (p *process) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.problems
	text, err := os.ReadFile(p.log)
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

// lastLine returns the last line that the process wrote.
func (p *process) lastLine() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
