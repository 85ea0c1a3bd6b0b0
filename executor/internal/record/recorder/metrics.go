package recorder

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/stream"
)

// Causes of rewinds, which are the values of the label "cause" of the metric
// hookstart_executor_rewinds_total.
const (
	rewindCauseDatabase = "database" // the database lacks acknowledged messages
	rewindCauseStream   = "stream"   // the stream was restored to an earlier state
	// A group of runners would have skipped start messages, for example because the stream was
	// rolled back.
	rewindCauseRunners = "runners"
)

type metrics struct {
	messagesByKind *prometheus.CounterVec
	// number of messages that were recorded, by kind
	recordedStarts, recordedRejections, recordedProgress prometheus.Counter
	unreadableMessages                                   prometheus.Counter
	refusedMessages                                      prometheus.Counter
	// number of executions for which a report named a queue or workflow other than theirs
	mismatchedProgress               prometheus.Counter
	pendingProgress, droppedProgress prometheus.Counter
	failedTransactions               prometheus.Counter
	batchMessages                    prometheus.Histogram
	batchDuration                    prometheus.Histogram
	recordDelay                      prometheus.Histogram
	startLag, progressLag            *prometheus.GaugeVec

	rewinds             *prometheus.CounterVec
	endedLostExecutions *prometheus.CounterVec

	streamBytes, streamMaxBytes, streamReplicas *prometheus.GaugeVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		messagesByKind: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hookstart_executor_messages_total",
			Help: "Messages that were recorded, by kind.",
		}, []string{"kind"}),
		unreadableMessages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_unreadable_total",
			Help: "Messages that could not be decoded and were put aside.",
		}),
		refusedMessages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_refused_total",
			Help: "Messages that the database refused for what they hold, and that were put aside.",
		}),
		mismatchedProgress: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_foreign_progress_total",
			Help: "Executions of which progress was reported on another queue or workflow than " +
				"theirs: a runner that is wrong, or forges.",
		}),
		pendingProgress: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_early_progress_total",
			Help: "Executions of which progress came before their start was recorded, and was " +
				"kept for it.",
		}),
		droppedProgress: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_early_progress_dropped_total",
			Help: "Reports about executions that are not recorded that were dropped, because too " +
				"many are kept.",
		}),
		failedTransactions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hookstart_executor_transaction_failures_total",
			Help: "Transactions that failed and were tried again.",
		}),
		batchMessages: prometheus.NewHistogram(ops.HistogramOpts(
			"hookstart_executor_batch_messages",
			"Messages of one transaction.",
			prometheus.ExponentialBuckets(1, 2, 10))),
		batchDuration: prometheus.NewHistogram(ops.HistogramOpts(
			"hookstart_executor_batch_duration_seconds",
			"From taking a batch of messages to the last acknowledgement, retries included.",
			ops.SecondsBuckets)),
		recordDelay: prometheus.NewHistogram(ops.HistogramOpts(
			"hookstart_executor_record_delay_seconds",
			"From the stream's storing of a batch's first message to the batch's last "+
				"acknowledgement.",
			prometheus.ExponentialBuckets(0.001, 4, 10))),
	}
	m.rewinds = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_executor_rewinds_total",
		Help: "Consumers that were moved back, and messages that runners were given again, by " +
			"cause: the database or the stream had lost what was acknowledged.",
	}, []string{"cause"})
	for _, cause := range []string{rewindCauseDatabase, rewindCauseStream, rewindCauseRunners} {
		m.rewinds.WithLabelValues(cause)
	}
	m.endedLostExecutions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hookstart_executor_ended_total",
		Help: "Executions that were ended as failed because no runner will end them, by reason: " +
			"their start was lost, no runner took it in time, or a runner acknowledged it " +
			"without a report that can be read.",
	}, []string{"reason"})
	for _, end := range endReasons {
		m.endedLostExecutions.WithLabelValues(end.metricLabel)
	}
	registry.MustRegister(m.rewinds, m.endedLostExecutions)
	m.makeStreamGauges()
	registry.MustRegister(m.streamReplicas)
	m.recordedStarts, m.recordedRejections,
		m.recordedProgress = m.messagesByKind.WithLabelValues("start"),
		m.messagesByKind.WithLabelValues("rejection"), m.messagesByKind.WithLabelValues("progress")
	registry.MustRegister(m.recordDelay, m.streamBytes, m.streamMaxBytes)
	registry.MustRegister(m.messagesByKind, m.unreadableMessages, m.refusedMessages,
		m.mismatchedProgress, m.pendingProgress, m.droppedProgress,
		m.failedTransactions, m.batchMessages, m.batchDuration, m.startLag, m.progressLag)
	return m
}

// makeStreamGauges creates the gauges that have the label "stream". It creates their values for the
// streams that every installation has, so that these are reported from the beginning.
func (m *metrics) makeStreamGauges() {
	m.startLag = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hookstart_executor_lag_messages",
		Help: "Messages of a stream that are not recorded yet, by all executors.",
	}, []string{"stream"})
	m.progressLag = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hookstart_executor_progress_lag_messages",
		Help: "Reports of runners in a stream that are not recorded yet, by all executors.",
	}, []string{"stream"})
	m.streamBytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hookstart_executor_stream_bytes", Help: "Size of a stream.",
	}, []string{"stream"})
	m.streamMaxBytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hookstart_executor_stream_max_bytes",
		Help: "Size past which a stream takes no more; 0: no bound of its own.",
	}, []string{"stream"})
	m.streamReplicas = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hookstart_executor_stream_replicas",
		Help: "Replicas of a stream, by whether their server is there and has everything.",
	}, []string{"stream", "state"})
	m.observeReplicas(stream.ExecutionsName, nil)
	m.startLag.WithLabelValues(stream.ExecutionsName)
	m.progressLag.WithLabelValues(stream.ProgressName)
	m.streamBytes.WithLabelValues(stream.ExecutionsName)
	m.streamMaxBytes.WithLabelValues(stream.ExecutionsName)
}

// observeBatch updates the metrics after a batch. It counts the starts, rejections and reports that
// were recorded, and the unreadable messages that were put aside. It does not count messages that
// will be redelivered, because they are counted after the redelivery.
func (m *metrics) observeBatch(entries []*entry, applied store.ApplyResult, took time.Duration) {
	for _, e := range entries {
		switch {
		case e.verdict != verdictRecorded && e.kind != kindUnreadable:
		case e.kind == kindStart:
			m.recordedStarts.Inc()
		case e.kind == kindRejection:
			m.recordedRejections.Inc()
		case e.kind == kindProgress:
			m.recordedProgress.Inc()
		case e.verdict == verdictPutAside:
			m.unreadableMessages.Inc()
		}
	}
	m.mismatchedProgress.Add(float64(len(applied.MismatchedIDs)))
	m.pendingProgress.Add(float64(len(applied.UnrecordedIDs)))
	m.droppedProgress.Add(float64(applied.DroppedProgress))
	m.batchMessages.Observe(float64(len(entries)))
	m.batchDuration.Observe(took.Seconds())
}

// observeStream sets the gauges for the size and the replicas of a stream.
func (m *metrics) observeStream(info *jetstream.StreamInfo) {
	name := info.Config.Name
	m.streamBytes.WithLabelValues(name).Set(float64(info.State.Bytes))
	m.streamMaxBytes.WithLabelValues(name).Set(float64(max(0, info.Config.MaxBytes)))
	m.observeReplicas(name, info.Cluster)
}

// forgetStream removes the metrics of a deleted stream.
func (m *metrics) forgetStream(name string) {
	labels := prometheus.Labels{"stream": name}
	for _, gauge := range []*prometheus.GaugeVec{
		m.startLag, m.progressLag, m.streamBytes, m.streamMaxBytes, m.streamReplicas,
	} {
		gauge.DeletePartialMatch(labels)
	}
}

// observeReplicas sets the number of a stream's replicas in each state. cluster is nil if the
// replicas are unknown or there is only one server.
func (m *metrics) observeReplicas(name string, cluster *jetstream.ClusterInfo) {
	current, behind, offline := 1, 0, 0 // the leader
	if cluster != nil {
		for _, r := range cluster.Replicas {
			switch {
			case r.Offline:
				offline++
			case r.Current:
				current++
			default:
				behind++
			}
		}
	}
	for state, n := range map[string]int{"current": current, "behind": behind, "offline": offline} {
		m.streamReplicas.WithLabelValues(name, state).Set(float64(n))
	}
}
