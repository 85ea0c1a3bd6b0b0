package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hookstart/hookstart/shared/runner"
)

// result is the output of an execution.
type result struct {
	Event      string `json:"event"`
	Action     string `json:"action,omitempty"`
	Repository string `json:"repository,omitempty"`
	Ref        string `json:"ref,omitempty"`
}

// newHandler returns a handler that accepts only requests that are signed with the secret. No other
// error would be corrected by another attempt, so the execution fails at once, and is a dead letter
// that an operator sees.
func newHandler(secret []byte) runner.Handler {
	return func(_ context.Context, e runner.Execution) (any, error) {
		// The signature is checked on the bytes that GitHub sent: JSON that was decoded and encoded
		// again has another signature.
		if err := verify(secret, e.Payload.Body, e.Headers.Get("X-Hub-Signature-256")); err != nil {
			return nil, runner.Permanent(err)
		}
		var event struct {
			Action     string `json:"action"`
			Ref        string `json:"ref"`
			Repository struct {
				FullName string `json:"full_name"`
			} `json:"repository"`
		}
		if err := json.Unmarshal(e.Input, &event); err != nil {
			return nil,
				runner.Permanent(fmt.Errorf("not an event of GitHub (is the webhook's content "+
					"type application/json?): %w", err))
		}
		// Here the work would be done: a build, a deployment, a notification. It may be done twice,
		// so it should use e.ID as the idempotency key.
		return result{
			Event:      e.Headers.Get("X-GitHub-Event"),
			Action:     event.Action,
			Repository: event.Repository.FullName,
			Ref:        event.Ref,
		}, nil
	}
}
