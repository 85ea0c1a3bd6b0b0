package cli

import (
	"cmp"
	"errors"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/apiclient"
)

type accountVerbs struct {
	Put  accountPut  `cmd:"" help:"Create an account, or change its name or plan."`
	Get  accountGet  `cmd:"" help:"Show an account."`
	List accountList `cmd:"" help:"List the accounts."`
}

type accountPut struct {
	Account string `arg:"" type:"id" help:"The account's ID."`
	Name    string `help:"For people. Default: what it is; of a new one, the ID." placeholder:"TEXT"`
	Plan    string `help:"The ID of a plan; a change takes effect at once. Default: what it is." placeholder:"PLAN"`
}

func (*accountPut) Help() string {
	return `Example:

  hookstart account put acme --name "Acme Inc." --plan free`
}

// Run implements the verb.
func (v *accountPut) Run(s *session) error {
	put := api.PutAccount{Name: v.Name, Plan: v.Plan}
	if v.Name == "" || v.Plan == "" {
		have, err := s.client.Account(s.ctx, v.Account)
		switch {
		case err == nil:
			put.Name, put.Plan = cmp.Or(put.Name, have.Name), cmp.Or(put.Plan, have.Plan)
		case !isNotFound(err):
			return err
		case v.Plan == "":
			return &usageError{"a new account needs --plan", "hookstart plan list"}
		default:
			put.Name = v.Account
		}
	}
	a, err := s.client.PutAccount(s.ctx, v.Account, put)
	if err != nil {
		if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.CodeInvalid {
			return &hintError{err, "hookstart plan list; hookstart account put --help"}
		}
		return err
	}
	return showAccount(s, a)
}

type accountGet struct {
	Account string `arg:"" type:"id" help:"The account's ID."`
}

func (*accountGet) Help() string {
	return `Example:

  hookstart account get demo`
}

// Run implements the verb.
func (v *accountGet) Run(s *session) error {
	a, err := s.client.Account(s.ctx, v.Account)
	if err != nil {
		return err
	}
	return showAccount(s, a)
}

type accountList struct {
	paging
}

func (*accountList) Help() string {
	return `Example:

  hookstart account list`
}

// Run implements the verb.
func (v *accountList) Run(s *session) error {
	return list(s, v.paging, func(p apiclient.Page) (api.List[api.Account], error) { return s.client.Accounts(s.ctx, p) }, listing[api.Account]{
		head: []string{"ACCOUNT", "PLAN", "CREATED", "NAME"},
		row: func(a api.Account) []string {
			return []string{a.ID, a.Plan, ago(a.CreatedAt, s.now()), short(a.Name, 30)}
		},
		none: "No accounts. Create one: hookstart account put acme --plan free",
	})
}

func showAccount(s *session, a api.Account) error {
	return s.print(func() error {
		return s.rows([][]string{
			{"Account", a.ID},
			{"Name", a.Name},
			{"Plan", a.Plan},
			{"Created", both(a.CreatedAt, s.now())},
		})
	})
}

func isNotFound(err error) bool {
	p, is := errors.AsType[*api.Problem](err)
	return is && p.Code == api.CodeNotFound
}
