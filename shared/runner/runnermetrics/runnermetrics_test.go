package runnermetrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/runner"
	"github.com/hookstart/hookstart/shared/runner/runnermetrics"
	"github.com/hookstart/hookstart/shared/runner/runnertest"
)

// The function that New returns counts every attempt once, labeled with its result.
func TestAttemptsAreCounted(t *testing.T) {
	nc := natstest.Start(t).Connect(t)
	ingress := runnertest.NewIngress(t, nc)
	registry := prometheus.NewRegistry()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	options := runner.Options{
		Group: "group", Attempts: 3, Backoff: func(int) time.Duration {
			return time.Millisecond
		}, Observe: runnermetrics.New(registry),
	}
	go func() {
		ended <- runner.Run(ctx, nc, options,
			func(_ context.Context, e runner.Execution) (any, error) {
				if e.WorkflowID == "fails" {
					return nil, errors.New("no")
				}
				return nil, nil
			})
	}()
	for _, workflow := range []string{"fine", "fails", "fine"} {
		ingress.Await(t, ingress.Start(t, runnertest.Post{WorkflowID: workflow}))
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	const want = `
		# HELP hookstart_runner_attempts_total Attempts by what became of them.
		# TYPE hookstart_runner_attempts_total counter
		hookstart_runner_attempts_total{result="canceled"} 0
		hookstart_runner_attempts_total{result="failed"} 1
		hookstart_runner_attempts_total{result="handed_back"} 0
		hookstart_runner_attempts_total{result="not_reported"} 0
		hookstart_runner_attempts_total{result="succeeded"} 2
		hookstart_runner_attempts_total{result="tried_again"} 2
		hookstart_runner_attempts_total{result="unreadable"} 0
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"hookstart_runner_attempts_total"); err != nil {
		t.Error(err)
	}
}
