// Package childtest runs programs as child processes of a test.
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

// Limits on how long a test waits for output from a process, and for the process to exit.
const (
	awaitTimeout = 2 * time.Minute
	exitTimeout  = 60 * time.Second
)

// CleanEnvRunner runs tests without the environment variables that set flags of Hookstart's
// programs, so that a developer's environment cannot influence them. Variables that tests
// themselves read are kept.
type CleanEnvRunner struct{ *testing.M }

// Run unsets the variables that set flags, and GOGC, which "make test" sets. Then it runs the tests
// and returns the exit code. A type with this method can be passed to testscript.Main.
func (m CleanEnvRunner) Run() int {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "HOOKSTART_") && !strings.HasPrefix(name, "HOOKSTART_TEST_") &&
			name != "HOOKSTART_SCREENSHOTS" {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Unsetenv("GOGC") // set by "make test"; programs should collect garbage as usual
	return m.M.Run()
}

// Process is a program that runs until the test ends or terminates it.
type Process struct {
	*child.Process
	t      *testing.T
	name   string
	output *child.Output
}

// Launch starts a command. If the command has no environment set, it gets that of this process. The
// test fails if the race detector reports a data race in the command's output.
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

// Output returns everything that the process has written to stdout and stderr.
func (p *Process) Output() string { return p.output.String() }

// Await waits until the process's output matches the pattern, and returns the first capture group
// of the match. The test fails if the process exits first, or after awaitTimeout.
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

// Terminate ends the process with SIGTERM. The test fails unless the process exits with code 0.
func (p *Process) Terminate() {
	p.t.Helper()
	if err := p.Process.Terminate(exitTimeout); err != nil {
		p.t.Errorf("%s %v", p.name, err)
	}
}

// AwaitExit waits until the process exits. The test fails unless its exit code is 0.
func (p *Process) AwaitExit() {
	p.t.Helper()
	select {
	case <-p.Exited():
		if !p.State().Success() {
			p.t.Errorf("%s ended with %s", p.name, p.State())
		}
	case <-time.After(exitTimeout):
		p.t.Errorf("%s did not end within %s", p.name, exitTimeout)
	}
}
