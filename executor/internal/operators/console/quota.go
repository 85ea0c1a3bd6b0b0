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
	Rate           string // the plan's rate limit, for workflows without one of their own
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
		q, err := c.accountView(ctx, account.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

func accountViewOf(from operate.Quota) accountView {
	q := accountView{
		Quota:  from,
		ID:     from.Account.ID,
		Name:   nameOrID(from.Account.Name, from.Account.ID),
		Plan:   from.Account.Plan,
		Events: from.Account.Events,
	}
	if from.Plan != nil {
		q.Rate = rateLimitText(from.Plan.RateLimit)
	}
	return q
}

// Text summarizes the quota in a few words, such as "3 of 10 active".
func (q accountView) Text() string {
	switch {
	case q.Quota.Plan == nil:
		return "no plan"
	case !q.Webhooks():
		return "no webhooks in this plan"
	case !q.Limited():
		return fmt.Sprintf("%s active, no limit", formatCount(q.Active))
	default:
		return fmt.Sprintf("%s of %s active", formatCount(q.Active), formatCount(q.Max()))
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
func (q accountView) HasKind(kind string) bool {
	return q.Events != nil && slices.Contains(q.Events.Kinds, kind)
}
