package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/ops"
)

// Check returns a readiness check that succeeds if the NATS server responds to a ping. The state of
// nc alone is not enough: if the server hangs, nats.go still reports the connection as connected
// until several of its own pings have gone unanswered. component is the name of the check in
// /readyz and in the log.
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
