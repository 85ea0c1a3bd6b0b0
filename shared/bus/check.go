package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/ops"
)

// Check asks whether the server answers. A connection that hangs looks well until some pings have no answer.
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
