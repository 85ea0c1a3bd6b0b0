package bus

import (
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers two metrics of a component's connection to NATS: whether it is
// connected, and the number of reconnects.
func RegisterMetrics(r prometheus.Registerer, component string, nc *nats.Conn) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hookstart_" + component + "_nats_connected", Help: "1 while NATS is connected.",
		}, func() float64 {
			if nc.IsConnected() {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "hookstart_" + component + "_nats_reconnects_total",
			Help: "How often a lost connection to NATS came back.",
		}, func() float64 { return float64(nc.Stats().Reconnects) }),
	)
}
