package soak

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/shared/retry"
)

// livenessPath is that of the liveness probe of NATS servers in deploy/nats/kubernetes.yaml.
const livenessPath = "/healthz"

// The deployment asks more rarely, and is more patient.
const (
	probeEvery    = time.Second
	failuresToEnd = 5
)

// fillNode leaves a node that much room. Afterwards it is supervised as in the deployment.
func fillNode(ctx context.Context, n *node, room uint64, lasts time.Duration) error {
	if err := n.disk.fill(room); err != nil {
		return err
	}
	retry.Wait(ctx, lasts)
	if err := n.disk.free(); err != nil {
		return err
	}
	return n.supervise(ctx)
}

// supervise watches a node for a while, and restarts it when its probe fails too often.
func (n *node) supervise(ctx context.Context) error {
	failures := 0
	for range 2 * failuresToEnd {
		if err := n.alive(ctx); err != nil {
			failures++
		} else {
			failures = 0
		}
		if failures == failuresToEnd {
			n.terminate()
			return n.start()
		}
		retry.Wait(ctx, probeEvery)
	}
	return nil
}

func (n *node) alive(ctx context.Context) error {
	status, _, err := get(ctx, n.healthURL)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s says %d", n.healthURL, status)
	}
	return err
}
