package queues

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/retry"
)

const (
	pollInterval = 5 * time.Second
	// maxQueuesWithMetrics is the maximum number of queues with metrics. The limit exists because
	// everyone who may change a workflow can make up queue names.
	maxQueuesWithMetrics = 1_000
)

var (
	waitingDesc = prometheus.NewDesc("hookstart_executor_queue_waiting_messages",
		"Starts of the queue that no runner was given yet.", []string{"queue"}, nil)
	oldestAgeDesc = prometheus.NewDesc("hookstart_executor_queue_oldest_seconds",
		"How long ago the oldest of them was accepted; 0: none waits.", []string{"queue"}, nil)
	unattendedDesc = prometheus.NewDesc("hookstart_executor_queue_unattended_seconds",
		"For how long starts have waited that no runner is there for; 0: none do.", []string{
			"queue",
		}, nil)
	pausedDesc = prometheus.NewDesc("hookstart_executor_queue_paused_seconds",
		"For how long the queue has been paused; 0: it is not.", []string{"queue"}, nil)
	membersDesc = prometheus.NewDesc("hookstart_executor_queue_members",
		"Runners of each group that are there; no group: the queue has none; absent: unknown yet.",
		[]string{"queue", "group"}, nil)
)

// Run polls the queues every few seconds until the context is done.
func (w *Watcher) Run(ctx context.Context) {
	// Ignore errors here: callers of Poll receive them, and an outage of NATS is reported
	// elsewhere.
	retry.Every(ctx, pollInterval, func() { _, _ = w.Poll(ctx) })
}

// Describe implements prometheus.Collector: it sends the descriptions of all metrics of queues.
func (w *Watcher) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		waitingDesc, oldestAgeDesc, unattendedDesc, pausedDesc,
		membersDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector. It reports the result of the last poll, and polls
// nothing itself. The default queue is always included.
func (w *Watcher) Collect(to chan<- prometheus.Metric) {
	queues, _ := w.LastPoll()
	now := time.Now()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	hasDefault := false
	for i, q := range queues {
		if hasDefault = hasDefault || q.Name == execution.DefaultQueue; i >= maxQueuesWithMetrics {
			continue
		}
		collectQueue(q, now, gauge)
	}
	if !hasDefault {
		collectQueue(Queue{Name: execution.DefaultQueue}, now, gauge)
	}
}

func collectQueue(
	q Queue, now time.Time, gauge func(d *prometheus.Desc, value float64, labels ...string),
) {
	gauge(waitingDesc, float64(q.Waiting), q.Name)
	age := 0.0
	if !q.OldestAcceptedAt.IsZero() {
		age = max(now.Sub(q.OldestAcceptedAt).Seconds(), 0)
	}
	gauge(oldestAgeDesc, age, q.Name)
	gauge(unattendedDesc, q.UnattendedDuration(now).Seconds(), q.Name)
	since := 0.0
	if !q.PausedSince.IsZero() {
		since = max(now.Sub(q.PausedSince).Seconds(), 0.001)
	}
	gauge(pausedDesc, since, q.Name)
	for _, g := range q.Groups {
		if !g.MembersUnknown {
			gauge(membersDesc, float64(g.Members), q.Name, g.Name)
		}
	}
	if len(q.Groups) == 0 {
		gauge(membersDesc, 0, q.Name, "")
	}
}
