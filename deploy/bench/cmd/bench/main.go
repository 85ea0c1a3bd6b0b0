// Command bench measures how fast hookstart is, against the bare combination of its parts.
package main

import (
	"context"
	"os"

	"github.com/hookstart/hookstart/deploy/bench"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	if bench.BeProgram() {
		return
	}
	var c bench.Commands
	program.Main("bench", "How fast hookstart is. Without a command: against the bare combination of its parts.", &c,
		func(ctx context.Context) error { return c.Run(ctx, os.Stdout) })
}
