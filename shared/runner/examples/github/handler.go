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

// newHandler returns a handler that accepts only requests signed with the secret. All its errors
// are permanent, because a retry would not correct them: the execution fails immediately and
// becomes a dead letter, which an operator sees.
func newHandler(secret []byte) runner.Handler {
	return func(_ context.Context, e runner.Execution) (any, error) {
		// Check the signature against the bytes that GitHub sent: JSON that has been decoded and
		// encoded again would have a different signature.
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
		// Do the work here: a build, a deployment, a notification. It may be done twice, so use
		// e.ID as the idempotency key.
		return result{
			Event:      e.Headers.Get("X-GitHub-Event"),
			Action:     event.Action,
			Repository: event.Repository.FullName,
			Ref:        event.Ref,
		}, nil
	}
}
