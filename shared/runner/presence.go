package runner

import (
	"context"
	"time"

	"github.com/nats-io/nuid"

	"github.com/hookstart/hookstart/shared/stream"
)

// sayPresent tells executors that this process takes the group's work, until the context ends. Without an effect it does no harm.
func (r *runner) sayPresent(ctx context.Context) {
	subject := r.group().PresenceSubject(nuid.Next())
	tick := time.NewTicker(stream.RunnerHeartbeat)
	defer tick.Stop()
	for {
		_ = r.nc.Publish(subject, nil)
		select {
		case <-ctx.Done():
			_ = r.nc.Publish(subject, []byte(stream.RunnerLeaves))
			return
		case <-tick.C:
		}
	}
}
