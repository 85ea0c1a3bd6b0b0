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

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

const (
	// restoredDeliveries are sent before, and again after.
	restoredDeliveries = 50
	// settleTimeout is how long it may take until everybody agrees again.
	settleTimeout = 90 * time.Second
)

// restore puts the stores of all nodes back to an earlier copy, as after a disaster, while ingresses, executors and runners go
// on. The stream may have lost what was accepted after the copy. It returns what else does not hold:
//
//   - the registry is as it was before, for every ingress and every executor, and changes hold at once: an executor restores it
//     from the copy in the database;
//   - what is accepted from then on is stored and recorded once, has its end, and is deduplicated;
//   - no record stays queued or running.
func (i *installation) restore(ctx context.Context, s *senders) (broken []string, err error) {
	// The faults have broken connections that are still taken for idle ones.
	s.client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	if err := switchTo(ctx, i.client(), true); err != nil {
		return nil, err
	}
	if err := i.copyStores(ctx); err != nil {
		return nil, err
	}

	// What the copy does not know.
	lateWorkflow, err := i.makeWorkflow(ctx, "late")
	if err != nil {
		return nil, err
	}
	if err := switchTo(ctx, i.client(), false); err != nil {
		return nil, err
	}
	s.deliverAll(ctx, "before")
	if err := awaitConsumers(ctx, i.js, recordTimeout); err != nil {
		return nil, err
	}

	if err := i.putBackStores(); err != nil {
		return nil, err
	}
	check := func(what string, hold func(context.Context) error) {
		if err := eventually(ctx, settleTimeout, hold); err != nil && ctx.Err() == nil {
			broken = append(broken, what+": "+err.Error())
		}
	}
	if check("all are well", i.awaitWell); len(broken) > 0 {
		return broken, nil
	}
	check("a workflow of after the copy", func(ctx context.Context) error {
		return i.agree(ctx, s, "late", lateWorkflow, http.StatusOK)
	})
	check("a workflow that was deactivated after the copy", func(ctx context.Context) error {
		return i.agree(ctx, s, switchedWorkflow, i.switched, http.StatusForbidden)
	})
	broken = append(broken, i.switchByEach(ctx, s)...)
	first, again := s.deliverAll(ctx, "after"), s.deliverAll(ctx, "after")
	for marker, a := range first {
		if b := again[marker]; a.Status != http.StatusOK || a.Deduplicated || b.ExecutionID != a.ExecutionID || !b.Deduplicated {
			broken = append(broken, fmt.Sprintf("a delivery was answered %+v, then %+v", a, b))
		}
	}
	s.deliverAll(ctx, "before") // their sender was told 200, and may still send them again
	if err := awaitConsumers(ctx, i.js, recordTimeout); err != nil {
		broken = append(broken, err.Error())
	}
	check("records", func(ctx context.Context) error { return i.checkRecords(ctx, first) })
	return broken, nil
}

// copyStores copies the stores of all nodes, which it stops for that.
func (i *installation) copyStores(ctx context.Context) error {
	for _, n := range i.nodes {
		n.terminate()
	}
	for _, n := range i.nodes {
		if err := errors.Join(os.CopyFS(i.copyOf(n), os.DirFS(n.storeDir)), n.start()); err != nil {
			return err
		}
	}
	return i.awaitWell(ctx)
}

// putBackStores kills all nodes and starts them on their copies.
func (i *installation) putBackStores() error {
	for _, n := range i.nodes {
		n.kill()
	}
	for _, n := range i.nodes {
		if err := errors.Join(os.RemoveAll(n.storeDir), os.CopyFS(n.storeDir, os.DirFS(i.copyOf(n))), n.start()); err != nil {
			return err
		}
	}
	return nil
}

// switchByEach switches a workflow off and on by each executor in turn, and returns what did not hold at once.
func (i *installation) switchByEach(ctx context.Context, s *senders) (broken []string) {
	for n, e := range i.executors {
		active := n%2 == 1
		if err := switchTo(ctx, apiclient.New(e.url, adminToken), active); err != nil {
			broken = append(broken, fmt.Sprintf("set active to %v: %v", active, err))
			continue
		}
		want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[active]
		if err := i.agree(ctx, s, switchedWorkflow, i.switched, want); err != nil {
			broken = append(broken, fmt.Sprintf("active was set to %v: %v", active, err))
		}
	}
	return broken
}

func (i *installation) copyOf(n *node) string { return filepath.Join(i.folder, "copy", n.name) }

func (i *installation) awaitWell(ctx context.Context) error {
	if err := i.awaitReplicas(ctx, replicaTimeout); err != nil {
		return err
	}
	return i.awaitReady(ctx, recoverTimeout)
}

// deliverAll sends deliveries until each has a final answer, which it returns by delivery ID.
func (s *senders) deliverAll(ctx context.Context, name string) map[string]answer {
	answers := map[string]answer{}
	for n := range restoredDeliveries {
		d := &delivery{marker: name + "-" + strconv.Itoa(n), hasID: true}
		_ = eventually(ctx, recoverTimeout, func(ctx context.Context) error {
			a, err := s.request(ctx, d, s.urls[n%len(s.urls)]+s.paths[0])
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

// agree says which ingress or executor sees a workflow in another way than status says.
func (i *installation) agree(ctx context.Context, s *senders, workflow, path string, status int) error {
	for _, e := range i.ingresses {
		a, err := s.request(ctx, &delivery{marker: "agree"}, e.url+path)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if a.Status != status {
			return fmt.Errorf("%s answers %d %s, not %d", e.name, a.Status, a.Code, status)
		}
	}
	for _, e := range i.executors {
		w, err := apiclient.New(e.url, adminToken).Workflow(ctx, workflow)
		if problem, ok := errors.AsType[*api.Problem](err); ok && problem.Status == status && status == http.StatusNotFound {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if status == http.StatusNotFound || w.Active != (status == http.StatusOK) {
			return fmt.Errorf("%s says that %s has active %v; the endpoint answers %d", e.name, workflow, w.Active, status)
		}
	}
	return nil
}

// checkRecords says what is wrong with the records after the store was restored.
func (i *installation) checkRecords(ctx context.Context, accepted map[string]answer) error {
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
		if r := records[a.ExecutionID]; r.count != 1 || r.status != outcome(a.ExecutionID) {
			return fmt.Errorf("%s of delivery %s is recorded %d times, as %s", a.ExecutionID, marker, r.count, r.status)
		}
	}
	return nil
}
