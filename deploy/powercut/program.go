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
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/program"
)

// roleLocal is the name under which this binary starts itself to be hookstart-local.
const roleLocal = "powercut-hookstart-local"

// startTimeout is how long hookstart-local may take until it is ready.
const startTimeout = 60 * time.Second

// BeProgram makes this process hookstart-local if it was started as such, and says whether it was. main calls it before Run.
func BeProgram() bool {
	if os.Args[0] != roleLocal {
		return false
	}
	program.Main("hookstart-local", "", local.Run)
	return true
}

// process is hookstart-local, running.
type process struct {
	*child.Process
	// Where it is, once awaitReady has returned.
	executor, nats string

	said child.Output // to stdout
}

const adminToken = "the-admin-token-of-the-power-cuts"

// launch starts hookstart-local. What it logs is added to the file log.
func launch(dataDir, log, token string, syncAlways bool) (*process, error) {
	args := []string{
		"--data-dir=" + dataDir, "--ingress-addr=127.0.0.1:0", "--executor-addr=127.0.0.1:0", "--nats-addr=127.0.0.1:0",
		"--ops-addr=127.0.0.1:0", "--log-level=warn",
	}
	if token != "" {
		args = append(args, "--admin-token="+token)
	}
	if syncAlways {
		args = append(args, "--sync-always")
	}
	cmd, err := child.Self(roleLocal, args...)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a path of our own
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the process has its own copy
	p := &process{}
	cmd.Stdout, cmd.Stderr = &p.said, file
	if p.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	return p, nil
}

// readyText is the end of what hookstart-local says when it is ready.
var readyText = regexp.MustCompile(`(?s)\nConsole +(http\S+?)/(?:sign-in\S*)?\n.*\nNATS +(\S+)\n.*\nData +\S+\n`)

// awaitReady returns when hookstart-local is ready.
func (p *process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	found, err := p.said.Await(ctx, p.Process, readyText)
	if err != nil {
		return fmt.Errorf("hookstart-local %w", err)
	}
	p.executor, p.nats = found[1], found[2]
	return nil
}

// dataFolder is where hookstart-local keeps its data on a mounted disk, in folders that it has to make itself.
func dataFolder(mounted string) string { return filepath.Join(mounted, "srv", "hookstart", "data") }
