package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

func (c *Console) accountsHandler() http.HandlerFunc {
	return pageHandler(c, "accounts", page{Title: "Accounts", Section: "accounts"}, c.accountList)
}

// changePlanForm returns the form that changes an account's plan.
func (c *Console) changePlanForm() *form {
	return &form{
		name:         "plan",
		idPathParams: []string{"id"},
		operation:    "PatchAccount",
		settings:     []setting{{"plan", []string{"plan"}, quoteValues}},
		pageURL:      listPageURL("/accounts"),
		showPage:     c.accountsHandler(),
		save:         c.savePlan,
	}
}

// savePlan changes an account's plan. A change that would stop webhooks or lower their rate limit
// requires the operator's confirmation.
func (c *Console) savePlan(r *http.Request, p *postedForm) (string, error) {
	ctx, caller := r.Context(), signin.Caller(r.Context())
	id, plan := r.PathValue("id"), p.values["plan"]
	if p.isEdited("plan") {
		change, err := c.Operate.PreviewPlanChange(ctx, caller, id, plan)
		if isNotFound(err) && c.accountExists(r) {
			err = &operate.Error{
				Code:   api.CodeInvalid,
				Detail: "There is no plan “" + plan + "” any more. Choose another one.",
			}
		}
		if err == nil && (change.Stop.Total > 0 || change.Slower > 0) {
			err = p.requireConfirmation(&planChange{
				change, accountViewOf(change.From), rateLimitText(change.To.Plan.RateLimit),
			})
		}
		if err != nil {
			return "", err
		}
	}
	a, err := c.Operate.PatchAccount(ctx, caller, id, func(put *api.PutAccount) error {
		if err := p.checkEditConflict(map[string]string{"plan": put.Plan}); err != nil {
			return err
		}
		if p.isEdited("plan") {
			put.Plan = plan
		}
		return nil
	})
	return "“" + nameOrID(a.Name, id) + "” is on the plan " + a.Plan + " now.", err
}

// accountToDelete is the template data of the dialog that asks whether to delete an account.
type accountToDelete struct{ ID, Name string }

// deleteAccountForm returns the form that deletes an account.
func (c *Console) deleteAccountForm() *form {
	return &form{
		name:         "delete",
		idPathParams: []string{"id"},
		operation:    "DeleteAccount",
		pageURL:      listPageURL("/accounts"),
		showPage:     c.accountsHandler(),
		save: func(r *http.Request, p *postedForm) (string, error) {
			ctx, caller := r.Context(), signin.Caller(r.Context())
			a, err := c.Operate.Account(ctx, caller, r.PathValue("id"))
			name := nameOrID(a.Name, a.ID)
			if err == nil {
				err = p.requireConfirmation(&accountToDelete{a.ID, name})
			}
			if err == nil {
				err = c.Operate.DeleteAccount(ctx, caller, a.ID)
			}
			return "“" + name + "” is deleted.", err
		},
	}
}

// newAccountForm returns the form that creates an account.
func (c *Console) newAccountForm() *form {
	return &form{
		name:      "new-account",
		operation: "PutAccount",
		pageURL:   listPageURL("/accounts"),
		showPage:  c.accountsHandler(),
		save: func(r *http.Request, p *postedForm) (string, error) {
			id, name := p.values["id"], strings.TrimSpace(p.values["name"])
			if name == "" {
				return "", invalidField("name", "is required")
			}
			_, err := c.Operate.PutAccount(r.Context(), signin.Caller(r.Context()), id,
				api.PutAccount{Name: name, Plan: p.values["plan"]}, true)
			if api.IsCode(err, api.CodeChangedSince) {
				err = invalidField("id", "There is an account “"+id+"” already. Choose another ID.")
			}
			return "“" + name + "” is created.", err
		},
	}
}

// accountEventsForm returns the form that changes an account's operator event settings, such as the
// workflow that the events start.
func (c *Console) accountEventsForm() *form {
	return &form{
		name:          "events",
		idPathParams:  []string{"id"},
		operation:     "PutEventSubscription",
		savesUnedited: true,
		settings: []setting{
			{"events", []string{"workflow", "silent", "kinds"}, describeEventsSetting},
		},
		fieldByAPIName: map[string]string{"workflowId": "workflow", "silentAfterSeconds": "silent"},
		pageURL:        listPageURL("/accounts"),
		showPage:       c.accountsHandler(),
		save:           c.saveAccountEvents,
	}
}

// accountEventsFields returns the field values of the form for an account's operator events. put
// holds the current settings; nil means that the account's events start no workflow. The form has
// one checkbox for each kind of event. In addition, the field "kinds" holds all selected kinds in
// one text, because a conflict is detected by comparing the whole selection.
func accountEventsFields(put *api.PutEvents) map[string]string {
	if put == nil {
		put = &api.PutEvents{}
	}
	return map[string]string{
		"workflow": put.WorkflowID, "silent": optionalNumberText(&put.SilentAfterSeconds),
		"kinds": strings.Join(slices.Sorted(slices.Values(put.Kinds)), " "),
	}
}

func describeEventsSetting(values []string) string {
	workflow, silent, kinds := values[0], values[1], values[2]
	if workflow == "" {
		return "none"
	}
	text := "“" + workflow + ", " + cmp.Or(kinds, "all kinds")
	if silent != "" {
		text += ", silent after " + silent + " seconds"
	}
	return text + "”"
}

func (c *Console) saveAccountEvents(r *http.Request, p *postedForm) (string, error) {
	put := api.PutEvents{
		WorkflowID: strings.TrimSpace(p.values["workflow"]), Kinds: r.PostForm["kind"],
	}
	remove := p.values["start"] == "none"
	if remove {
		put = api.PutEvents{}
	} else if text := p.values["silent"]; text != "" {
		var err error
		if put.SilentAfterSeconds, err = strconv.ParseInt(text, 10, 64); err != nil {
			return "", invalidField("silent", "must be a whole number")
		}
	}
	maps.Copy(p.values, accountEventsFields(&put))
	caller, id := signin.Caller(r.Context()), r.PathValue("id")
	ctx := operate.WithEventSubscriptionCondition(r.Context(), func(now *api.PutEvents) error {
		return p.checkEditConflict(accountEventsFields(now))
	})
	if remove {
		err := c.Operate.RemoveEventSubscription(ctx, caller, id)
		if isNotFound(err) && c.accountExists(r) {
			err = nil // somebody else has already removed the settings
		}
		return "The account's events start no workflow.", err
	}
	_, err := c.Operate.PutEventSubscription(ctx, caller, id, put)
	return "The account's events start “" + put.WorkflowID + "”.", err
}

// accountExists reports whether the account in the request's path still exists.
func (c *Console) accountExists(r *http.Request) bool {
	_, err := c.Operate.Account(r.Context(), signin.Caller(r.Context()), r.PathValue("id"))
	return err == nil
}

// accountRow is the template data of one row of the accounts page: an account with its forms.
type accountRow struct {
	accountView
	PlanForm, DeleteForm, EventsForm formView
}

// accountRow looks up an account's limits and returns the account's row.
func (c *Console) accountRow(ctx context.Context, account api.Account) (accountRow, error) {
	view, err := c.accountView(ctx, account.ID)
	planFields := map[string]string{"plan": view.Plan}
	eventsFields := accountEventsFields(view.Events)
	return accountRow{
		accountView: view,
		PlanForm:    newFormView(ctx, formName("plan", view.ID), planFields),
		DeleteForm:  newFormView(ctx, formName("delete", view.ID), nil),
		EventsForm:  newFormView(ctx, formName("events", view.ID), eventsFields),
	}, err
}
