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
	os.Exit(cli.Run(signalContext(), os.Args[1:],
		cli.StdStreams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// signalContext returns a context that is canceled by the first SIGINT or SIGTERM, or when the
// terminal hangs up. A second SIGINT or SIGTERM terminates the program immediately. SIGHUP never
// terminates it immediately, because the shell and the kernel both send SIGHUP when a terminal
// closes.
func signalContext() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as it is with nohup
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	context.AfterFunc(ctx, stop)
	return ctx
}
