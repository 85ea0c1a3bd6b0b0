package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

func (c *Console) showAccounts() http.HandlerFunc {
	return pageHandler(c, "accounts", page{Title: "Accounts", Section: "accounts"}, c.accountList)
}

// accountsFormPage returns the path and query of the page of the list of accounts that showed the
// form.
func accountsFormPage(r *http.Request) string {
	if after := r.URL.Query().Get("after"); after != "" {
		return "/accounts?" + url.Values{"after": {after}}.Encode()
	}
	return "/accounts"
}

// planForm returns the form of an account's plan.
func (c *Console) planForm() *form {
	return &form{
		name:     "plan",
		of:       []string{"id"},
		role:     operate.RoleAdmin,
		settings: []setting{{"plan", []string{"plan"}, quoted}},
		page:     accountsFormPage,
		show:     c.showAccounts(),
		save:     c.savePlan,
	}
}

// savePlan changes an account's plan. If that would stop webhooks or lower their rate limit, the
// operator has to confirm it.
func (c *Console) savePlan(r *http.Request, p *posted) (string, error) {
	ctx, caller := r.Context(), signin.Caller(r.Context())
	id, plan := r.PathValue("id"), p.values["plan"]
	if p.isEdited("plan") {
		change, err := c.Operate.PlanChange(ctx, caller, id, plan)
		if err == nil && (change.Stop.Total > 0 || change.Slower > 0) {
			err = p.confirm(&planChange{
				change, quotaOf(change.From), rateText(change.To.Plan.RateLimit),
			})
		}
		if err != nil {
			return "", err
		}
	}
	a, err := c.Operate.PatchAccount(ctx, caller, id, func(put *api.PutAccount) error {
		if err := p.checkUnchanged(map[string]string{"plan": put.Plan}); err != nil {
			return err
		}
		if p.isEdited("plan") {
			put.Plan = plan
		}
		return nil
	})
	return "“" + nameOr(a.Name, id) + "” is on the plan " + a.Plan + " now.", err
}

// accountToDelete is the template data of the dialog that asks whether to delete an account.
type accountToDelete struct{ ID, Name string }

// deleteAccountForm returns the form that deletes an account.
func (c *Console) deleteAccountForm() *form {
	return &form{
		name: "delete",
		of:   []string{"id"},
		role: operate.RoleAdmin,
		page: accountsFormPage,
		show: c.showAccounts(),
		save: func(r *http.Request, p *posted) (string, error) {
			ctx, caller := r.Context(), signin.Caller(r.Context())
			a, err := c.Operate.Account(ctx, caller, r.PathValue("id"))
			name := nameOr(a.Name, a.ID)
			if err == nil {
				err = p.confirm(&accountToDelete{a.ID, name})
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
		name: "new-account",
		role: operate.RoleAdmin,
		page: accountsFormPage,
		show: c.showAccounts(),
		save: func(r *http.Request, p *posted) (string, error) {
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

// eventsForm returns the form of the workflow that an account's operator events start.
func (c *Console) eventsForm() *form {
	return &form{
		name:   "events",
		of:     []string{"id"},
		role:   operate.RoleAdmin,
		fields: map[string]string{"workflowId": "workflow", "silentAfterSeconds": "silent"},
		page:   accountsFormPage,
		show:   c.showAccounts(),
		save:   c.saveEvents,
	}
}

// saveEvents replaces the events' settings as a whole, so it only replaces the version of the
// account that the page has shown.
func (c *Console) saveEvents(r *http.Request, p *posted) (string, error) {
	if p.values["revision"] == "" {
		return "", errIncomplete()
	}
	caller, id := signin.Caller(r.Context()), r.PathValue("id")
	ctx := operate.WithAccountIfMatch(r.Context(), p.values["revision"])
	put := api.PutEvents{
		WorkflowID: strings.TrimSpace(p.values["workflow"]), Kinds: r.PostForm["kind"],
	}
	var err error
	done := "The account's events start “" + put.WorkflowID + "”."
	if p.values["start"] == "none" {
		done = "The account's events start no workflow."
		err = c.Operate.RemoveEvents(ctx, caller, id)
	} else {
		if text := p.values["silent"]; text != "" {
			if put.SilentAfterSeconds, err = strconv.ParseInt(text, 10, 64); err != nil {
				return "", invalidField("silent", "must be a whole number")
			}
		}
		_, err = c.Operate.PutEvents(ctx, caller, id, put)
	}
	if api.IsCode(err, api.CodeChangedSince) {
		err = &operate.Error{
			Code: api.CodeChangedSince,
			Detail: "Not saved: somebody else has changed the account since you opened the " +
				"page, which shows now what they have set. Save again to overwrite theirs.",
		}
	}
	return done, err
}

// accountRow is an account with its forms.
type accountRow struct {
	quota
	PlanForm, DeleteForm, EventsForm formView
}

// accountRow returns the row of an account.
func (c *Console) accountRow(ctx context.Context, account api.Account) (accountRow, error) {
	q, err := c.quota(ctx, account.ID)
	events := map[string]string{"revision": operate.AccountETag(q.Account)}
	if q.Events != nil {
		events["workflow"] = q.Events.WorkflowID
		if q.Events.SilentAfterSeconds != 0 {
			events["silent"] = strconv.FormatInt(q.Events.SilentAfterSeconds, 10)
		}
	}
	return accountRow{
		quota:      q,
		PlanForm:   viewForm(ctx, formName("plan", q.ID), map[string]string{"plan": q.Plan}),
		DeleteForm: viewForm(ctx, formName("delete", q.ID), nil),
		EventsForm: viewForm(ctx, formName("events", q.ID), events),
	}, err
}
