// Command hookstart is the command line for operators: a client of the operators' API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/hookstart/hookstart/executor/cmd/hookstart/internal/cli"
)

func main() {
	if os.Getpid() == 1 {
		os.Exit(runAsInit())
	}
	// A second signal terminates the program immediately.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, os.Args[1:], cli.StdStreams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
