package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/ops"
)

// Check returns a readiness check that succeeds only if the NATS server responds. component names
// the connection in /readyz and in the log. The check sends a ping, because nats.go considers a
// connection that hangs to be connected until several of its own pings have gone unanswered.
func Check(component string, nc *nats.Conn) ops.Check {
	return ops.Check{Component: component, Probe: func(ctx context.Context) error {
		if nc.IsClosed() {
			return ErrClosed
		}
		if !nc.IsConnected() {
			return errors.New("there is no connection to NATS; it is tried again and again")
		}
		return nc.FlushWithContext(ctx)
	}}
}
