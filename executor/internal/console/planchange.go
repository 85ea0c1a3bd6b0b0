package console

import (
	"cmp"
	"net/http"
	"slices"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

// planChange is what another plan would do to an account's active workflows.
type planChange struct {
	Account quota
	Plan    string
	To      int64 // how many the plan lets be active
	Allows  bool  // it has webhook triggers
	Stop    named // that work now, and would not
	Stay    named
	Rate    string // the plan's rate limit
	Slower  int64  // how many go on working, but with a lower rate limit: they have none of their own
}

// named are workflows, of which the first few are named.
type named struct {
	First []choice
	Total int
}

// Others is how many are not named.
func (n named) Others() int64 { return int64(n.Total - len(n.First)) }

func (n *named) add(w *hookstartv1.Workflow) {
	if n.Total++; len(n.First) < maxOthers {
		n.First = append(n.First, choice{ID: w.GetId(), Name: nameOr(w.GetName(), w.GetId())})
	}
}

// planChangeFragment asks before webhooks stop to work, or may be called less often. It is
// empty when none would.
func (c *Console) planChangeFragment(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	change, known := c.planChange(query.Get("account"), query.Get("plan"))
	switch {
	case !known:
		c.fail(w, r, http.StatusNotFound, "There is no such account or plan", "It may have been changed. Load the page again.")
	case change.Stop.Total == 0 && change.Slower == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		c.write(w, r, http.StatusOK, "fragment", "plan-change", change)
	}
}

func (c *Console) planChange(accountID, planID string) (change planChange, known bool) {
	plans := c.Directory.Plans().Record.GetPlans()
	at := slices.IndexFunc(plans, func(p *hookstartv1.Plan) bool { return p.GetId() == planID })
	if _, exists := c.Directory.Account(accountID); !exists || at < 0 {
		return change, false
	}
	change = planChange{Account: c.quota(accountID), Plan: planID, Allows: plans[at].GetWebhookTriggers(), To: registry.Unlimited}
	switch {
	case !change.Allows:
		change.To = 0
	case plans[at].MaxActiveWebhookWorkflows != nil:
		change.To = plans[at].GetMaxActiveWebhookWorkflows()
	}
	change.Rate = rateText(plans[at].GetRateLimit().GetRequests(), plans[at].GetRateLimit().GetWindowSeconds())
	slower := c.isSlower(plans[at], change.Account.Plan)
	for i, w := range c.active(accountID) {
		switch {
		case change.To == registry.Unlimited || int64(i) < change.To:
			change.Stay.add(w)
			if slower && w.GetRateLimit() == nil && !c.state(w).Over {
				change.Slower++
			}
		case !c.state(w).Over:
			change.Stop.add(w)
		}
	}
	return change, true
}

// isSlower says whether a plan's rate limit is below that of another one.
func (c *Console) isSlower(plan *hookstartv1.Plan, than string) bool {
	for _, other := range c.Directory.Plans().Record.GetPlans() {
		if other.GetId() == than {
			a, b := plan.GetRateLimit(), other.GetRateLimit()
			return a.GetRequests()*b.GetWindowSeconds() < b.GetRequests()*a.GetWindowSeconds()
		}
	}
	return false
}

// active are an account's active workflows, in the order in which a plan lets them work:
// those that were activated first.
func (c *Console) active(accountID string) []*hookstartv1.Workflow {
	var all []*hookstartv1.Workflow
	for after := ""; ; {
		some := c.Directory.Workflows(accountID, after, searchPage)
		for _, w := range some {
			if w.GetActive() {
				all = append(all, w)
			}
		}
		if len(some) < searchPage {
			break
		}
		after = some[len(some)-1].GetId()
	}
	slices.SortFunc(all, func(a, b *hookstartv1.Workflow) int {
		return cmp.Or(cmp.Compare(a.GetTransition(), b.GetTransition()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return all
}
