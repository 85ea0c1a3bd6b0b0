package soak

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/runner"
)

// runRunner is a runner of the default queue until SIGTERM. Most of its reports come before the start is recorded, if executors
// are slow.
func runRunner(natsURL string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(natsURL, nats.Name("soak-runner"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.PingInterval(time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	// However often runners are killed, their executions must not fail for that.
	options := runner.Options{Group: runnerGroup, Concurrency: 50, Attempts: 1_000_000, AckWait: 5 * time.Second}
	return runner.Run(ctx, nc, options, func(ctx context.Context, e runner.Execution) (any, error) {
		if strings.HasSuffix(e.ID, "00") {
			retry.Wait(ctx, 3*time.Second/2) // long enough to be reported as running
		}
		if outcome(e.ID) == execution.Failed {
			return nil, runner.Permanent(errors.New("as it must"))
		}
		return map[string]string{"id": e.ID}, nil
	})
}

const runnerGroup = "soak"

// outcome is what becomes of an execution, however often it runs.
func outcome(id string) execution.Status {
	if strings.HasSuffix(id, "f") {
		return execution.Failed
	}
	return execution.Succeeded
}
