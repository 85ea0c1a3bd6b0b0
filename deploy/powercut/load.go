//go:build linux

package powercut

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/hookstart/hookstart/deploy/lab/deliver"
	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
	"github.com/hookstart/hookstart/shared/retry"
	"github.com/hookstart/hookstart/shared/stream"
)

// accountID is the ID of the only account. workflowID is the ID of the workflow that receives
// deliveries in every installation. nodeID is the ID of the trigger node of every workflow.
// numSenders is the number of concurrent senders.
const (
	accountID, workflowID, nodeID = "powercut", "load", "node"
	numSenders                    = 8
)

// unavailableRetryPause is how long a sender waits after a 503 before it sends again.
const unavailableRetryPause = 20 * time.Millisecond

// targetWorkflow is a workflow that receives deliveries. layout says whether its queue uses the
// shared stream or a stream of its own.
type targetWorkflow struct {
	workflowID, queue string
	layout            stream.Layout
}

// targetIndex returns the index of the target to which a delivery is sent, from 0 to targets-1. The
// index depends only on the delivery ID, so that a delivery that is sent again goes to the same
// target.
func targetIndex(deliveryID string, targets int) int {
	return int(deliveryID[len(deliveryID)-1]) % targets
}

// apiRetryTimeout is how long a call to the operators' API is retried while the response is a 5xx.
const apiRetryTimeout = 2 * time.Minute

// retryServerErrors repeats call, which calls the operators' API, for up to apiRetryTimeout while
// the response is a 5xx. It returns the error of the last call. The first calls after a start can
// fail, because a program reports that it is ready before all processes can confirm changes.
func retryServerErrors(ctx context.Context, call func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, apiRetryTimeout)
	defer cancel()
	retry.Until(ctx, unavailableRetryPause, func() bool {
		err = call(ctx)
		problem, ok := errors.AsType[*api.Problem](err)
		return !ok || problem.Status < http.StatusInternalServerError
	})
	return err
}

// postDelivery sends one delivery once and returns the response, whatever its status.
func postDelivery(
	ctx context.Context, client *http.Client, url, deliveryID string, body []byte,
) (deliver.Answer, error) {
	return deliver.Post(ctx, client, url, map[string]string{"X-Webhook-Delivery-Id": deliveryID},
		bytes.NewReader(body))
}

// sendDeliveries posts deliveries from several concurrent senders, and returns when all of them
// have stopped. A sender stops when enough returns true, ctx is done, the connection breaks, or it
// gets an unexpected response.
func sendDeliveries(
	ctx context.Context, l *ledger, urls []string, seed uint64, enough func() bool,
) {
	var all sync.WaitGroup
	for sender := range numSenders {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(sender))) //nolint:gosec // not a secret
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil && !enough() {
				id := l.nextDeliveryID()
				a, err := postDelivery(ctx, client, urls[targetIndex(id, len(urls))], id,
					bytes.Repeat([]byte("x"), random.IntN(8000)))
				switch {
				case err != nil:
					l.markForResend(id)
					return // the power was cut
				case a.Status == http.StatusOK:
					l.recordAccepted(id, a.ExecutionID)
				case a.Status == http.StatusServiceUnavailable:
					l.markForResend(id)
					retry.Sleep(ctx, unavailableRetryPause)
				default:
					l.recordUnexpected("delivery %s: %d %s", id, a.Status, a.Code)
					return
				}
			}
		})
	}
	all.Wait()
}

// changeWorkflows creates one workflow after another in the given queue, activates it, and rotates
// its token. It returns when ctx is done, or when a request fails because the power was cut. The
// IDs of the workflows begin with prefix.
func changeWorkflows(ctx context.Context, l *ledger, client *apiclient.Client, prefix,
	queue string,
) {
	for n := 1; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", prefix, n)
		steps := []func() (confirmedState, error){
			func() (confirmedState, error) { return putWorkflow(ctx, client, id, queue) },
			func() (confirmedState, error) {
				w, err := client.Activate(ctx, id)
				return confirmedState{active: w.Active}, err
			},
			func() (confirmedState, error) {
				_, err := client.RotateToken(ctx, id, nodeID, 0)
				return confirmedState{active: true}, err
			},
		}
		for _, step := range steps {
			// Do not check the workflow until the change is confirmed: until then, both the old and
			// the new state are correct.
			l.forgetWorkflow(id)
			c, err := step()
			if err != nil {
				return
			}
			trigger, err := client.Trigger(ctx, id, nodeID)
			if err != nil {
				return
			}
			c.token = trigger.Token
			l.recordConfirmed(id, c)
		}
	}
}

// putWorkflow creates or replaces a workflow with one trigger node and a rate limit that is too
// high to matter.
func putWorkflow(
	ctx context.Context, client *apiclient.Client, id, queue string,
) (confirmedState, error) {
	w, err := client.PutWorkflow(ctx, id, api.PutWorkflow{
		AccountID: accountID, Name: id, Queue: queue,
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: nodeID}},
	})
	return confirmedState{active: w.Active}, err
}

// prepareTargets creates and activates the workflows for the load, and their account, if they do
// not exist yet. It returns the URLs of the webhooks, in the order of the targets.
func prepareTargets(
	ctx context.Context, client *apiclient.Client, targets []targetWorkflow,
) (urls []string, err error) {
	if _, err = client.PutAccount(ctx, accountID, api.PutAccount{
		Name: "Power cuts",
		Plan: "ultra",
	}); err != nil {
		return nil, err
	}
	for _, t := range targets {
		url, err := prepareTarget(ctx, client, t)
		if err != nil {
			return nil, fmt.Errorf("workflow %s: %w", t.workflowID, err)
		}
		urls = append(urls, url)
	}
	return urls, nil
}

func prepareTarget(
	ctx context.Context, client *apiclient.Client, t targetWorkflow,
) (url string, err error) {
	if _, err = putWorkflow(ctx, client, t.workflowID, t.queue); err != nil {
		return "", err
	}
	if _, err = client.Activate(ctx, t.workflowID); err != nil {
		return "", err
	}
	trigger, err := client.Trigger(ctx, t.workflowID, nodeID)
	if err == nil && trigger.Token == "" {
		// The token is missing. Tokens are stored in another bucket than workflows, so with the
		// default sync interval, a power cut may lose the token but keep the workflow.
		trigger, err = client.RotateToken(ctx, t.workflowID, nodeID, 0)
	}
	return trigger.URL, err
}

// createOwnStreams creates a stream for each queue that must have its own stream according to the
// layout of its target.
func createOwnStreams(
	ctx context.Context,
	client *apiclient.Client,
	targets []targetWorkflow,
) error {
	for _, t := range targets {
		if !t.layout.Own {
			continue
		}
		_, err := client.SetQueueStream(ctx, t.queue, api.PutQueueStream{})
		if err != nil {
			return fmt.Errorf("give the queue %s a stream: %w", t.queue, err)
		}
	}
	return nil
}

// workflowsWithLostChanges returns the IDs of the workflows in the ledger that are missing, or
// whose state differs from the confirmed state.
func workflowsWithLostChanges(
	ctx context.Context, l *ledger, client *apiclient.Client,
) (lost []string, err error) {
	for id, want := range l.workflows {
		w, err := client.Workflow(ctx, id)
		if api.IsCode(err, api.CodeNotFound) {
			lost = append(lost, id)
			continue
		}
		if err != nil {
			return nil, err
		}
		trigger, err := client.Trigger(ctx, id, nodeID)
		if err != nil {
			return nil, err
		}
		if w.Active != want.active || trigger.Token != want.token {
			lost = append(lost, id)
		}
	}
	return lost, nil
}

// noKeepAliveClient uses a new connection for each request. The ingress may have been killed since
// the previous request, which would have broken the connection.
var noKeepAliveClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
