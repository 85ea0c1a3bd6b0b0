// Package withpostgres runs the executor with the PostgreSQL driver. It is a separate package so
// that hookstart-local, which does not support PostgreSQL, need not link the driver. It is not a
// separate module, because no program outside this repository imports the executor, so the
// requirements in its go.mod burden nobody.
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
