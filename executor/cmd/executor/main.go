// Command executor records hookstart's executions and serves the operators' API and
// the console.
package main

import (
	"context"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	var flags struct {
		executor.Config
		program.Version
	}
	program.Main("executor", "Records executions; serves the operators' API and the console.", &flags,
		func(ctx context.Context) error { return executor.Run(ctx, flags.Config) })
}
