package runner

import (
	"context"

	"github.com/nats-io/nuid"

	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// announcePresence sends heartbeats to the executors until ctx ends. The executors use them only to
// show this process as a member of the group.
func (r *runner) announcePresence(ctx context.Context) {
	subject := r.group().PresenceSubject(nuid.Next())
	retry.Every(ctx, stream.RunnerHeartbeatInterval, func() { _ = r.nc.Publish(subject, nil) })
	_ = r.nc.Publish(subject, []byte(stream.RunnerLeavingData))
}
