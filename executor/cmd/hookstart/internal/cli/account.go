package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type accountCmds struct {
	Put  accountPutCmd  `cmd:"" help:"Create an account, or change its name or plan." example:"hookstart account put acme --name \"Acme Inc.\" --plan free"`
	Get  accountGetCmd  `cmd:"" help:"Show an account." example:"hookstart account get demo"`
	List accountListCmd `cmd:"" help:"List the accounts." example:"hookstart account list"`

	Events accountEventsCmd `cmd:"" help:"Show or set which workflow is started when something fails, or a queue, a sender or the storage is in trouble."`

	Delete accountDeleteCmd `cmd:"" help:"Delete an account that has no workflows and no keys." detail:"The records of its executions stay." example:"hookstart account put scratch\nhookstart account delete scratch"`
}

// accountArg is the argument that holds an account's ID.
type accountArg struct {
	Account string `arg:"" type:"id" help:"The account's ID."`
}

type accountPutCmd struct {
	accountArg
	Name string `help:"For people. Default: what it is; of a new one, the ID." placeholder:"TEXT"`
	Plan string `help:"The ID of a plan; a change takes effect at once. Default: what it is; of a new one, the default plan, if there is one." placeholder:"PLAN"`
}

func (v *accountPutCmd) Run(s *session) error {
	patch := apiclient.Patch{}
	if v.Name != "" {
		patch["name"] = v.Name
	}
	if v.Plan != "" {
		patch["plan"] = v.Plan
	}
	a, err := s.client.PatchAccount(s.ctx, v.Account, patch)
	if isNotFound(err) {
		put := api.PutAccount{Name: cmp.Or(v.Name, v.Account), Plan: v.Plan}
		a, err = s.client.IfNew().PutAccount(s.ctx, v.Account, put)
	}
	if err != nil {
		if api.IsCode(err, api.CodeInvalid) {
			return &hintError{err, "hookstart plan list; hookstart account put --help"}
		}
		return err
	}
	if err := s.showAccount(a, nil); err != nil || v.Plan == "" {
		return err
	}
	s.printRefusedWorkflowsNote(a)
	return nil
}

// printRefusedWorkflowsNote prints a note that lists the account's active workflows whose webhook
// requests its plan refuses. "account put" does not ask for confirmation beforehand, because
// scripts use it.
func (s *session) printRefusedWorkflowsNote(a api.Account) {
	const named = 5
	var refused []string
	for w, err := range apiclient.Items(func(p apiclient.Page) (api.List[api.Workflow], error) {
		return s.client.Workflows(s.ctx, a.ID, p)
	}) {
		if err != nil {
			s.printNote("Whether the plan refuses webhooks now is not known: hookstart workflow "+
				"list "+
				"--account %s", a.ID)
			return
		}
		if w.PlanRefusal != "" {
			refused = append(refused, w.ID)
		}
	}
	if len(refused) == 0 {
		return
	}
	first, others := refused, ""
	if len(refused) > named {
		first, others = refused[:named], fmt.Sprintf(" and %d more", len(refused)-named)
	}
	s.printNote("Active, but refused by the plan %s: %s%s. They work again when the plan has "+
		"room: "+
		"hookstart workflow list --account %s", a.Plan, strings.Join(first, ", "), others, a.ID)
}

type accountGetCmd struct{ accountArg }

func (v *accountGetCmd) Run(s *session) error {
	return s.showAccount(s.client.Account(s.ctx, v.Account))
}

type accountListCmd struct{ paging }

func (v *accountListCmd) Run(s *session) error {
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.Account], error) {
		return s.client.Accounts(s.ctx, p)
	}, listFormat[api.Account]{
		header: []string{"ACCOUNT", "PLAN", "CREATED", "NAME"},
		formatRow: func(a api.Account) []string {
			return []string{a.ID, a.Plan, ago(a.CreatedAt, s.now()), truncateForDisplay(a.Name, 30)}
		},
		emptyListHint: "No accounts. Create one: hookstart account put acme --plan free",
	})
}

func (s *session) showAccount(a api.Account, err error) error {
	if err != nil {
		return err
	}
	return s.printResponse(func() error {
		return s.printRows([][]string{
			{"Account", a.ID},
			{"Name", a.Name},
			{"Plan", a.Plan},
			{"Created", agoAndExact(a.CreatedAt, s.now())},
		})
	})
}

type accountDeleteCmd struct{ accountArg }

func (v *accountDeleteCmd) Run(s *session) error {
	err := s.client.DeleteAccount(s.ctx, v.Account)
	if api.IsCode(err, api.CodeAccountNotEmpty) {
		return &hintError{
			err,
			"hookstart workflow list --account " + v.Account + "; hookstart key list --account " +
				v.Account,
		}
	}
	return s.printResultLine(err, "%s is deleted", v.Account)
}
