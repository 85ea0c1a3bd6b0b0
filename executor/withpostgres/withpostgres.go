// Package withpostgres is the executor with the driver for PostgreSQL, which hookstart-local does
// not link.
package withpostgres

import (
	"context"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/executor/internal/store/postgres"
)

// Run is [executor.Run] with that driver.
func Run(ctx context.Context, c executor.Config) error {
	c.OpenPostgres = postgres.OpenWait
	return executor.Run(ctx, c)
}
