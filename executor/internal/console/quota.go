package console

import (
	"fmt"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// quota is an account with what its plan lets it do.
type quota struct {
	ID, Name, Plan string
	Known          bool // the account and its plan exist
	Webhooks       bool // the plan has webhook triggers
	Active, Max    int64
	Rate           string // the plan's, of a workflow that has none of its own
}

func (c *Console) quota(accountID string) quota {
	q := quota{ID: accountID, Name: accountID, Active: c.Directory.ActiveBesides(accountID, "")}
	account, exists := c.Directory.Account(accountID)
	if !exists {
		return q
	}
	q.Name, q.Plan = nameOr(account.Record.GetName(), accountID), account.Record.GetPlan()
	for _, plan := range c.Directory.Plans().Record.GetPlans() {
		if plan.GetId() == q.Plan {
			q.Known, q.Webhooks, q.Max = true, plan.GetWebhookTriggers(), registry.Unlimited
			q.Rate = rateText(plan.GetRateLimit().GetRequests(), plan.GetRateLimit().GetWindowSeconds())
			if plan.MaxActiveWebhookWorkflows != nil {
				q.Max = plan.GetMaxActiveWebhookWorkflows()
			}
		}
	}
	return q
}

// Full says whether no further workflow can be activated.
func (q quota) Full() bool { return !q.Webhooks || (q.Max != registry.Unlimited && q.Active >= q.Max) }

// Over is how many active workflows are past the plan's limit.
func (q quota) Over() int64 {
	switch {
	case !q.Webhooks:
		return q.Active
	case q.Max == registry.Unlimited:
		return 0
	default:
		return max(0, q.Active-q.Max)
	}
}

// Text is the quota in a few words.
func (q quota) Text() string {
	switch {
	case !q.Known:
		return "no plan"
	case !q.Webhooks:
		return "no webhooks in this plan"
	case q.Max == registry.Unlimited:
		return fmt.Sprintf("%s active, no limit", count(q.Active))
	default:
		return fmt.Sprintf("%s of %s active", count(q.Active), count(q.Max))
	}
}

// state is what a workflow's switch comes to.
type state struct {
	Active    bool
	Over      bool // active, but past the plan's limit, or not in it at all: its webhooks are refused
	NotInPlan bool // the plan has no webhook triggers
}

func (c *Console) state(w *hookstartv1.Workflow) state {
	view, found := c.Directory.Lookup(w.GetId())
	inPlan := found && view.PlanHasWebhooks()
	return state{Active: w.GetActive(), Over: w.GetActive() && (!inPlan || !view.WithinPlan), NotInPlan: !inPlan}
}
