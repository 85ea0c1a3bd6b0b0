package operate

import (
	"cmp"
	"context"
	"slices"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry"
)

// Quota is an account with the limits of its plan and the number of its active workflows.
type Quota struct {
	Account api.Account
	Plan    *api.Plan // nil if the account or its plan does not exist
	Active  int64     // number of active workflows
}

// Webhooks reports whether the plan includes webhook triggers.
func (q Quota) Webhooks() bool { return q.Plan != nil && q.Plan.WebhookTriggers }

// Limited reports whether the plan limits the number of active workflows. It returns true if there
// is no plan.
func (q Quota) Limited() bool { return q.Plan == nil || q.Plan.MaxActiveWebhookWorkflows != nil }

// Max returns the maximum number of active workflows. It returns 0 if the plan has no limit or no
// webhook triggers.
func (q Quota) Max() int64 {
	if !q.Webhooks() || !q.Limited() {
		return 0
	}
	return *q.Plan.MaxActiveWebhookWorkflows
}

// Full reports whether the plan allows the account no further active workflow.
func (q Quota) Full() bool { return !q.Webhooks() || (q.Limited() && q.Active >= q.Max()) }

// Over returns the number of active workflows beyond the plan's limit. The limit is 0 if the plan
// has no webhook triggers.
func (q Quota) Over() int64 {
	if q.Webhooks() && !q.Limited() {
		return 0
	}
	return max(0, q.Active-q.Max())
}

// Quota returns the quota of an account. The account need not exist.
func (s *Service) Quota(ctx context.Context, caller Caller, accountID string) (Quota, error) {
	return runRead(ctx, s, caller, newAccessRule("Quota", accessToAccount(accountID)),
		func(context.Context) (Quota, error) {
			return s.quota(accountID), nil
		})
}

func (s *Service) quota(accountID string) Quota {
	q := Quota{
		Account: api.Account{ID: accountID},
		Active:  s.config.RegistryIndex.OtherActiveWorkflowCount(accountID, ""),
	}
	if account, ok := s.config.RegistryIndex.Account(accountID); ok {
		q.Account = apiAccount(account.Record)
		q.Plan = s.plan(q.Account.Plan)
	}
	return q
}

func (s *Service) plan(id string) *api.Plan {
	found := s.config.RegistryIndex.Plans().Record.Find(id)
	if found == nil {
		return nil
	}
	plan := s.apiPlan(*found)
	return &plan
}

// PlanChange is the effect that another plan would have on an account's active workflows.
type PlanChange struct {
	From Quota          // the quota with the current plan
	To   Quota          // the quota with the other plan
	Stop WorkflowSample // the workflows whose webhooks would stop working
	Stay WorkflowSample // the workflows whose webhooks would keep working
	// Slower is the number of workflows in Stay for which the other plan means a lower rate limit,
	// because they have no rate limit of their own.
	Slower int64
}

// WorkflowSample is the size of a set of workflows, and the first few of them.
type WorkflowSample struct {
	First []api.Workflow // at most maxSampledWorkflows
	Total int            // the number of workflows in the set
}

// Others returns the number of workflows that are not in First.
func (s WorkflowSample) Others() int64 { return int64(s.Total - len(s.First)) }

// maxSampledWorkflows is the maximum number of workflows in WorkflowSample.First.
const maxSampledWorkflows = 5

func (s *WorkflowSample) add(w api.Workflow) {
	if s.Total++; len(s.First) < maxSampledWorkflows {
		s.First = append(s.First, w)
	}
}

// PreviewPlanChange computes the effect of changing an account's plan, without changing it.
func (s *Service) PreviewPlanChange(
	ctx context.Context, caller Caller, accountID, planID string,
) (PlanChange, error) {
	return runRead(ctx, s, caller, newAccessRule("PreviewPlanChange", accessToAccount(accountID)),
		func(context.Context) (none PlanChange, err error) {
			plan := s.plan(planID)
			if plan == nil {
				return none, notFoundError("plan", planID, "")
			}
			if _, ok := s.config.RegistryIndex.Account(accountID); !ok {
				return none, notFoundError("account", accountID, "")
			}
			change := PlanChange{From: s.quota(accountID)}
			change.To = change.From
			change.To.Plan = plan
			slower := change.From.Plan != nil &&
				isSlower(plan.RateLimit, change.From.Plan.RateLimit)
			for i, record := range s.activeWorkflows(accountID) {
				w := s.apiWorkflow(record)
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

// activeWorkflows returns an account's active workflows, sorted by the time of their activation. If
// a plan limits their number, the first ones in this order keep working.
func (s *Service) activeWorkflows(accountID string) []*registry.Workflow {
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
