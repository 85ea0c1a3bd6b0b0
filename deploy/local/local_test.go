package local_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/child"
)

func TestDataStaysBetweenRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := launchReady(t, dir)
	a, err := first.post(t.Context(), "1", strings.NewReader("{}"))
	if err != nil || a.status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := first.client().Deactivate(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	// The admin token is configured, not generated, so the output must contain neither the token
	// nor a link that signs in.
	if out := first.Output(); strings.Contains(out, "once=") || strings.Contains(out, adminToken) {
		t.Errorf("what is printed signs in:\n%s", out)
	}
	first.Terminate()

	second := launchReady(t, dir)
	if _, path, _ := strings.Cut(first.webhook, "/webhooks/"); !strings.HasSuffix(second.webhook,
		path) {
		t.Errorf("the webhook URL was %s, and is %s", first.webhook, second.webhook)
	}
	if w, err := second.client().Workflow(t.Context(), "demo"); err != nil || w.Active {
		t.Errorf("a workflow that was switched off is %+v, %v", w, err)
	}
	if _, err := second.client().Activate(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	if again, err := second.post(t.Context(), "1", strings.NewReader("{}")); err != nil ||
		!again.Deduplicated || again.ExecutionID != a.ExecutionID {
		t.Errorf("the same delivery after a restart: %+v, %v", again, err)
	}
	second.awaitStatus(t, a.ExecutionID, "succeeded")
	if e, err := second.client().Execution(t.Context(), a.ExecutionID); err != nil ||
		e.BodyBytes != 2 {
		t.Errorf("%+v, %v", e, err)
	}
}

// The output begins with the instructions: the program logs nothing before them. Each log line
// would be a JSON object.
func TestNothingIsLoggedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	p := launch(t, "--data-dir", t.TempDir())
	p.Await(`\nMetrics +(\S+)`)
	before, _, ready := strings.Cut("\n"+p.Output(), "hookstart is ready.")
	if !ready || strings.Contains(before, "\n{") {
		t.Errorf("before it is ready, it prints:\n%s", before)
	}
}

func TestAdminTokenIsMadeAndKept(t *testing.T) {
	t.Parallel()
	commandLine := filepath.Join(t.TempDir(), "hookstart")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", commandLine,
		"github.com/hookstart/hookstart/executor/cmd/hookstart")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	dir := t.TempDir()
	tokens := make([]string, 2)
	for n := range tokens {
		p := launch(t, "--data-dir", dir, "--no-demo")
		tokens[n] = p.Await(`\nAdmin token +(\S+)`)
		executor := p.Await(`\nConsole +(http://[^/\s]+)`)
		client := apiclient.New(executor, tokens[n])
		if _, err := client.Plans(t.Context(), apiclient.Page{}); err != nil {
			t.Errorf("the token that is printed does not work: %v", err)
		}
		p.Await(`\nConsole +http://\S+/sign-in\?once=(\S+)`)
		// Run the printed commands as if an operator pasted them into a shell. There is no demo
		// workflow. In the second round, the objects that they create already exist.
		paste := exec.Command("sh", "-ec", p.Await(`\n  (export \S.*)\n`)+
			p.Await(`\n  export .*((?:\n  hookstart .*){4})\n`)+p.Await(
			`(\n  hookstart execution list)\n`)+"\nexec hookstart admin stream")
		paste.Env = append(os.Environ(), "PATH="+filepath.Dir(commandLine)+":"+os.Getenv("PATH"))
		if out, err := paste.CombinedOutput(); err != nil ||
			!regexp.MustCompile(`queued .* orders\n`).Match(out) {
			t.Errorf("the command line, with what is printed to paste: %v\n%s", err, out)
		}
		if isNew := strings.Contains(p.Await(`\nData +(.*)`), dir+" (new"); isNew != (n == 0) {
			t.Errorf("start %d: it says that the data folder is new: %t", n, isNew)
		}
		if strings.Contains(p.Output(), "/webhooks/") {
			t.Error("there is a demo workflow")
		}
		p.Terminate()
	}
	if tokens[0] != tokens[1] {
		t.Error("the admin token changed")
	}
	if info, err := os.Stat(filepath.Join(dir, "admin-token")); err != nil ||
		info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// If a port or folder is in use, or a flag or folder is unusable, the program prints a single line
// that names it and says what to do.
func TestOneLineSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	taken := busy.Addr().String()
	_, takenPort, _ := strings.Cut(taken, ":")
	used := t.TempDir()
	launchReady(t, used)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		args []string
		want []string
		code int
	}{
		"ingress port": {
			[]string{"--ingress-addr=" + taken}, []string{taken, "--ingress-addr"}, 1,
		},
		"executor port": {
			[]string{"--executor-addr=" + taken}, []string{taken, "--executor-addr"}, 1,
		},
		"ops port":      {[]string{"--ops-addr=" + taken}, []string{taken, "--ops-addr"}, 1},
		"NATS port":     {[]string{"--nats-addr=" + taken}, []string{takenPort, "--nats-addr"}, 1},
		"folder in use": {[]string{"--data-dir=" + used}, []string{used, "--data-dir"}, 1},
		"folder is none": {
			[]string{"--data-dir=" + filepath.Join(file, "x")}, []string{file, "--data-dir"}, 1,
		},
		"no such flag": {[]string{"--frobnicate"}, []string{"--frobnicate", "--help"}, 2},
		"no number": {
			[]string{"--max-body-bytes=many"}, []string{"--max-body-bytes", "--help"}, 2,
		},
		"no bytes": {
			[]string{"--max-body-bytes=0", "--log-level=info"}, []string{"--max-body-bytes"}, 1,
		},
		"no address": {[]string{"--nats-addr=4222"}, []string{"--nats-addr"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{
				"--ingress-addr=127.0.0.1:0", "--executor-addr=127.0.0.1:0",
				"--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
				"--data-dir=" + t.TempDir(), "--log-level=error",
			}, c.args...)
			cmd, err := child.SelfCommand(role, args...)
			if err != nil {
				t.Fatal(err)
			}
			output, err := cmd.CombinedOutput()
			if err == nil || cmd.ProcessState.ExitCode() != c.code {
				t.Errorf("it ended with %s", cmd.ProcessState)
			}
			text := string(output)
			if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "hookstart-local: ") {
				t.Errorf("not one line:\n%s", text)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %s", want, text)
				}
			}
		})
	}
}

// The demo workflow has a runner, so the first request starts an execution that succeeds.
func TestTheDemoSucceeds(t *testing.T) {
	t.Parallel()
	l := launchReady(t, t.TempDir())
	a, err := l.post(t.Context(), "", strings.NewReader(`{"hello":"world"}`))
	if err != nil || a.status != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var e api.ExecutionDetail
	for e.Status != "succeeded" {
		// The execution is recorded shortly after the response, so ask repeatedly.
		if e, err = l.client().Execution(ctx, a.ExecutionID); ctx.Err() != nil {
			t.Fatalf("%+v, %v", e, err)
		}
		<-tick.C
	}
	if string(e.Input) != `{"hello":"world"}` ||
		!strings.Contains(string(e.Output), `"inputBytes":17`) || e.StartedAt.IsZero() ||
		e.FinishedAt.IsZero() {
		t.Errorf("%+v", e)
	}
	l.Terminate()
}
