package console

import (
	"crypto/rand"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/execution"
)

// The forms of an execution cancel it or run it again. They share one form element on an
// execution's page, and one on a list of executions. Each button posts this element to a different
// address.
//
// A hidden field of the form element contains an idempotency key, so a form that is posted several
// times starts only one execution. If the page stays open after the execution was started, the form
// gets a new key.

// idempotencyKeyField is the name of the hidden field that contains the idempotency key.
const idempotencyKeyField = "key"

// newIdempotencyKey returns an idempotency key for a form.
func newIdempotencyKey() string { return rand.Text() }

// executionPath returns the path of an execution's page.
func executionPath(id string) string { return "/executions/" + url.PathEscape(id) }

// executionForm returns one of the forms of an execution. save changes the execution with the given
// ID, and returns the message to show. If the change is refused, the execution's page shows the
// reason, even if the form was posted from a list.
func (c *Console) executionForm(
	operation string, save func(r *http.Request, p *postedForm, id string) (string, error),
) *form {
	return &form{
		name:         "again",
		idPathParams: []string{"id"},
		operation:    operation,
		pageURL:      func(r *http.Request) string { return executionPath(r.PathValue("id")) },
		showPage:     c.showExecution,
		save: func(r *http.Request, p *postedForm) (string, error) {
			return save(r, p, r.PathValue("id"))
		},
	}
}

// takeIdempotencyKey returns the idempotency key that was posted with the form. It also puts a new
// key into newValues, because a page that stays open after success needs another key to start
// another execution.
func (p *postedForm) takeIdempotencyKey() (string, error) {
	if p.values[idempotencyKeyField] == "" {
		return "", incompleteFormError()
	}
	if p.newValues == nil {
		p.newValues = map[string]string{}
	}
	p.newValues[idempotencyKeyField] = newIdempotencyKey()
	return p.values[idempotencyKeyField], nil
}

// recordStartedExecution records which execution the form has started, so that the browser
// continues on the page of that execution. done is the message to show there; for convenience,
// recordStartedExecution returns it unchanged.
func (p *postedForm) recordStartedExecution(started api.Started, done string) string {
	p.startedExecutionID, p.redirectURL = started.ExecutionID, executionPath(started.ExecutionID)
	return done
}

const (
	startedOnRequestMessage = "Started on the same request."
	startedOnSampleMessage  = "Started on the sample payload."
)

func (c *Console) cancelExecutionForm() *form {
	return c.executionForm("CancelExecution", func(
		r *http.Request, _ *postedForm, id string,
	) (string, error) {
		e, err := c.Operate.CancelExecution(r.Context(), signin.Caller(r.Context()), id)
		if execution.Status(e.Status) == execution.Canceled {
			return "It is canceled.", err
		}
		return "It runs, and is asked to end.", err
	})
}

func (c *Console) requeueExecutionForm() *form {
	return c.executionForm("RequeueExecution", func(
		r *http.Request, p *postedForm, id string,
	) (string, error) {
		started, err := c.Operate.RequeueExecution(r.Context(), signin.Caller(r.Context()), id)
		return p.recordStartedExecution(started, startedOnRequestMessage), err
	})
}

// runAgainDialog is the template data of the dialog that asks whether to run an execution again
// with its own request or with the sample payload.
type runAgainDialog struct{ ID string }

// replayExecutionForm returns the form that runs an execution again with its own request. If the
// trigger node has a sample payload, the page first asks whether to use the request or the sample
// payload.
func (c *Console) replayExecutionForm() *form {
	return c.executionForm("ReplayExecution", func(
		r *http.Request, p *postedForm, id string,
	) (string, error) {
		ctx, caller := r.Context(), signin.Caller(r.Context())
		key, err := p.takeIdempotencyKey()
		if err != nil {
			return "", err
		}
		e, err := c.Operate.Execution(ctx, caller, id)
		if err != nil {
			return "", err
		}
		node, err := c.Operate.TriggerNode(ctx, caller, e.WorkflowID, e.NodeID)
		if err == nil && hasSample(node) {
			err = p.requireConfirmation(&runAgainDialog{id})
		}
		if err != nil {
			return "", err
		}
		started, err := c.Operate.ReplayExecution(ctx, caller, id, key)
		return p.recordStartedExecution(started, startedOnRequestMessage), err
	})
}

// hasSample reports whether a trigger node has a sample payload.
func hasSample(node api.Trigger) bool {
	return len(node.SamplePayload) > 0 && string(node.SamplePayload) != "null"
}

// rerunExecutionForm returns the form that runs an execution again with the node's sample payload.
func (c *Console) rerunExecutionForm() *form {
	return c.executionForm("RerunExecution", func(
		r *http.Request, p *postedForm, id string,
	) (string, error) {
		key, err := p.takeIdempotencyKey()
		if err != nil {
			return "", err
		}
		started, err := c.Operate.RerunExecution(r.Context(), signin.Caller(r.Context()), id, key)
		return p.recordStartedExecution(started, startedOnSampleMessage), err
	})
}
