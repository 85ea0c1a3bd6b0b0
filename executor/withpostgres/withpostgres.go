// Package withpostgres runs the executor with the PostgreSQL driver. It is a separate package so
// that hookstart-local, which does not support PostgreSQL, need not link the driver. It needs no
// module of its own: only programs outside this repository would benefit from fewer requirements in
// go.mod, and none of them imports the executor.
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
