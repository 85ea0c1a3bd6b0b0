package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hookstart/hookstart/shared/child"
)

// readyTimeout is how long a program may take to become ready. terminateTimeout is how long it may
// take to exit after SIGTERM.
const (
	readyTimeout     = 3 * time.Minute
	terminateTimeout = time.Minute
)

// process is a running program. Its output is appended to a log file.
type process struct {
	*child.Process
	name    string
	logFile string
	// opsAddr is the address that serves /debug/pprof; "" means that there is none.
	opsAddr string
}

func startProcess(cmd *exec.Cmd, name, log string, environment ...string) (*process, error) {
	cmd.Env = append(child.EnvironmentWithoutFlagVariables(), environment...)
	running, err := child.StartWithLogFile(cmd, log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &process{Process: running, name: name, logFile: log}, nil
}

// stop ends the process with SIGTERM, or kills it if it takes too long to exit.
func (p *process) stop() { _ = p.Terminate(terminateTimeout) }

// readyEvent is the log line that a program writes when it is ready.
type readyEvent struct {
	Message string `json:"msg"`
	Addr    string `json:"addr"`
	OpsAddr string `json:"ops_addr"`
}

// readyMessage returns the message of the log line that a service writes when it is ready.
func readyMessage(service string) string { return service + " is ready" }

// awaitReady waits until the service in the process has logged that it is ready, and returns that
// log line.
func (p *process) awaitReady(ctx context.Context, service string) (found readyEvent, err error) {
	err = p.awaitLine(ctx, func(line string) bool {
		return json.Unmarshal([]byte(line), &found) == nil && found.Message == readyMessage(service)
	})
	if found.OpsAddr != "" {
		p.opsAddr = found.OpsAddr
	}
	return found, err
}

// awaitLine waits until the process has written a line for which matches returns true.
func (p *process) awaitLine(ctx context.Context, matches func(string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(p.logFile)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if matches(strings.TrimSuffix(line, "\n")) {
				return nil
			}
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("%s ended: %s", p.name, strings.TrimSpace(string(text)))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %s", p.name, strings.TrimSpace(string(text)))
		case <-tick.C:
		}
	}
}

// launcher starts the processes of one variant. Its fields are the settings of these processes.
type launcher struct {
	binFolder      string // folder of the programs; "" means that this binary acts as all of them
	otherBinFolder string // like binFolder, for the build with which this one is compared
	folder         string
	name           string
	profileFolder  string // folder for CPU profiles; "" means that none are written

	// traced makes the benchmark's own programs serve execution traces, as hookstart's services do.
	traced bool

	workflows    int
	nodeSettings nodeSettings
	databaseURL  string // URL of PostgreSQL; "" means a SQLite file in the folder
	// secretsKey is the path of the file with the key that encrypts senders' secrets. "" means that
	// no workflow has a sender.
	secretsKey string
}

// start starts the program named role: one that `make build` has built, or one of the benchmark's
// own.
func (b *launcher) start(role string, args ...string) (*process, error) {
	//nolint:gosec,noctx // our own programs; they end by signals
	cmd := exec.Command(filepath.Join(b.binFolder, role), args...)
	if b.binFolder == "" || strings.HasPrefix(role, benchRolePrefix) {
		var err error
		if cmd, err = child.SelfCommand(role, args...); err != nil {
			return nil, err
		}
	}
	name := b.name + "-" + role
	var environment []string
	if b.profileFolder != "" { // only hookstart's programs read the variable
		environment = append(environment, profileEnv+"="+filepath.Join(b.profileFolder,
			name+".prof"))
	}
	if b.traced {
		environment = append(environment, tracedEnv+"=yes")
	}
	return startProcess(cmd, name, filepath.Join(b.folder, name+".log"), environment...)
}

// dataDir returns the path of the data folder of one process.
func (b *launcher) dataDir(name string) string {
	return filepath.Join(b.folder, b.name+"-"+name+"-data")
}
