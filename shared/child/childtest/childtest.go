// Package childtest runs programs as processes of a test.
package childtest

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/child"
)

// How long a process may take to say what it is awaited to say, and to end after SIGTERM.
const (
	awaitTimeout = 2 * time.Minute
	endTimeout   = 60 * time.Second
)

// Process is a program that runs until the end of the test, or until it is ended.
type Process struct {
	*child.Process
	t      *testing.T
	name   string
	output *output
}

// Launch starts a command, with this process's environment unless it has one of its own. A data
// race that the process reports fails the test.
func Launch(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, name: cmd.Args[0], output: &output{grown: make(chan struct{})}}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	var err error
	if p.Process, err = child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		text := p.Output()
		if t.Failed() {
			t.Logf("%s wrote (the last 4,000 bytes):\n%s", p.name, text[max(0, len(text)-4000):])
		}
		if strings.Contains(text, "DATA RACE") {
			t.Errorf("%s: a data race:\n%s", p.name, text)
		}
	})
	return p
}

// Output is what the process has written to stdout and stderr.
func (p *Process) Output() string {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return p.output.text.String()
}

// Await waits until the process has written something that matches, and returns its first group.
func (p *Process) Await(pattern string) string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	timeout := time.After(awaitTimeout)
	for {
		p.output.mu.Lock()
		match, grown := expression.FindSubmatch(p.output.text.Bytes()), p.output.grown
		p.output.mu.Unlock()
		if match != nil {
			return string(match[1])
		}
		select {
		case <-grown:
		case <-p.Exited():
			p.t.Fatalf("%s ended (%s) before it wrote %s", p.name, p.State(), pattern)
		case <-timeout:
			p.t.Fatalf("%s did not write %s", p.name, pattern)
		}
	}
}

// Terminate ends the process with SIGTERM; it must end well.
func (p *Process) Terminate() {
	p.t.Helper()
	if err := p.Process.Terminate(endTimeout); err != nil {
		p.t.Errorf("%s %v", p.name, err)
	}
}

// output keeps what a process writes, and wakes those who wait for it.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.grown)
	o.grown = make(chan struct{})
	return o.text.Write(p)
}
