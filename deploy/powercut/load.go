//go:build linux

package powercut

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

// The workflow that receives the deliveries. It uses the demo workflow's queue, so that the runner
// inside hookstart-local runs its executions.
const (
	accountID, workflowID, nodeID = "powercut", "load", "node"
	queue                         = "demo"
	senders                       = 8
)

// answer is the ingress's response to one delivery.
type answer struct {
	status       int
	ExecutionID  string `json:"executionId"`
	Deduplicated bool   `json:"deduplicated"`
	Code         string `json:"code"`
}

// post sends one delivery. It returns an error only if the connection fails or the response cannot
// be decoded, regardless of the status.
func post(
	ctx context.Context, client *http.Client, url, deliveryID string, body []byte,
) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header.Set("X-Webhook-Delivery-Id", deliveryID)
	response, err := client.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	a.status = response.StatusCode
	return a, json.NewDecoder(response.Body).Decode(&a)
}

// send posts deliveries from several concurrent senders. A sender stops when enough returns true,
// ctx ends, the connection breaks, or it gets an unexpected response. send returns when all senders
// have stopped.
func send(ctx context.Context, l *ledger, url string, seed uint64, enough func() bool) {
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(sender))) //nolint:gosec // not a secret
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil && !enough() {
				id := l.nextDelivery()
				a, err := post(ctx, client, url, id, bytes.Repeat([]byte("x"), random.IntN(8000)))
				switch {
				case err != nil:
					l.markUnanswered(id)
					return // the power was cut
				case a.status == http.StatusOK:
					l.accept(id, a.ExecutionID)
				case a.status == http.StatusServiceUnavailable:
					l.markUnanswered(id)
				default:
					l.recordUnexpected("delivery %s: %d %s", id, a.status, a.Code)
					return
				}
			}
		})
	}
	all.Wait()
}

// operate creates workflows, activates them and rotates their tokens until ctx ends or a request
// fails because the power was cut.
func operate(ctx context.Context, l *ledger, client *apiclient.Client, prefix string) {
	for n := 1; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", prefix, n)
		steps := []func() (confirmed, error){
			func() (confirmed, error) { return putWorkflow(ctx, client, id) },
			func() (confirmed, error) {
				w, err := client.Activate(ctx, id)
				return confirmed{active: w.Active}, err
			},
			func() (confirmed, error) {
				_, err := client.RotateToken(ctx, id, nodeID, 0)
				return confirmed{active: true}, err
			},
		}
		for _, step := range steps {
			l.forget(id) // until the change is confirmed, either state is correct
			c, err := step()
			if err != nil {
				return
			}
			trigger, err := client.Trigger(ctx, id, nodeID)
			if err != nil {
				return
			}
			c.token = trigger.Token
			l.confirm(id, c)
		}
	}
}

// putWorkflow creates or replaces a workflow with one trigger node and a rate limit that is too
// high to matter.
func putWorkflow(ctx context.Context, client *apiclient.Client, id string) (confirmed, error) {
	w, err := client.PutWorkflow(ctx, id, api.PutWorkflow{
		AccountID: accountID, Name: id, Queue: queue,
		RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers:  []api.PutTrigger{{NodeID: nodeID}},
	})
	return confirmed{active: w.Active}, err
}

// prepare creates and activates the workflow for the load, and its account, if they do not exist
// yet. It returns the URL of the webhook.
func prepare(ctx context.Context, client *apiclient.Client) (url string, err error) {
	if _, err = client.PutAccount(ctx, accountID, api.PutAccount{
		Name: "Power cuts",
		Plan: "ultra",
	}); err != nil {
		return "", err
	}
	if _, err = putWorkflow(ctx, client, workflowID); err != nil {
		return "", err
	}
	if _, err = client.Activate(ctx, workflowID); err != nil {
		return "", err
	}
	trigger, err := client.Trigger(ctx, workflowID, nodeID)
	if err == nil && trigger.Token == "" {
		// Tokens are in a separate bucket. With the default sync interval, a power cut may lose the
		// token but keep the workflow.
		trigger, err = client.RotateToken(ctx, workflowID, nodeID, 0)
	}
	return trigger.URL, err
}

// lostWorkflows returns the IDs of the workflows that are missing or whose state differs from the
// confirmed one.
func lostWorkflows(
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

// repeating uses a new connection for each request, because hookstart-local is killed between
// requests.
var repeating = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
