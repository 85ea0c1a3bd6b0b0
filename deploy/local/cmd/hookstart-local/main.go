// Command hookstart-local runs all of hookstart in one process.
package main

import (
	"context"
	"os"

	"github.com/hookstart/hookstart/deploy/local"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	var flags struct {
		local.Config
		program.Version
	}
	program.Main("hookstart-local", "All of hookstart in one process, on an embedded NATS server and SQLite.", &flags,
		func(ctx context.Context) error {
			flags.Out = os.Stdout
			return local.Run(ctx, flags.Config)
		})
}
