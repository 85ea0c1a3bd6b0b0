package soak

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/stream"
)

// strangeReports are how many reports about executions that nobody started come at once.
const strangeReports = 500

// reportUnknown reports executions that there are not, as a runner does that is wrong.
func (f *faults) reportUnknown(_ context.Context, _ time.Duration) error {
	for range strangeReports {
		msg, err := stream.ProgressMessage(execution.DefaultQueue, "soak-0", "node", "",
			execution.Progress{ID: uuid.NewString(), Status: execution.Succeeded, At: time.Now()})
		if err != nil {
			return err
		}
		if err := f.installation.nc.PublishMsg(msg); err != nil {
			return err
		}
	}
	return f.installation.nc.FlushTimeout(recoverTimeout)
}
