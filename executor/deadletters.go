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
	// maxCountedDeadLetters bounds the cost of counting: larger numbers of dead letters are not
	// counted exactly.
	maxCountedDeadLetters = 100_000
)

// deadLetterGauge is the gauge of the number of dead letters.
type deadLetterGauge struct{ number prometheus.Gauge }

func newDeadLetterGauge(registerer prometheus.Registerer) *deadLetterGauge {
	d := &deadLetterGauge{prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "hookstart_executor_dead_letters",
		Help: "Dead letters that nobody has requeued or dismissed; 100000: or more.",
	})}
	registerer.MustRegister(d.number)
	return d
}

// watch updates the gauge periodically until ctx is done.
func (d *deadLetterGauge) watch(ctx context.Context, letters store.DeadLetters) {
	retry.Every(ctx, deadLetterCountInterval, func() {
		if n, err := letters.CountDeadLetters(ctx, maxCountedDeadLetters); err == nil {
			d.number.Set(float64(n))
		}
	})
}
