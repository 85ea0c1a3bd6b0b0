package soak

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/shared/execution"
)

// unknownReportsPerFault is the number of reports that injectUnknownReports publishes.
const unknownReportsPerFault = 500

// injectUnknownReports publishes reports about executions that do not exist, in all queues, as a
// faulty runner might.
func (f *faultInjector) injectUnknownReports(_ context.Context, _ time.Duration) error {
	queues := f.installation.queues()
	for n := range unknownReportsPerFault {
		queue := queues[n%len(queues)]
		msg, err := f.installation.layout(queue).ProgressMessage(queue, "soak-0", "node", "",
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
