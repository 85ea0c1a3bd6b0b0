package console

import (
	"crypto/rand"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/execution"
)

// The forms of an execution cancel it or run it again. An execution's page has one form element for
// all of them, and so has a list of executions. Each button has the address to which it posts that
// form. The form has an idempotency key in a hidden field, so that the same form starts only one
// execution, however often it is posted. A page that stays open after the execution was started
// gets a new key.

// idempotencyKeyField is the hidden field with the idempotency key.
const idempotencyKeyField = "key"

// newIdempotencyKey returns an idempotency key for a form.
func newIdempotencyKey() string { return rand.Text() }

// executionPath returns the path of an execution's page.
func executionPath(id string) string { return "/executions/" + url.PathEscape(id) }

// executionForm returns a form of an execution. If the form is refused, the execution's page shows
// why, even if the form was posted from a list.
func (c *Console) executionForm(
	operation string, save func(r *http.Request, p *postedForm, id string) (string, error),
) *form {
	return &form{
		name:      "again",
		of:        []string{"id"},
		operation: operation,
		page:      func(r *http.Request) string { return executionPath(r.PathValue("id")) },
		show:      c.showExecution,
		save: func(r *http.Request, p *postedForm) (string, error) {
			return save(r, p, r.PathValue("id"))
		},
	}
}

// idempotencyKey returns the form's idempotency key. After success, the form gets a new key.
func (p *postedForm) idempotencyKey() (string, error) {
	if p.values[idempotencyKeyField] == "" {
		return "", errIncomplete()
	}
	if p.fields == nil {
		p.fields = map[string]string{}
	}
	p.fields[idempotencyKeyField] = newIdempotencyKey()
	return p.values[idempotencyKeyField], nil
}

// setStarted records the execution that the form has started, and returns the message about it.
func (p *postedForm) setStarted(started api.Started, done string) string {
	p.started, p.next = started.ExecutionID, executionPath(started.ExecutionID)
	return done
}

const (
	startedOnRequestMessage = "Started on the same request."
	startedOnSampleMessage  = "Started on the sample payload."
)

func (c *Console) cancelForm() *form {
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

func (c *Console) requeueForm() *form {
	return c.executionForm("RequeueExecution", func(
		r *http.Request, p *postedForm, id string,
	) (string, error) {
		started, err := c.Operate.RequeueExecution(r.Context(), signin.Caller(r.Context()), id)
		return p.setStarted(started, startedOnRequestMessage), err
	})
}

// runAgainDialog is the template data of the dialog in which the operator chooses what an execution
// runs again on.
type runAgainDialog struct{ ID string }

// replayForm returns the form that runs an execution again on its request. If the trigger node has
// a sample payload, the operator chooses first.
func (c *Console) replayForm() *form {
	return c.executionForm("ReplayExecution", func(
		r *http.Request, p *postedForm, id string,
	) (string, error) {
		ctx, caller := r.Context(), signin.Caller(r.Context())
		key, err := p.idempotencyKey()
		if err != nil {
			return "", err
		}
		e, err := c.Operate.Execution(ctx, caller, id)
		if err != nil {
			return "", err
		}
		node, err := c.Operate.Trigger(ctx, caller, e.WorkflowID, e.NodeID)
		if err == nil && hasSample(node) {
			err = p.requireConfirmation(&runAgainDialog{id})
		}
		if err != nil {
			return "", err
		}
		started, err := c.Operate.ReplayExecution(ctx, caller, id, key)
		return p.setStarted(started, startedOnRequestMessage), err
	})
}

// hasSample reports whether a trigger node has a sample payload.
func hasSample(node api.Trigger) bool {
	return len(node.SamplePayload) > 0 && string(node.SamplePayload) != "null"
}

// rerunForm returns the form that runs an execution again on the sample payload.
func (c *Console) rerunForm() *form {
	return c.executionForm("RerunExecution", func(
		r *http.Request, p *postedForm, id string,
	) (string, error) {
		key, err := p.idempotencyKey()
		if err != nil {
			return "", err
		}
		started, err := c.Operate.RerunExecution(r.Context(), signin.Caller(r.Context()), id, key)
		return p.setStarted(started, startedOnSampleMessage), err
	})
}
