package executor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// settingsCheckInterval is how often the streams' settings are compared with the configuration.
const settingsCheckInterval = 20 * time.Second

// streamSettingsMonitor detects streams whose settings were changed while the executor is running.
// It is needed because stream.EnsureSharedStreams compares the settings only when the executor
// starts.
type streamSettingsMonitor struct {
	log               logrus.FieldLogger
	differencesGauge  *prometheus.GaugeVec
	loggedDifferences map[string]string // the differences last logged, keyed by stream
}

// streamsWithCheckedSettings lists the streams whose settings are compared with the configuration.
// The buckets are not in the list, because their settings are not configurable.
//
//nolint:gochecknoglobals // a constant list
var streamsWithCheckedSettings = []string{
	stream.ExecutionsName, stream.ProgressName, stream.ReportsName,
}

func newStreamSettingsMonitor(registry *prometheus.Registry,
	log logrus.FieldLogger,
) *streamSettingsMonitor {
	s := &streamSettingsMonitor{
		log: log, loggedDifferences: map[string]string{},
		differencesGauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hookstart_executor_stream_settings_differ",
			Help: "Settings of a stream that are not as configured.",
		}, []string{"stream"}),
	}
	for _, name := range streamsWithCheckedSettings {
		s.differencesGauge.WithLabelValues(name)
	}
	registry.MustRegister(s.differencesGauge)
	return s
}

func (s *streamSettingsMonitor) watch(ctx context.Context, js jetstream.JetStream,
	want stream.Settings,
) {
	retry.Every(ctx, settingsCheckInterval, func() {
		asking, cancel := context.WithTimeout(ctx, settingsCheckInterval/2)
		defer cancel()
		s.compare(asking, js, want)
	})
}

func (s *streamSettingsMonitor) compare(
	ctx context.Context, js jetstream.JetStream, want stream.Settings,
) {
	for _, name := range streamsWithCheckedSettings {
		differences, err := stream.SettingsDifferences(ctx, js, name, want)
		if errors.Is(err, jetstream.ErrStreamNotFound) || ctx.Err() != nil {
			continue // a readiness check reports missing streams
		}
		if err != nil {
			s.log.WithError(err).WithField("stream",
				name).Debug("a stream's settings could not be compared")
			continue
		}
		s.differencesGauge.WithLabelValues(name).Set(float64(len(differences)))
		text := strings.Join(differences, ", ")
		if text == s.loggedDifferences[name] {
			continue
		}
		s.loggedDifferences[name] = text
		log := s.log.WithField("stream", name)
		if text == "" {
			log.Info("the stream's settings are as configured again")
			continue
		}
		log.WithField("differences",
			text).Warn("the stream was edited: its settings are not as configured, and no " +
			"executor will start with these; configure age, size and dedup window as they are, " +
			"or change them with `hookstart admin stream`; undo what else was edited in NATS")
	}
}
