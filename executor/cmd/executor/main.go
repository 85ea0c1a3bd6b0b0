// Command executor records hookstart's executions and serves the operators' API and
// the console.
package main

import (
	"context"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
	"github.com/hookstart/hookstart/shared/program"
)

func main() {
	program.Main("executor", "Records executions; serves the operators' API and the console.", func(ctx context.Context, c executor.Config) error {
		c.OpenPostgres = postgres.OpenWait
		return executor.Run(ctx, c)
	})
}
