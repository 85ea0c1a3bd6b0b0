package operate

import (
	"cmp"
	"context"
	"slices"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry"
)

// Quota is an account with its plan's limits.
type Quota struct {
	Account api.Account
	Plan    *api.Plan // nil: the account or its plan does not exist
	Active  int64     // its active workflows
}

// Webhooks reports whether the plan has webhook triggers.
func (q Quota) Webhooks() bool { return q.Plan != nil && q.Plan.WebhookTriggers }

// Limited reports whether the plan bounds the number of active workflows.
func (q Quota) Limited() bool { return q.Plan == nil || q.Plan.MaxActiveWebhookWorkflows != nil }

// Max is how many workflows the plan lets be active, if it is Limited.
func (q Quota) Max() int64 {
	if !q.Webhooks() || !q.Limited() {
		return 0
	}
	return *q.Plan.MaxActiveWebhookWorkflows
}

// Full reports whether no further workflow can be activated.
func (q Quota) Full() bool { return !q.Webhooks() || (q.Limited() && q.Active >= q.Max()) }

// Over is the number of active workflows past the plan's limit.
func (q Quota) Over() int64 {
	if q.Webhooks() && !q.Limited() {
		return 0
	}
	return max(0, q.Active-q.Max())
}

// Quota returns the quota of an account, which need not exist.
func (s *Service) Quota(ctx context.Context, by Caller, accountID string) (Quota, error) {
	return read(ctx, s, by, needs(Viewer, ofAccount(accountID)), func(context.Context) (Quota, error) { return s.quota(accountID), nil })
}

func (s *Service) quota(accountID string) Quota {
	q := Quota{Account: api.Account{ID: accountID}, Active: s.config.Directory.ActiveBesides(accountID, "")}
	if account, exists := s.config.Directory.Account(accountID); exists {
		q.Account = accountOf(account.Record)
		q.Plan = s.plan(q.Account.Plan)
	}
	return q
}

func (s *Service) plan(id string) *api.Plan {
	found := s.config.Directory.Plans().Record.Find(id)
	if found == nil {
		return nil
	}
	plan := s.planOf(*found)
	return &plan
}

// PlanChange is the effect of another plan on an account's active workflows.
type PlanChange struct {
	From   Quota
	To     Quota // with the other plan
	Stop   Some  // workflows whose webhooks would stop working
	Stay   Some
	Slower int64 // how many go on working, but with a lower rate limit: they have none of their own
}

// Some is a number of workflows, and the first few of them.
type Some struct {
	First []api.Workflow
	Total int
}

// Others is the number of those that are not in First.
func (s Some) Others() int64 { return int64(s.Total - len(s.First)) }

// maxSome is how many workflows of a Some are there.
const maxSome = 5

func (s *Some) add(w api.Workflow) {
	if s.Total++; len(s.First) < maxSome {
		s.First = append(s.First, w)
	}
}

// PlanChange computes the effect of a change of plan, without making it.
func (s *Service) PlanChange(ctx context.Context, by Caller, accountID, planID string) (PlanChange, error) {
	return read(ctx, s, by, needs(Admin, ofAccount(accountID)), func(context.Context) (none PlanChange, err error) {
		plan := s.plan(planID)
		if plan == nil {
			return none, notFound("plan", planID, "")
		}
		if _, exists := s.config.Directory.Account(accountID); !exists {
			return none, notFound("account", accountID, "")
		}
		change := PlanChange{From: s.quota(accountID)}
		change.To = change.From
		change.To.Plan = plan
		slower := change.From.Plan != nil && isSlower(plan.RateLimit, change.From.Plan.RateLimit)
		for i, record := range s.active(accountID) {
			w := s.workflowOf(record)
			switch {
			case change.To.Webhooks() && (!change.To.Limited() || int64(i) < change.To.Max()):
				change.Stay.add(w)
				if slower && w.RateLimit == nil && w.PlanRefusal == "" {
					change.Slower++
				}
			case w.PlanRefusal == "":
				change.Stop.add(w)
			}
		}
		return change, nil
	})
}

func isSlower(limit, than api.RateLimit) bool {
	return limit.Requests*than.WindowSeconds < than.Requests*limit.WindowSeconds
}

// active are an account's active workflows, in the order in which a plan accepts them: by their activation.
func (s *Service) active(accountID string) []*registry.Workflow {
	var all []*registry.Workflow
	for w := range s.workflows(accountID, "") {
		if w.Active {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *registry.Workflow) int {
		return cmp.Or(cmp.Compare(a.Transition, b.Transition), cmp.Compare(a.ID, b.ID))
	})
	return all
}
