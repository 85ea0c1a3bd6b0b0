package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hookstart/hookstart/shared/child/childtest"
)

// buildCommandLine builds the program hookstart, once for all tests, and returns the folder that
// contains it.
func buildCommandLine(t *testing.T) (dir string) {
	t.Helper()
	return filepath.Dir(buildProgram(t, "github.com/hookstart/hookstart/executor/cmd/hookstart"))
}

// programs holds the paths of the built programs, in a folder that TestMain removes.
var programs struct {
	sync.Mutex
	dir  string
	path map[string]string // paths of the programs, keyed by package
}

// buildProgram builds a program, with the race detector if this test has it, and returns its path.
// Each program is built only once for all tests.
func buildProgram(t *testing.T, pkg string) (path string) {
	t.Helper()
	programs.Lock()
	defer programs.Unlock()
	if path, ok := programs.path[pkg]; ok {
		return path
	}
	path = filepath.Join(programs.dir, filepath.Base(pkg))
	args := []string{"build", "-buildvcs=false", "-ldflags=-w", "-o", path}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" && setting.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	build := exec.CommandContext(t.Context(), "go", append(args, pkg)...)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, output)
	}
	programs.path[pkg] = path
	return path
}

// raceOptions is a value of the environment variable GORACE that makes programs built with the race
// detector exit immediately. By default, they wait for one second before they exit.
const raceOptions = "atexit_sleep_ms=0"

// Every subcommand works against the real programs. Each script in testdata uses a separate
// installation.
func TestCommandLine(t *testing.T) {
	bin := buildCommandLine(t)
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			l := launchLocal(t, t.TempDir())
			testscript.Run(t, testscript.Params{
				Files:               []string{script},
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"retry":   retry,
					"publish": publish,
					"knock":   knock,
				},
				Setup: func(env *testscript.Env) error {
					env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
					env.Setenv("HOOKSTART_API_URL", l.executor)
					env.Setenv("HOOKSTART_ADMIN_TOKEN", adminToken)
					env.Setenv("INGRESS", l.ingress)
					env.Setenv("NATS", l.nats)
					env.Setenv("GORACE", raceOptions)
					return nil
				},
			})
		})
	}
}

// publish implements the script command "publish SUBJECT DATA", which publishes DATA unchanged to
// the stream.
func publish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: publish SUBJECT DATA")
	}
	nc, err := nats.Connect(ts.Getenv("NATS"))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	_, err = js.Publish(context.Background(), args[0], []byte(args[1]))
	ts.Check(err)
}

// knock implements the script command "knock PATH", which posts to a webhook that does not exist,
// as a stranger might.
func knock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: knock PATH")
	}
	a, err := post(context.Background(), ts.Getenv("INGRESS")+args[0], nil, http.NoBody)
	ts.Check(err)
	if a.Status != http.StatusNotFound {
		ts.Fatalf("POST %s: %+v", args[0], a)
	}
}

// retry implements the script command "retry PROGRAM ARGUMENT…", which runs a program repeatedly
// until it succeeds.
func retry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: retry PROGRAM ARGUMENT…")
	}
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			ts.Fatalf("%s: %v", strings.Join(args, " "), err)
		case <-tick.C:
		}
	}
}

var (
	verbLine    = regexp.MustCompile(`(?m)^  ([a-z-]+ [a-z-]+)  +\S`)
	exampleLine = regexp.MustCompile(`(?m)^    (\S.*)$`)
)

// The help of every subcommand fits in a terminal of 80 columns and has an example that works with
// the demo workflow.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := launchLocal(t, data)
	sh := shell{t, t.TempDir(), append(os.Environ(),
		"PATH="+buildCommandLine(t)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOOKSTART_API_URL="+l.executor, "HOOKSTART_ADMIN_TOKEN="+adminToken,
		"HOOKSTART_NATS_URL="+l.nats, "GORACE="+raceOptions,
	)}
	if err := os.Symlink(filepath.Join(data, "secrets.key"),
		filepath.Join(sh.dir, "secrets.key")); err != nil {
		t.Fatal(err)
	}

	// Create what the examples need: executions to show, to run again and to requeue.
	sh.run(`hookstart trigger send demo --data '{"fail":"on purpose"}' && hookstart execution verify latest --wait 20s`)
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(sh.run("hookstart dead-letter list"), "on purpose") &&
		time.Now().Before(deadline) {
		continue // no pause: each command starts a program, which takes long enough
	}
	sh.run("hookstart trigger send demo && hookstart execution verify latest --wait 20s")
	verbs := verbLine.FindAllStringSubmatch(sh.run("hookstart --help"), -1)
	if len(verbs) < 20 {
		t.Fatalf("verbs: %q", verbs)
	}
	for _, verb := range verbs {
		help := sh.run("hookstart " + verb[1] + " --help")
		for line := range strings.Lines(help) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 82 {
				// In the examples, lines that contain a pipe may be longer than 80 columns.
				t.Errorf("%s --help: a line of more than 80 columns: %s", verb[1], line)
			}
		}
		_, text, ok := strings.Cut(help, "\nExample")
		text, _, _ = strings.Cut(text, "\nFlags:")
		examples := exampleLine.FindAllStringSubmatch(text, -1)
		if !ok || len(examples) == 0 || !strings.Contains(text, "hookstart "+verb[1]) {
			t.Errorf("%s --help has no example:\n%s", verb[1], help)
		}
		for _, example := range examples {
			if verb[1] == "execution tail" { // it never ends
				watching := childtest.Launch(t, sh.command("exec "+example[1]))
				watching.Await("(Watching)")
				watching.Terminate()
				continue
			}
			if strings.HasPrefix(example[1], "hookstart-local ") ||
				strings.HasPrefix(example[1], "hookstart admin restore ") {
				// These examples need another program or an empty installation, so they cannot run
				// against the demo installation of this test.
				continue
			}
			if strings.HasSuffix(example[1], " key_q2VnT0pXbWs") {
				// The key ID in this example is made up.
				continue
			}
			if strings.HasSuffix(example[1], " message-12") {
				// The dead letter in this example exists only after a database failure.
				continue
			}
			sh.run(example[1])
		}
	}
}

// shell runs command lines in a folder with a given environment.
type shell struct {
	t   *testing.T
	dir string
	env []string
}

func (s shell) command(line string) *exec.Cmd {
	command := exec.CommandContext(s.t.Context(), "sh", "-c", line)
	command.Dir, command.Env = s.dir, s.env
	return command
}

// run runs a command line, which must succeed, and returns its stdout.
func (s shell) run(line string) string {
	s.t.Helper()
	command := s.command(line)
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s%s", line, err, stdout, stderr.String())
	}
	return string(stdout)
}
