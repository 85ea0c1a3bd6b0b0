package soak

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/shared/retry"
)

// livenessPath is the path of the liveness probe of NATS servers in deploy/nats/kubernetes.yaml.
const livenessPath = "/healthz"

// The deployment probes less often, and tolerates more failures.
const (
	probeEvery    = time.Second
	failuresToEnd = 5
)

// fillNode fills the disk of a node except for room bytes. After the disk is free again, the node
// is supervised as in the deployment.
func fillNode(ctx context.Context, n *node, room uint64, lasts time.Duration) error {
	if err := n.disk.fill(room); err != nil {
		return err
	}
	retry.Sleep(ctx, lasts)
	if err := n.disk.free(); err != nil {
		return err
	}
	return n.supervise(ctx)
}

// supervise watches a node for a while, and restarts it when its probe has failed failuresToEnd
// times in a row.
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
		retry.Sleep(ctx, probeEvery)
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
