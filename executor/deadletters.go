package executor

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/retry"
)

const (
	deadLetterCountInterval = 15 * time.Second
	// maxCountedDeadLetters is the highest number that the gauge shows. Counting stops at this
	// number to limit its cost, so there may be more dead letters than the gauge shows.
	maxCountedDeadLetters = 100_000
)

// deadLetterGauge exports the number of dead letters as a metric.
type deadLetterGauge struct{ gauge prometheus.Gauge }

func newDeadLetterGauge(registerer prometheus.Registerer) *deadLetterGauge {
	d := &deadLetterGauge{prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "hookstart_executor_dead_letters",
		Help: "Dead letters that nobody has requeued or dismissed; 100000: or more.",
	})}
	registerer.MustRegister(d.gauge)
	return d
}

// updatePeriodically counts the dead letters every deadLetterCountInterval until ctx is done, and
// sets the gauge. If a count fails, the gauge keeps its value.
func (d *deadLetterGauge) updatePeriodically(ctx context.Context, letters store.DeadLetters) {
	retry.Every(ctx, deadLetterCountInterval, func() {
		if n, err := letters.CountDeadLetters(ctx, maxCountedDeadLetters); err == nil {
			d.gauge.Set(float64(n))
		}
	})
}
