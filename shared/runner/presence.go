package runner

import (
	"context"

	"github.com/nats-io/nuid"

	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// sayPresent tells executors that this process takes the group's work, until the context ends. Without an effect it does no harm.
func (r *runner) sayPresent(ctx context.Context) {
	subject := r.group().PresenceSubject(nuid.Next())
	retry.Every(ctx, stream.RunnerHeartbeat, func() { _ = r.nc.Publish(subject, nil) })
	_ = r.nc.Publish(subject, []byte(stream.RunnerLeaves))
}
