package console

import (
	"context"
	"fmt"
	"slices"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// accountView describes an account and the limits of its plan.
type accountView struct {
	operate.Quota
	ID, Name, Plan string
	RateLimit      string // the plan's rate limit, for workflows without one of their own
	// Events holds the settings of the account's operator events. nil means that its events start
	// no workflow.
	Events *api.PutEvents
}

func (c *Console) accountView(ctx context.Context, accountID string) (accountView, error) {
	q, err := c.Operate.Quota(ctx, signin.Caller(ctx), accountID)
	return accountViewOf(q), err
}

func (c *Console) accountViews(
	ctx context.Context, accounts []api.Account,
) (all []accountView, err error) {
	for _, account := range accounts {
		view, err := c.accountView(ctx, account.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, view)
	}
	return all, nil
}

func accountViewOf(from operate.Quota) accountView {
	view := accountView{
		Quota:  from,
		ID:     from.Account.ID,
		Name:   nameOrID(from.Account.Name, from.Account.ID),
		Plan:   from.Account.Plan,
		Events: from.Account.Events,
	}
	if from.Plan != nil {
		view.RateLimit = rateLimitText(from.Plan.RateLimit)
	}
	return view
}

// Text summarizes the quota in a few words, such as "3 of 10 active".
func (a accountView) Text() string {
	switch {
	case a.Quota.Plan == nil:
		return "no plan"
	case !a.Webhooks():
		return "no webhooks in this plan"
	case !a.Limited():
		return fmt.Sprintf("%s active, no limit", formatCount(a.Active))
	default:
		return fmt.Sprintf("%s of %s active", formatCount(a.Active), formatCount(a.Max()))
	}
}

// workflowState is the effective state of a workflow, which depends on its switch and on its plan.
type workflowState struct {
	Active bool
	// BeyondPlan means that the workflow is active although the plan does not allow it, so that its
	// webhooks are refused.
	BeyondPlan bool
	NotInPlan  bool // the plan has no webhook triggers
}

func workflowStateOf(w api.Workflow) workflowState {
	return workflowState{
		Active:     w.Active,
		BeyondPlan: w.PlanRefusal != "",
		NotInPlan:  w.PlanRefusal == api.CodeWebhooksNotInPlan,
	}
}

// HasKind reports whether the account's operator event settings name the given kind explicitly. If
// they name no kind, which selects all kinds, it returns false.
func (a accountView) HasKind(kind string) bool {
	return a.Events != nil && slices.Contains(a.Events.Kinds, kind)
}
