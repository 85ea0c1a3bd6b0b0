// Package instrumented exports the durations and failures of database operations as metrics.
package instrumented

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops"
)

// measuredOperations lists the operations that the observer measures. It ignores all others.
var measuredOperations = []string{
	"apply", "add duplicates", "add refusals", "get", "get many", "list", "list oldest",
	"count by time", "tokens last used", "add token uses",
	"refusals", "all refusals", "add senders", "sender seen", "minutes", "mark requeued", "dismiss",
	"count dead letters", "list unreadable",
	"prune", "prune audit", "prune counts", "prune early", "end lost", "request cancel", "cancel",
}

// NewObserver returns a store.Observer that registers and updates the metrics. An operation that
// fails because its context is done does not count as a failure.
func NewObserver(registerer prometheus.Registerer) store.Observer {
	durations := prometheus.NewHistogramVec(
		ops.HistogramOpts("hookstart_executor_database_duration_seconds",
			"How long the database took, by operation.",
			prometheus.ExponentialBuckets(0.0005, 4, 8)),
		[]string{"operation"})
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_executor_database_failures_total",
		Help: "Operations that the database did not do.",
	}, []string{"operation"})
	registerer.MustRegister(durations, failures)
	type metrics struct {
		duration prometheus.Observer
		failures prometheus.Counter
	}
	byOperation := make(map[string]metrics, len(measuredOperations))
	for _, operation := range measuredOperations {
		label := strings.ReplaceAll(operation, " ", "_")
		byOperation[operation] = metrics{
			durations.WithLabelValues(label), failures.WithLabelValues(label),
		}
	}
	return func(ctx context.Context, operation string, took time.Duration, err error) {
		m, measured := byOperation[operation]
		if !measured {
			return
		}
		m.duration.Observe(took.Seconds())
		if err != nil && ctx.Err() == nil {
			m.failures.Inc()
		}
	}
}
