//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/child/childtest"
)

// When hookstart run is killed, Linux also kills the program that it runs. Another member of the
// group then runs the execution again.
func TestAKilledRunEndsItsProgram(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(buildCommandLine(t), "hookstart")
	l := launchLocal(t, t.TempDir())
	url := makeQueue(t, l, "killed")
	folder := t.TempDir()
	// The first attempt keeps running; the second one ends immediately.
	script := `test "$HOOKSTART_ATTEMPT" = 1 || exec echo again; echo $$ >pid.new; mv pid.new pid; exec sleep 600`
	start := func() *process {
		cmd := exec.Command(bin, "run", "--queue", "killed", "--nats-url", l.nats, "--", "sh", "-c",
			script)
		cmd.Dir = folder
		p := childtest.Launch(t, cmd)
		p.Await("(runner is ready)")
		return p
	}
	first := start()
	a, err := post(t.Context(), url, nil, strings.NewReader("1"))
	if err != nil || a.Status != 200 {
		t.Fatalf("POST: %+v, %v", a, err)
	}
	var pid int
	within(t, time.Minute, "program", func() bool {
		text, err := os.ReadFile(filepath.Join(folder, "pid"))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && runs(pid)
	})
	first.Kill()
	within(t, 5*time.Second, "end of the program", func() bool { return !runs(pid) })

	start()
	// The execution is redelivered to another member when its acknowledgement is overdue.
	within(t, 40*time.Second, "second attempt", func() bool {
		e, err := l.client().Execution(t.Context(), a.ExecutionID)
		return err == nil && e.Status == "succeeded" && string(e.Output) == `{"text":"again\n"}`
	})
}

// runs reports whether a process is running. A zombie process does not count as running.
func runs(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
