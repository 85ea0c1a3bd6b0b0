//go:build linux

package powercut

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/program"
)

// roleLocal is the name under which this binary starts itself to be hookstart-local.
const roleLocal = "powercut-hookstart-local"

// startTimeout is how long hookstart-local may take until it is ready.
const startTimeout = 60 * time.Second

// BeProgram makes this process hookstart-local if it was started under that role, and says
// whether it was. Every main that calls Run calls it first.
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

	lines chan string // what it says before it is ready
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
	said, out := io.Pipe()
	cmd.Stdout, cmd.Stderr = out, file
	p := &process{lines: make(chan string, 100)}
	if p.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	go func() {
		<-p.Exited()
		_ = out.Close() // never an error
	}()
	go p.read(said)
	return p, nil
}

// read takes what the process says on stdout, to its end.
func (p *process) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		select {
		case p.lines <- lines.Text():
		default: // nobody reads any more
		}
	}
	close(p.lines)
	_, _ = io.Copy(io.Discard, out) // a line that is too long must not stop the process
}

var errEnded = errors.New("hookstart-local ended by itself")

// awaitReady returns when hookstart-local is ready.
func (p *process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("hookstart-local is not ready: %w", ctx.Err())
		case line, more := <-p.lines:
			if !more {
				return errEnded
			}
			switch fields := strings.Fields(line); {
			case len(fields) == 2 && fields[0] == "NATS":
				p.nats = fields[1]
			case len(fields) == 2 && fields[0] == "Console":
				p.executor, _, _ = strings.Cut(fields[1], "/sign-in")
			case len(fields) == 2 && fields[0] == "Data":
				return nil // the last line
			}
		}
	}
}

// kill is SIGKILL. The process may go on until the call into its file system has an answer.
func (p *process) kill() { _ = p.Signal(os.Kill) }

// dataFolder is where hookstart-local keeps its data below a mounted disk: in folders that it has
// to make itself.
func dataFolder(mounted string) string { return filepath.Join(mounted, "srv", "hookstart", "data") }
