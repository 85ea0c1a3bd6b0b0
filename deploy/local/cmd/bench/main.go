// Command bench measures how fast hookstart is, against the bare combination of its parts.
package main

import (
	"context"
	"os"

	"github.com/hookstart/hookstart/deploy/local/bench"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	if bench.BeProgram() {
		return
	}
	var c bench.Config
	program.Main("bench", "How fast hookstart is, against the bare combination of its parts.", &c,
		func(ctx context.Context) error {
			c.Out = os.Stdout
			return bench.Run(ctx, c)
		})
}
