package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/hookstart/hookstart/deploy/local/internal/child"
)

// readyTimeout is how long a program may take to be ready, endTimeout how long it may take
// to end after SIGTERM.
const (
	readyTimeout = time.Minute
	endTimeout   = 40 * time.Second
)

// process is a program that runs. What it writes, its log too, goes to a file.
type process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{}
}

func startProcess(cmd *exec.Cmd, name, log string, environment ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // in our own folder
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the process has its own copy
	p := &process{name: name, log: log, cmd: cmd, exited: make(chan struct{})}
	cmd.Env = append(child.Environment(), environment...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = child.EndsWithParent()
	started := make(chan error)
	go func() {
		// Linux ends the child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in ProcessState
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// stop ends the process, well if it can.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only when it has ended
	<-p.exited
}

// announcement is the line of its log with which a program says that it is ready.
type announcement struct {
	Message string `json:"msg"`
	Addr    string `json:"addr"`
	OpsAddr string `json:"ops_addr"`
}

// isReady is what the announcement of a service says.
func isReady(service string) string { return service + " is ready" }

// awaitReady waits until the service in the process has announced itself.
func (p *process) awaitReady(ctx context.Context, service string) (found announcement, err error) {
	err = p.awaitLine(ctx, func(line string) bool {
		return json.Unmarshal([]byte(line), &found) == nil && found.Message == isReady(service)
	})
	return found, err
}

// awaitLine waits until the process has written a line that is the one.
func (p *process) awaitLine(ctx context.Context, isIt func(string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
			if isIt(lines.Text()) {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended: %s", p.name, strings.TrimSpace(string(text)))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %s", p.name, strings.TrimSpace(string(text)))
		case <-tick.C:
		}
	}
}

// builder starts the processes of one variant.
type builder struct {
	bin      string // empty: this very binary is all programs
	other    string // the same of another build
	folder   string
	name     string
	profiles string // the folder for CPU profiles; empty: none

	workflows   int
	databaseURL string // of a server; empty: a SQLite file in the folder
}

// start starts a program that make build has made, or one of the bench's own.
func (b *builder) start(role string, args ...string) (*process, error) {
	path, own := filepath.Join(b.bin, role), strings.HasPrefix(role, ownPrefix)
	if b.bin == "" || own {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // our own programs; they end by signals
	if b.bin == "" || own {
		cmd.Args[0] = role
	}
	name := b.name + "-" + role
	var environment []string
	if b.profiles != "" && profiled[b.name] == role {
		environment = append(environment, profileEnv+"="+filepath.Join(b.profiles, role+".prof"))
	}
	return startProcess(cmd, name, filepath.Join(b.folder, name+".log"), environment...)
}

// dir is a folder for the data of one process.
func (b *builder) dir(of string) string { return filepath.Join(b.folder, b.name+"-"+of+"-data") }
