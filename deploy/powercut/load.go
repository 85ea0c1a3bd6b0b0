//go:build linux

package powercut

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
)

// The workflow that gets the deliveries. The runner of the demo workflow takes its executions.
const (
	accountID, workflowID, nodeID = "powercut", "load", "node"
	queue                         = "demo"
	senders                       = 8
)

// answer is what a sender gets.
type answer struct {
	status       int
	ExecutionID  string `json:"executionId"`
	Deduplicated bool   `json:"deduplicated"`
	Code         string `json:"code"`
}

// post sends one delivery. Its errors are those of the connection.
func post(ctx context.Context, client *http.Client, url, deliveryID string, body []byte) (a answer, err error) {
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

// send posts deliveries until there are enough, the context ends or the connection breaks.
func send(ctx context.Context, b *book, url string, seed uint64, enough func() bool) {
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			luck := rand.New(rand.NewPCG(seed, uint64(sender))) //nolint:gosec // not a secret
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil && !enough() {
				id := b.delivery()
				a, err := post(ctx, client, url, id, bytes.Repeat([]byte("x"), luck.IntN(8000)))
				switch {
				case err != nil:
					b.noAnswer(id)
					return // the power is gone
				case a.status == http.StatusOK:
					b.accept(id, a.ExecutionID)
				case a.status == http.StatusServiceUnavailable:
					b.noAnswer(id)
				default:
					b.wonder("delivery %s: %d %s", id, a.status, a.Code)
					return
				}
			}
		})
	}
	all.Wait()
}

// operate makes workflows, activates them and rotates their tokens until the context ends or the power is gone.
func operate(ctx context.Context, b *book, client *apiclient.Client, prefix string) {
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
			b.forget(id) // until it is confirmed, it may be as before or as after
			c, err := step()
			if err != nil {
				return
			}
			trigger, err := client.Trigger(ctx, id, nodeID)
			if err != nil {
				return
			}
			c.token = trigger.Token
			b.confirm(id, c)
		}
	}
}

func putWorkflow(ctx context.Context, client *apiclient.Client, id string) (confirmed, error) {
	w, err := client.PutWorkflow(ctx, id, api.PutWorkflow{
		AccountID: accountID, Name: id, Queue: queue, RateLimit: &api.RateLimit{Requests: 1_000_000, WindowSeconds: 1},
		Triggers: []api.PutTrigger{{NodeID: nodeID}},
	})
	return confirmed{active: w.Active}, err
}

// prepare makes what the load needs, where it is not there, and returns the URL to send to.
func prepare(ctx context.Context, client *apiclient.Client) (url string, err error) {
	if _, err = client.PutAccount(ctx, accountID, api.PutAccount{Name: "Power cuts", Plan: "ultra"}); err != nil {
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
		// Tokens are in a bucket of their own: with the default sync it may have lost what the workflow's has not.
		trigger, err = client.RotateToken(ctx, workflowID, nodeID, 0)
	}
	return trigger.URL, err
}

// lostWorkflows are those that are not as the API has confirmed them.
func lostWorkflows(ctx context.Context, b *book, client *apiclient.Client) (lost []string, err error) {
	for id, want := range b.workflows {
		w, err := client.Workflow(ctx, id)
		if problem, is := errors.AsType[*api.Problem](err); is && problem.Code == api.CodeNotFound {
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

// repeating has a connection of its own for each request: hookstart-local ends in between.
var repeating = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
