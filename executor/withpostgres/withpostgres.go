// Package withpostgres runs the executor with the PostgreSQL driver. It is a separate package
// because hookstart-local does not link the driver. It is not a module of its own: nobody imports
// the executor, so what its go.mod requires costs nobody anything.
package withpostgres

import (
	"context"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
)

// Run is like [executor.Run], and also supports PostgreSQL.
func Run(ctx context.Context, c executor.Config) error {
	c.OpenPostgres = postgres.OpenWithRetry
	return executor.Run(ctx, c)
}
