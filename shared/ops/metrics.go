package ops

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

func newMetrics() *prometheus.Registry {
	metrics := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "hookstart_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": Version, "go_version": runtime.Version()},
	})
	build.Set(1)
	metrics.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return metrics
}

// RegisterReadyGauge registers the gauge hookstart_{component}_ready. It is 1 while all components
// of the process are ready, not only this one, and 0 otherwise.
func (o *Ops) RegisterReadyGauge(component string) {
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hookstart_" + component + "_ready", Help: "1 while /readyz answers 200.",
	}, func() float64 {
		if len(o.Readiness.NotReadyReasons()) > 0 {
			return 0
		}
		return 1
	}))
}

// SecondsBuckets holds the bucket bounds for durations from half a millisecond to 4 s. They are for
// scrapers that do not support native histograms.
var SecondsBuckets = prometheus.ExponentialBuckets(0.0005, 2, 14)

// HistogramOpts returns the options of a histogram that is both native and classic. The native form
// has a precision of 10 % and a bounded size; the classic form has the given buckets.
func HistogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name:                            name,
		Help:                            help,
		Buckets:                         buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}
