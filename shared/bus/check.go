package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/ops"
)

// Check returns a readiness check that succeeds only if the server responds. The state of the
// connection is not enough: a connection that hangs looks healthy until several pings have gone
// unanswered.
func Check(part string, nc *nats.Conn) ops.Check {
	return ops.Check{Part: part, Ask: func(ctx context.Context) error {
		if nc.IsClosed() {
			return ErrClosed
		}
		if !nc.IsConnected() {
			return errors.New("there is no connection to NATS; it is tried again and again")
		}
		return nc.FlushWithContext(ctx)
	}}
}
