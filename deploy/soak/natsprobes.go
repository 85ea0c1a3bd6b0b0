package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsProbes publishes messages through the NATS server of each host to a stream that hookstart
// does not use. The messages show how much NATS alone accepts during a partition, for comparison
// with the requests that the ingresses accept.
type natsProbes struct {
	*probes
	connections []*nats.Conn
}

const (
	natsProbeStream = "PROBES" // the name of the stream, and the subject of its messages
	// natsProbeTimeout is the maximum time that a probe waits for its acknowledgement. It equals
	// the time that an ingress waits for the acknowledgement of a start message, so that the
	// results can be compared.
	natsProbeTimeout = 5 * time.Second
)

// newNATSProbes creates the probes' stream with a replica on each host, and connects to each NATS
// server. The caller must call close.
func newNATSProbes(ctx context.Context, i *installation) (*natsProbes, error) {
	if _, err := i.js.CreateStream(ctx, jetstream.StreamConfig{
		Name:     natsProbeStream,
		Subjects: []string{natsProbeStream},
		Replicas: len(i.nodes),
		MaxMsgs:  1,
	}); err != nil {
		return nil, fmt.Errorf("the stream of the probes: %w", err)
	}
	p := &natsProbes{}
	publishers := make([]jetstream.JetStream, len(i.nodes))
	for host, node := range i.nodes {
		nc, err := nats.Connect(node.url, slices.Concat(i.natsOptions,
			[]nats.Option{nats.MaxReconnects(-1)})...)
		if err == nil {
			p.connections = append(p.connections, nc)
			publishers[host], err = jetstream.New(nc)
		}
		if err != nil {
			p.close()
			return nil, errors.Join(fmt.Errorf("the NATS server of host %s", hostNames[host]), err)
		}
	}
	p.probes = &probes{
		send: func(ctx context.Context, host, number int) bool {
			ctx, cancel := context.WithTimeout(ctx, natsProbeTimeout)
			defer cancel()
			_, err := publishers[host].Publish(ctx, natsProbeStream,
				[]byte(strconv.Itoa(number)), jetstream.WithRetryAttempts(0))
			return err == nil
		},
		interval: probeInterval, byHost: make([][]probe, len(i.nodes)), added: make(chan struct{}),
	}
	return p, nil
}

func (p *natsProbes) close() {
	for _, nc := range p.connections {
		nc.Close()
	}
}
