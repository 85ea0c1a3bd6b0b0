// Package childtest runs programs as processes of a test.
package childtest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/child"
)

// How long a process may take to say what it is awaited to say, and to end after SIGTERM.
const (
	awaitTimeout = 2 * time.Minute
	endTimeout   = 60 * time.Second
)

// Main runs tests without the variables that set flags of hookstart's programs: those of the person who tests do not count. What
// tests themselves read stays.
type Main struct{ *testing.M }

// Run implements the Run of testscript.Main.
func (m Main) Run() int {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "HOOKSTART_") && !strings.HasPrefix(name, "HOOKSTART_TEST_") && name != "HOOKSTART_SCREENSHOTS" {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Unsetenv("GOGC") // of "make test": programs collect garbage as they do elsewhere
	return m.M.Run()
}

// Process is a program that runs until the end of the test, or until it is ended.
type Process struct {
	*child.Process
	t      *testing.T
	name   string
	output *child.Output
}

// Launch starts a command, with this process's environment unless it has its own. A data race in the process fails the test.
func Launch(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, name: cmd.Args[0], output: &child.Output{}}
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
func (p *Process) Output() string { return p.output.String() }

// Await waits until the process has written something that matches, and returns its first group.
func (p *Process) Await(pattern string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), awaitTimeout)
	defer cancel()
	match, err := p.output.Await(ctx, p.Process, regexp.MustCompile(pattern))
	if err != nil {
		p.t.Fatalf("%s %v", p.name, err)
	}
	return match[1]
}

// Terminate ends the process with SIGTERM; it must end well.
func (p *Process) Terminate() {
	p.t.Helper()
	if err := p.Process.Terminate(endTimeout); err != nil {
		p.t.Errorf("%s %v", p.name, err)
	}
}

// AwaitEnd waits until the process has ended by itself; it must end well.
func (p *Process) AwaitEnd() {
	p.t.Helper()
	select {
	case <-p.Exited():
		if !p.State().Success() {
			p.t.Errorf("%s ended with %s", p.name, p.State())
		}
	case <-time.After(endTimeout):
		p.t.Errorf("%s did not end within %s", p.name, endTimeout)
	}
}
