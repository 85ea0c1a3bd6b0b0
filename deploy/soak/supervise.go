package soak

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/shared/child"
	"github.com/hookstart/hookstart/shared/retry"
)

// livenessPath is the path of the NATS servers' liveness probe in deploy/nats/kubernetes.yaml.
const livenessPath = "/healthz"

// The soak probes more often than the deployment in deploy/nats/kubernetes.yaml, and tolerates
// fewer failures, so that a restart takes less time.
const (
	livenessProbeInterval    = time.Second
	livenessProbeTimeout     = time.Second
	livenessFailureThreshold = 5
)

// fillNodeDisk fills a node's disk until only the given number of bytes is free, waits for the
// given duration, and frees the space again. Like the deployment in deploy/nats/kubernetes.yaml, it
// then restarts the NATS server if the server stays unhealthy after its disk was full.
func fillNodeDisk(ctx context.Context, n *node, freeBytes uint64, lasts time.Duration) error {
	if err := n.disk.fill(freeBytes); err != nil {
		return err
	}
	retry.Sleep(ctx, lasts)
	if err := n.disk.restoreSize(); err != nil {
		return err
	}
	return n.restartIfUnhealthy(ctx)
}

// restartIfUnhealthy probes a node 2*livenessFailureThreshold times. After livenessFailureThreshold
// consecutive failures, it restarts the node and returns.
func (n *node) restartIfUnhealthy(ctx context.Context) error {
	failures := 0
	for range 2 * livenessFailureThreshold {
		if err := n.checkAlive(ctx); err != nil {
			failures++
		} else {
			failures = 0
		}
		if failures == livenessFailureThreshold {
			n.terminate()
			return n.start()
		}
		retry.Sleep(ctx, livenessProbeInterval)
	}
	return nil
}

func (n *node) checkAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, livenessProbeTimeout)
	defer cancel()
	status, _, err := child.HTTPGet(ctx, n.healthURL)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s says %d", n.healthURL, status)
	}
	return err
}
