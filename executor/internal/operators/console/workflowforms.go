package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// workflowPageURL returns the path and query of the workflow page that showed the form. The query
// names the trigger node that the page showed.
func workflowPageURL(r *http.Request) string {
	path := "/workflows/" + url.PathEscape(r.PathValue("id"))
	if node := r.URL.Query().Get("node"); node != "" {
		path += "?" + url.Values{"node": {node}}.Encode()
	}
	return path
}

// workflowSettingsForm returns the form of a workflow's name, queue and rate limit.
func (c *Console) workflowSettingsForm() *form {
	return &form{
		name:      "settings",
		operation: "PatchWorkflow",
		settings: []setting{
			{"name", []string{"name"}, quoteValues},
			{"queue", []string{"queue"}, quoteValues},
			{"rate limit", []string{"requests", "seconds"}, postedRateLimitText},
		},
		fieldByAPIName: map[string]string{"rateLimit": "requests"},
		apiTermReplacer: strings.NewReplacer("rateLimit.requests", "the requests",
			"rateLimit.windowSeconds", "the seconds"),
		pageURL:  workflowPageURL,
		showPage: c.showWorkflow,
		save:     c.saveWorkflowSettings,
	}
}

// workflowSettingsFields returns the field values of a workflow's settings form. If rate is nil,
// the fields of the rate limit are empty, and the plan's rate limit applies.
func workflowSettingsFields(id, name, queue string, rate *api.RateLimit) map[string]string {
	fields := map[string]string{"name": nameOrID(name, id), "queue": queue}
	if rate != nil {
		fields["requests"] = strconv.FormatInt(rate.Requests, 10)
		fields["seconds"] = strconv.FormatInt(rate.WindowSeconds, 10)
	}
	return fields
}

func postedRateLimitText(values []string) string {
	if values[0] == "" {
		return "the plan’s"
	}
	return "“" + values[0] + " in " + values[1] + " seconds”"
}

func (c *Console) saveWorkflowSettings(r *http.Request, p *postedForm) (string, error) {
	name := strings.TrimSpace(p.values["name"])
	if p.isEdited("name") && name == "" {
		return "", invalidField("name", "is required")
	}
	rate, err := p.parseRateLimit()
	if err != nil {
		return "", err
	}
	id := r.PathValue("id")
	_, err = c.Operate.PatchWorkflow(r.Context(), signin.Caller(r.Context()), id,
		func(put *api.PutWorkflow) error {
			if err := p.checkEditConflict(workflowSettingsFields(id, put.Name, put.Queue,
				put.RateLimit)); err != nil {
				return err
			}
			if p.isEdited("name") {
				put.Name = name
			}
			if p.isEdited("queue") {
				put.Queue = strings.TrimSpace(p.values["queue"])
			}
			if p.isEdited("requests", "seconds") {
				put.RateLimit = rate
			}
			return nil
		})
	return "The settings are saved.", err
}

// parseRateLimit returns the rate limit in the form. It returns nil if both fields are empty, which
// means that the plan's rate limit applies. It also returns nil if the operator has not edited
// them; the caller then leaves the workflow's rate limit unchanged.
func (p *postedForm) parseRateLimit() (*api.RateLimit, error) {
	requests, seconds := p.values["requests"], p.values["seconds"]
	if requests == "" && seconds == "" || !p.isEdited("requests", "seconds") {
		return nil, nil //nolint:nilnil // nil is the plan's limit
	}
	if requests == "" || seconds == "" {
		empty := "requests"
		if requests != "" {
			empty = "seconds"
		}
		return nil, invalidField(empty,
			"A rate limit needs both numbers. Empty both for the plan's.")
	}
	var rate api.RateLimit
	var err error
	if rate.Requests, err = strconv.ParseInt(requests, 10, 64); err != nil {
		return nil, invalidField("requests", "must be a whole number")
	}
	if rate.WindowSeconds, err = strconv.ParseInt(seconds, 10, 64); err != nil {
		return nil, invalidField("seconds", "must be a whole number")
	}
	return &rate, nil
}

func invalidField(field, problem string) error {
	return &operate.Error{
		Code: api.CodeInvalid, Fields: []api.FieldError{{Field: field, Problem: problem}},
	}
}

// workflowActivationForm returns the form that activates or deactivates a workflow, depending on
// the value of the button that was pressed.
func (c *Console) workflowActivationForm() *form {
	return &form{
		name:      "switch",
		operation: "Activate",
		pageURL:   workflowPageURL,
		showPage:  c.showWorkflow,
		save:      c.saveWorkflowActivation,
	}
}

func (c *Console) saveWorkflowActivation(r *http.Request, p *postedForm) (string, error) {
	var change func(context.Context, operate.Caller, string) (api.Workflow, error)
	switch p.values["active"] {
	case "true":
		change = c.Operate.Activate
	case "false":
		change = c.Operate.Deactivate
	default:
		return "", incompleteFormError()
	}
	w, err := change(r.Context(), signin.Caller(r.Context()), r.PathValue("id"))
	if refused, ok := errors.AsType[*operate.Error](err); ok && isPlanErrorCode(refused.Code) {
		// Keep only the first sentence, which is the reason. The page itself says, with links, what
		// to do about the plan.
		why, _, _ := strings.Cut(refused.Text(), ". ")
		return "", &operate.Error{Code: refused.Code, Detail: strings.TrimSuffix(why, ".") + "."}
	}
	if err != nil {
		return "", err
	}
	name := "“" + nameOrID(w.Name, w.ID) + "”"
	if w.Active {
		return name + " is active.", nil
	}
	return name + " is inactive.", nil
}

// isPlanErrorCode reports whether a code means that the account's plan does not allow a workflow to
// be active.
func isPlanErrorCode(code string) bool {
	return code == api.CodePlanLimitExceeded || code == api.CodeWebhooksNotInPlan
}

// RefusedByPlan reports whether the form has failed because the account's plan does not allow the
// change.
func (v formView) RefusedByPlan() bool { return isPlanErrorCode(v.Code) }

// deleteWorkflowForm returns the form that deletes a workflow.
func (c *Console) deleteWorkflowForm() *form {
	return &form{
		name:      "delete",
		operation: "DeleteWorkflow",
		pageURL:   workflowPageURL,
		showPage:  c.showWorkflow,
		save: func(r *http.Request, p *postedForm) (string, error) {
			ctx, caller := r.Context(), signin.Caller(r.Context())
			w, err := c.Operate.Workflow(ctx, caller, r.PathValue("id"))
			if err == nil {
				err = p.requireConfirmation(&w)
			}
			if err == nil {
				err = c.Operate.DeleteWorkflow(ctx, caller, w.ID)
			}
			p.redirectURL = "/workflows"
			return "“" + nameOrID(w.Name, w.ID) + "” is deleted.", err
		},
	}
}

// newWorkflowForm returns the form that creates a workflow.
func (c *Console) newWorkflowForm() *form {
	return &form{
		name:      "new-workflow",
		operation: "PutWorkflow",
		fieldByAPIName: map[string]string{
			"accountId": "account", "nodeId": "node",
		},
		pageURL:  func(*http.Request) string { return "/new-workflow" },
		showPage: c.showNewWorkflow(),
		save:     c.createWorkflow,
	}
}

func (c *Console) createWorkflow(r *http.Request, p *postedForm) (string, error) {
	id, name := p.values["id"], strings.TrimSpace(p.values["name"])
	if name == "" {
		return "", invalidField("name", "is required")
	}
	put := api.PutWorkflow{
		AccountID: p.values["account"], Name: name, Queue: p.values["queue"],
		Triggers: []api.PutTrigger{{NodeID: p.values["node"], Name: "Webhook"}},
	}
	_, err := c.Operate.PutWorkflow(r.Context(), signin.Caller(r.Context()), id, put, true)
	if api.IsCode(err, api.CodeChangedSince) {
		err = invalidField("id", "There is a workflow “"+id+"” already. Choose another ID.")
	}
	p.redirectURL = "/workflows/" + url.PathEscape(id)
	return "“" + name + "” is created. It is inactive: try it with Send test, or activate it.", err
}
