// Package runnermetrics counts the attempts of a runner for Prometheus:
//
//	runner.Run(ctx, nc, runner.Options{
//		Group:   "builders",
//		Observe: runnermetrics.New(prometheus.DefaultRegisterer),
//	}, handle)
package runnermetrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/shared/runner"
)

// New registers the metrics of a process's runners and returns a function that counts their
// attempts. It panics if they are already registered.
func New(registerer prometheus.Registerer) (observe func(runner.Attempt)) {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_runner_attempts_total", Help: "Attempts by what became of them.",
	}, []string{"result"})
	duration := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:                            "hookstart_runner_attempt_duration_seconds",
		Help:                            "How long an attempt took.",
		Buckets:                         prometheus.ExponentialBuckets(0.001, 4, 10),
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	})
	for _, result := range []runner.Result{
		runner.Succeeded, runner.Failed, runner.Canceled, runner.TriedAgain, runner.HandedBack,
		runner.NotReported, runner.Unreadable,
	} {
		attempts.WithLabelValues(resultLabel(result)) // creates the counter with the value zero
	}
	registerer.MustRegister(attempts, duration)
	return func(a runner.Attempt) {
		attempts.WithLabelValues(resultLabel(a.Result)).Inc()
		duration.Observe(a.Took.Seconds())
	}
}

func resultLabel(result runner.Result) string {
	return strings.ReplaceAll(string(result), " ", "_")
}
