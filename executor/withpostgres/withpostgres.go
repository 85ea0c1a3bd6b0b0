// Package withpostgres is the executor with the PostgreSQL driver, which hookstart-local does not
// link.
package withpostgres

import (
	"context"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
)

// Run is like [executor.Run], and also supports PostgreSQL.
func Run(ctx context.Context, c executor.Config) error {
	c.OpenPostgres = postgres.OpenWait
	return executor.Run(ctx, c)
}
