package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hookstart/hookstart/executor/withpostgres"
	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/program"
)

// The names under which the soak's binary starts itself to be one of the programs.
const (
	roleIngress  = "soak-ingress"
	roleExecutor = "soak-executor"
	roleNode     = "soak-nats"
	roleRunner   = "soak-runner"
)

// BeProgram makes this process the program under whose name it was started, and says whether it is one. main calls it before Run.
func BeProgram() bool {
	switch os.Args[0] {
	case roleIngress:
		program.Main("ingress", "", ingress.Run)
	case roleExecutor:
		program.Main("executor", "", withpostgres.Run)
	case roleNode:
		endWith(runNode(os.Args[1]))
	case roleRunner:
		endWith(runRunner(os.Args[1]))
	default:
		return false
	}
	return true
}

func endWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runNode is a NATS server with the options in text, until SIGTERM.
func runNode(text string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	var o embednats.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
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
