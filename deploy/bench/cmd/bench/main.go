// Command bench compares the speed of hookstart with the bare combination of its parts.
package main

import (
	"context"
	"os"

	"github.com/hookstart/hookstart/deploy/bench"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	if bench.RunAsRole() {
		return
	}
	program.Main("bench",
		"How fast hookstart is. Without a command: against the bare combination of its parts.",
		func(ctx context.Context, c bench.Commands) error { return c.Run(ctx, os.Stdout) })
}
