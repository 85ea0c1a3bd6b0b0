//go:build linux

package powercut

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/deploy/powercut/internal/disk"
	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/program"
)

// roleLocal is the process name (argv[0]) that makes this binary act as hookstart-local.
const roleLocal = "powercut-hookstart-local"

// startTimeout is how long an installation may take to become ready.
const startTimeout = 60 * time.Second

// RunAsRole makes this process act as one of the programs of an installation if it was started
// under that program's name. It returns true when the program has ended, and false if no program
// has that name. main must call it before Run.
func RunAsRole() bool {
	switch os.Args[0] {
	case roleLocal:
		program.Main("hookstart-local", "", local.Run)
	case roleServer:
		program.ExitOnError(embednats.RunProgram(os.Args[1:]))
	case roleIngress:
		program.Main("ingress", "", ingress.Run)
	case roleExecutor:
		program.Main("executor", "", executor.Run)
	case roleRunner:
		program.ExitOnError(runRunner(os.Args[1], os.Args[2:]))
	default:
		return false
	}
	return true
}

// singleMachine is an installation of hookstart-local on one machine.
type singleMachine struct {
	*machine

	syncAlways bool
	adminToken string // "" makes hookstart-local generate one
	process    *process
}

func newSingleMachine(
	folder string, model disk.Model, syncAlways bool, random disk.Randomness,
) (_ *singleMachine, err error) {
	o := &singleMachine{syncAlways: syncAlways, adminToken: adminToken}
	o.machine, err = newMachine(folder, model, random, o.launch)
	return o, err
}

func (o *singleMachine) launch(mounted string) (_ *child.Process, err error) {
	o.process, err = startLocal(dataFolder(mounted), o.logPath(), o.adminToken, o.syncAlways)
	if err != nil {
		return nil, err
	}
	return o.process.Process, nil
}

func (o *singleMachine) logPath() string {
	return filepath.Join(o.folder,
		"hookstart-local.log")
}
func (o *singleMachine) executorURL() string { return o.process.executorURL }
func (o *singleMachine) natsURL() string     { return o.process.natsAddr }

// targets returns a workflow in the demo workflow's queue, so that the runner inside
// hookstart-local runs its executions.
func (o *singleMachine) targets() []targetWorkflow {
	return []targetWorkflow{{
		workflowID: workflowID,
		queue:      "demo",
	}}
}

// close does nothing, because a machine that is off holds no resources.
func (o *singleMachine) close() {}

// startAndAwaitReady turns the machine on and waits until hookstart-local is ready. If the process
// exits instead, the error includes the end of its log.
func (o *singleMachine) startAndAwaitReady(ctx context.Context) error {
	if err := o.start(); err != nil {
		return err
	}
	if err := o.process.awaitReady(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, fileTail(o.logPath()))
	}
	return nil
}

// process is a running hookstart-local process.
type process struct {
	*child.Process
	// executorURL is the URL of the operators' API, and natsAddr is the address of NATS. awaitReady
	// sets both.
	executorURL, natsAddr string

	stdout child.Output
}

const adminToken = "the-admin-token-of-the-power-cuts"

// startLocal starts hookstart-local. Its stderr is appended to the file log.
func startLocal(dataDir, log, token string, syncAlways bool) (*process, error) {
	args := []string{
		"--data-dir=" + dataDir, "--log-level=warn",
		"--ingress-addr=127.0.0.1:0", "--executor-addr=127.0.0.1:0",
		"--nats-addr=127.0.0.1:0", "--ops-addr=127.0.0.1:0",
	}
	if token != "" {
		args = append(args, "--admin-token="+token)
	}
	if syncAlways {
		args = append(args, "--sync-always")
	}
	cmd, err := child.SelfCommand(roleLocal, args...)
	if err != nil {
		return nil, err
	}
	p := &process{}
	cmd.Stdout = &p.stdout
	if p.Process, err = child.StartWithLogFile(cmd, log); err != nil {
		return nil, err
	}
	return p, nil
}

// readyPattern matches the lines that hookstart-local prints when it is ready. Its groups capture
// the URL of the console and the address of NATS.
var readyPattern = regexp.MustCompile(
	`(?s)\nConsole +(http\S+?)/(?:sign-in\S*)?\n.*\nNATS +(\S+)\n.*\nData +\S[^\n]*\n`)

// awaitReady waits until hookstart-local is ready, and sets the addresses in p.
func (p *process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	found, err := p.stdout.Await(ctx, p.Process, readyPattern)
	if err != nil {
		return fmt.Errorf("hookstart-local %w", err)
	}
	p.executorURL, p.natsAddr = found[1], found[2]
	return nil
}

// dataFolder returns the path of hookstart-local's data folder on a mounted disk. Its parents do
// not exist on a new disk, so hookstart-local has to create and sync them itself.
func dataFolder(mounted string) string {
	return filepath.Join(mounted, "srv", "hookstart", "data")
}
