package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/execution"
)

const (
	// restoreDeliveryCount is the number of deliveries that deliverBatch sends.
	restoreDeliveryCount = 50
	// convergenceTimeout is the maximum time that all services may take to show the expected state
	// after the stores were restored or deleted.
	convergenceTimeout = 90 * time.Second
)

// restoreStoresAndCheck replaces the stores of all nodes with an earlier copy, as operators do
// after a disaster, while the ingresses, executors and runners keep running. The stream may lose
// deliveries that were accepted after the copy was made. The function checks the following
// promises, and returns a description of each violation:
//
//   - Every ingress and every executor sees the registry in its state right before the restore,
//     which includes the changes made after the copy. An executor restores these changes from the
//     copy of the registry in the database. New changes take effect immediately.
//   - Deliveries accepted after the restore are stored and recorded exactly once, reach a final
//     state, and are deduplicated.
//   - Queues that had their own stream before the restore have it again.
//   - No record stays queued or running.
func (i *installation) restoreStoresAndCheck(
	ctx context.Context,
	s *senders,
) (broken []string, err error) {
	// Close the idle connections. The faults have broken them, so the next request on one of them
	// would fail.
	s.client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	if err := setToggledWorkflowActive(ctx, i.client(), true); err != nil {
		return nil, err
	}
	if err := i.copyStores(ctx); err != nil {
		return nil, err
	}

	// This workflow is missing from the copied stores, so only the database still has it after the
	// restore.
	lateWorkflow, err := i.makeWorkflow(ctx, "late", execution.DefaultQueue)
	if err != nil {
		return nil, err
	}
	if err := setToggledWorkflowActive(ctx, i.client(), false); err != nil {
		return nil, err
	}
	s.deliverBatch(ctx, "before")
	if err := awaitConsumersCaughtUp(ctx, i.js, recordTimeout); err != nil {
		return nil, err
	}

	if err := i.restoreStores(); err != nil {
		return nil, err
	}
	check := func(what string, hold func(context.Context) error) {
		if err := eventually(ctx, convergenceTimeout, hold); err != nil && ctx.Err() == nil {
			broken = append(broken, what+": "+err.Error())
		}
	}
	if check("all are well", i.awaitReplicasAndReady); len(broken) > 0 {
		return broken, nil
	}
	check("a workflow of after the copy", func(ctx context.Context) error {
		return i.checkWorkflowEverywhere(ctx, s, "late", lateWorkflow, http.StatusOK)
	})
	check("a workflow that was deactivated after the copy", func(ctx context.Context) error {
		return i.checkWorkflowEverywhere(ctx, s, toggledWorkflowID, i.toggledWebhookPath,
			http.StatusForbidden)
	})
	check("streams of queues", i.checkOwnStreams)
	broken = append(broken, i.toggleAndCheckByEachExecutor(ctx, s)...)
	first, again := s.deliverBatch(ctx, "after"), s.deliverBatch(ctx, "after")
	for marker, a := range first {
		if b := again[marker]; a.Status != http.StatusOK || a.Deduplicated ||
			b.ExecutionID != a.ExecutionID || !b.Deduplicated {
			broken = append(broken, fmt.Sprintf("a delivery was answered %+v, then %+v", a, b))
		}
	}
	s.deliverBatch(ctx, "before") // a sender may repeat a delivery even after the response 200
	if err := awaitConsumersCaughtUp(ctx, i.js, recordTimeout); err != nil {
		broken = append(broken, err.Error())
	}
	check("records", func(ctx context.Context) error { return i.checkRecords(ctx, first) })
	return broken, nil
}

// copyStores stops all nodes, copies their stores for restoreStores, and restarts the nodes.
func (i *installation) copyStores(ctx context.Context) error {
	for _, n := range i.nodes {
		n.terminate()
	}
	for _, n := range i.nodes {
		if err := errors.Join(os.CopyFS(i.storeCopyPath(n), os.DirFS(n.storeDir)),
			n.start()); err != nil {
			return err
		}
	}
	return i.awaitReplicasAndReady(ctx)
}

// restoreStores kills all nodes, replaces their stores with the copies, and restarts the nodes.
func (i *installation) restoreStores() error {
	for _, n := range i.nodes {
		n.kill()
	}
	for _, n := range i.nodes {
		if err := errors.Join(os.RemoveAll(n.storeDir),
			os.CopyFS(n.storeDir, os.DirFS(i.storeCopyPath(n))), n.start()); err != nil {
			return err
		}
	}
	return nil
}

// toggleAndCheckByEachExecutor alternately deactivates and activates the toggled workflow, each
// time through the next executor. The result describes each change that failed, or that some
// service did not show immediately.
func (i *installation) toggleAndCheckByEachExecutor(
	ctx context.Context, s *senders,
) (broken []string) {
	for n, e := range i.executors {
		active := n%2 == 1
		if err := setToggledWorkflowActive(
			ctx,
			apiclient.New(e.url, adminToken),
			active,
		); err != nil {
			broken = append(broken, fmt.Sprintf("set active to %v: %v", active, err))
			continue
		}
		want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[active]
		err := i.checkWorkflowEverywhere(ctx, s, toggledWorkflowID, i.toggledWebhookPath, want)
		if err != nil {
			broken = append(broken, fmt.Sprintf("active was set to %v: %v", active, err))
		}
	}
	return broken
}

func (i *installation) storeCopyPath(
	n *node,
) string {
	return filepath.Join(i.folder, "copy", n.name)
}

func (i *installation) awaitReplicasAndReady(ctx context.Context) error {
	if err := i.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	return i.awaitReady(ctx, recoverTimeout)
}

// deliverBatch sends restoreDeliveryCount deliveries, spread over all queues, and retries each
// until it gets a response other than a 5xx. It returns these responses, keyed by delivery ID,
// without the deliveries that got none before the timeout. name is the prefix of the delivery IDs,
// so a second call with the same name repeats the same deliveries.
func (s *senders) deliverBatch(ctx context.Context, name string) map[string]deliver.Answer {
	answers := map[string]deliver.Answer{}
	for n := range restoreDeliveryCount {
		d := &delivery{marker: name + "-" + strconv.Itoa(n), hasID: true}
		_ = eventually(ctx, recoverTimeout, func(ctx context.Context) error {
			a, err := s.sendRequest(
				ctx,
				d,
				s.ingressURLs[n%len(s.ingressURLs)]+
					s.webhookPathPerQueue[n/len(s.ingressURLs)%len(s.webhookPathPerQueue)],
			)
			if err == nil && a.Status >= 500 {
				err = errors.New(a.Code)
			}
			if err == nil {
				answers[d.marker] = a
			}
			return err
		})
	}
	return answers
}

// checkWorkflowEverywhere returns an error that names the first service that does not show the
// workflow in the state that status implies. Each ingress must answer a request to path, the
// workflow's webhook path, with that status. Each executor must show the workflow as active if the
// status is 200, must not find it if the status is 404, and otherwise must show it as inactive.
func (i *installation) checkWorkflowEverywhere(
	ctx context.Context, s *senders, workflow, path string, status int,
) error {
	for _, e := range i.ingresses {
		a, err := s.sendRequest(ctx, &delivery{marker: "agree"}, e.url+path)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if a.Status != status {
			return fmt.Errorf("%s answers %d %s, not %d", e.name, a.Status, a.Code, status)
		}
	}
	for _, e := range i.executors {
		w, err := apiclient.New(e.url, adminToken).Workflow(ctx, workflow)
		if problem, ok := errors.AsType[*api.Problem](err); ok && problem.Status == status &&
			status == http.StatusNotFound {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if status == http.StatusNotFound || w.Active != (status == http.StatusOK) {
			return fmt.Errorf("%s says that %s has active %v; the endpoint answers %d", e.name,
				workflow, w.Active, status)
		}
	}
	return nil
}

// checkRecords returns an error if an execution has not ended, or if an accepted one is not
// recorded exactly once with the expected status.
func (i *installation) checkRecords(ctx context.Context, accepted map[string]deliver.Answer) error {
	records, err := readRecords(ctx, i.client())
	if err != nil {
		return err
	}
	hanging := 0
	for _, r := range records {
		if !r.status.Final() {
			hanging++
		}
	}
	if hanging > 0 {
		return fmt.Errorf("%d executions are queued or running", hanging)
	}
	for marker, a := range accepted {
		if r := records[a.ExecutionID]; r.count != 1 || r.status != expectedStatus(a.ExecutionID) {
			return fmt.Errorf("%s of delivery %s is recorded %d times, as %s", a.ExecutionID,
				marker, r.count, r.status)
		}
	}
	return nil
}
