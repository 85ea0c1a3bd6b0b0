package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type workflowCmds struct {
	Put        workflowPutCmd        `cmd:"" help:"Create a workflow, or change one."`
	Get        workflowGetCmd        `cmd:"" help:"Show a workflow." example:"hookstart workflow get demo"`
	List       workflowListCmd       `cmd:"" help:"List the workflows." example:"hookstart workflow list --account demo"`
	Activate   workflowActivateCmd   `cmd:"" help:"Let its webhooks start executions." example:"hookstart workflow activate demo"`
	Deactivate workflowDeactivateCmd `cmd:"" help:"Stop its webhooks from starting executions." example:"hookstart workflow deactivate demo\nhookstart workflow activate demo"`
	Refusals   workflowRefusalsCmd   `cmd:"" help:"Show why requests were refused, and how often: to one, or to all."`
	Delete     workflowDeleteCmd     `cmd:"" help:"Delete a workflow, with its tokens." detail:"The records of its executions stay. Its webhook URLs cannot be had back." example:"hookstart workflow put scratch --account demo\nhookstart workflow delete scratch"`
}

// workflowArg is the argument that holds a workflow's ID.
type workflowArg struct {
	Workflow string `arg:"" type:"id" help:"The workflow's ID."`
}

type workflowGetCmd struct{ workflowArg }

func (v *workflowGetCmd) Run(s *session) error {
	return s.showWorkflow(s.client.Workflow(s.ctx, v.Workflow))
}

type workflowListCmd struct {
	Account string `type:"id" help:"Only this account's." placeholder:"ID"`
	paging
}

func (v *workflowListCmd) Run(s *session) error {
	account := cmp.Or(v.Account, "demo")
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.Workflow], error) {
		return s.client.Workflows(s.ctx, v.Account, p)
	}, listFormat[api.Workflow]{
		header: []string{"WORKFLOW", "ACCOUNT", "ACTIVE", "QUEUE", "UPDATED", "NAME"},
		formatRow: func(w api.Workflow) []string {
			return []string{
				w.ID, w.AccountID, activeText(w), w.Queue, ago(w.UpdatedAt, s.now()),
				truncateForDisplay(w.Name, 20),
			}
		},
		emptyListHint: "No workflows. Create one: hookstart workflow put orders --account " +
			account,
	})
}

type workflowActivateCmd struct{ workflowArg }

func (v *workflowActivateCmd) Run(s *session) error {
	w, err := s.client.Activate(s.ctx, v.Workflow)
	return s.printResultLine(s.withPlanHint(err, v.Workflow), "%s is active", w.ID)
}

type workflowDeactivateCmd struct{ workflowArg }

func (v *workflowDeactivateCmd) Run(s *session) error {
	w, err := s.client.Deactivate(s.ctx, v.Workflow)
	return s.printResultLine(err, "%s is inactive", w.ID)
}

type workflowDeleteCmd struct{ workflowArg }

func (v *workflowDeleteCmd) Run(s *session) error {
	return s.printResultLine(s.client.DeleteWorkflow(s.ctx, v.Workflow), "%s is deleted",
		v.Workflow)
}

func (s *session) showWorkflow(w api.Workflow, err error) error {
	if err != nil {
		return err
	}
	return s.printResponse(func() error {
		active := "no: hookstart workflow activate " + w.ID
		switch {
		case w.PlanRefusal != "":
			active = activeText(w) + ": its webhooks are refused; hookstart account put " +
				w.AccountID + " --plan PLAN changes the plan"
		case w.Active:
			active = "since " + agoAndExact(w.ActivatedAt, s.now())
		}
		var nodes []string
		for _, t := range w.Triggers {
			node := t.NodeID
			if t.Name != "" {
				node += " (" + t.Name + ")"
			}
			nodes = append(nodes, node)
		}
		return s.printRows([][]string{
			{"Workflow", w.ID},
			{"Name", w.Name},
			{"Account", w.AccountID},
			{"Active", active},
			{"Triggers", strings.Join(nodes, ", ")},
			{"Queue", w.Queue},
			{"Rate limit", rateLimitText(w.RateLimit)},
			{"Created", agoAndExact(w.CreatedAt, s.now())},
			{"Updated", agoAndExact(w.UpdatedAt, s.now())},
		})
	})
}

// activeText says whether the workflow's webhooks start executions: "yes", "no", or the
// reason why the account's plan prevents it.
func activeText(w api.Workflow) string {
	switch w.PlanRefusal {
	case "":
		return yesNo(w.Active)
	case api.CodeWebhooksNotInPlan:
		return "not in plan"
	default:
		return "over the limit"
	}
}

// withPlanHint adds a hint if err says that the plan of the workflow's account forbids the change.
// It returns any other error unchanged.
func (s *session) withPlanHint(err error, workflowID string) error {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != api.CodePlanLimitExceeded && p.Code != api.CodeWebhooksNotInPlan {
		return err
	}
	account := "ACCOUNT"
	if w, unknown := s.client.Workflow(s.ctx, workflowID); unknown == nil {
		account = w.AccountID
	}
	if p.Code == api.CodeWebhooksNotInPlan {
		return &hintError{
			err,
			"hookstart plan list shows plans that have them; change it: hookstart account put " +
				account + " --plan pro",
		}
	}
	return &hintError{err, planLimitHint(account)}
}
