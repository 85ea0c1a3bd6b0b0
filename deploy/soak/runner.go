package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/runner"
)

// runRunner runs a runner for each of the queues until SIGTERM. Its handlers end quickly, so that
// most of its reports arrive before a slow executor has recorded the start message.
//
// For each execution that a runner receives, runRunner appends a line to runsFile: the time in Unix
// nanoseconds, and the execution's ID.
func runRunner(natsURL, runsFile string, queues []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	handle, err := recordingHandler(runsFile)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(natsURL, nats.Name("soak-runner"), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.PingInterval(time.Second))
	if err != nil {
		return err
	}
	defer nc.Close()
	ended := make(chan error, len(queues))
	for _, queue := range queues {
		go func() {
			options := runnerOptions(runnerGroup)
			options.Queue = queue
			err := runner.Run(ctx, nc, options, handle)
			stop() // if one runner ends unexpectedly, stop the others
			ended <- err
		}()
	}
	for range queues {
		err = errors.Join(err, <-ended)
	}
	return err
}

// runHostRunner is like runRunner, but for a host with the shipped NATS configuration: it connects
// with credentials, uses the runner group in that configuration, and serves only the default queue.
func runHostRunner(natsURL, credsFile, caFile, runsFile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	handle, err := recordingHandler(runsFile)
	if err != nil {
		return err
	}
	nc, err := bus.Connect(ctx, bus.Options{
		URL:            natsURL,
		Name:           roleHostRunner,
		ConnectTimeout: time.Minute,
		CredsFile:      credsFile,
		CAFile:         caFile,
		Log:            logrus.StandardLogger(),
	})
	if err != nil {
		return err
	}
	defer nc.Close()
	options := runnerOptions(hostRunnerGroup)
	options.AckWait = 0 // the executors create the consumer and set its ack wait
	return runner.Run(ctx, nc, options, handle)
}

// recordingHandler returns the runners' handler, which appends the time and the ID of each
// execution that it receives to runsFile. The file stays open until the process exits.
func recordingHandler(
	runsFile string,
) (func(context.Context, runner.Execution) (any, error), error) {
	//nolint:gosec // a path of the caller's own
	file, err := os.OpenFile(runsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, e runner.Execution) (any, error) {
		if _, err := fmt.Fprintln(file, time.Now().UnixNano(), e.ID); err != nil {
			return nil, err
		}
		return handleExecution(ctx, e)
	}, nil
}

// runnerOptions returns the options of all runners. They allow a million attempts, so that an
// execution cannot fail just because its runners were killed.
func runnerOptions(group string) runner.Options {
	return runner.Options{
		Group:       group,
		Concurrency: 50,
		Attempts:    1_000_000,
		AckWait:     5 * time.Second,
	}
}

// handleExecution runs an execution: it returns the outcome that expectedStatus derives from the
// ID. An execution whose ID ends in 00 takes longer than the others.
func handleExecution(ctx context.Context, e runner.Execution) (any, error) {
	if strings.HasSuffix(e.ID, "00") {
		retry.Sleep(ctx, 3*time.Second/2) // long enough for a report that the execution is running
	}
	if expectedStatus(e.ID) == execution.Failed {
		return nil, runner.Permanent(errors.New("as it must"))
	}
	return map[string]string{"id": e.ID}, nil
}

const runnerGroup = "soak"

// hostRunnerGroup is the runner group that has a user in the shipped NATS configuration.
const hostRunnerGroup = "main"

// expectedStatus returns the final status of an execution, which depends only on its ID.
func expectedStatus(id string) execution.Status {
	if strings.HasSuffix(id, "f") {
		return execution.Failed
	}
	return execution.Succeeded
}
