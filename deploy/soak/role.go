package soak

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hookstart/hookstart/executor/withpostgres"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/program"
)

// Roles of the soak's processes. To start one of the programs of an installation, the soak starts
// its own binary with the program's role as os.Args[0].
const (
	roleIngress  = "soak-ingress"
	roleExecutor = "soak-executor"
	roleNode     = "soak-nats"
	roleRunner   = "soak-runner"

	// Roles of programs that run on separate hosts.
	roleNATSServer = "soak-nats-server"
	roleHostRunner = "soak-host-runner"
)

// RunAsRole makes this process act as one of the programs of an installation if it was started
// under the name of that program. It returns true when the program has ended, or false at once if
// the process has any other name. main must call it before Run.
func RunAsRole() bool {
	switch filepath.Base(os.Args[0]) {
	case roleIngress:
		program.Main("ingress", "", ingress.Run)
	case roleExecutor:
		program.Main("executor", "", withpostgres.Run)
	case roleNode:
		program.ExitOnError(runNode(os.Args[1]))
	case roleRunner:
		program.ExitOnError(runRunner(os.Args[1], os.Args[2], os.Args[3:]))
	case roleNATSServer:
		program.ExitOnError(embednats.RunProgram(os.Args[1:]))
	case roleHostRunner:
		program.ExitOnError(runHostRunner(os.Args[1], os.Args[2], os.Args[3], os.Args[4]))
	default:
		return false
	}
	return true
}

// runNode runs a NATS server until SIGTERM. optionsJSON holds its options as JSON.
func runNode(optionsJSON string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	var o embednats.Options
	if err := json.Unmarshal([]byte(optionsJSON), &o); err != nil {
		return err
	}
	o.Log = func(level slog.Level, line string) {
		if level >= slog.LevelWarn {
			slog.Log(context.Background(), level, line)
		}
	}
	server, err := embednats.Start(o)
	if err != nil {
		return err
	}
	<-stop
	server.Shutdown()
	return nil
}
