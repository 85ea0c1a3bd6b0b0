package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routeAccounts(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/plans", id: "list-plans", tag: tagAccounts,
		summary:     "List the plans",
		description: "The plan catalog, in its own order. It is a configuration file of the executor.",
	}, s.listPlans)
	register(to, call{
		method: http.MethodGet, path: "/accounts", id: "list-accounts", tag: tagAccounts,
		summary: "List the accounts", description: "By ID.",
	}, s.listAccounts)
	register(to, call{
		method: http.MethodGet, path: "/accounts/{id}", id: "get-account", tag: tagAccounts,
		summary: "Show an account", codes: []string{api.CodeNotFound},
	}, s.getAccount)
	register(to, call{
		method: http.MethodPut, path: "/accounts/{id}", id: "put-account", tag: tagAccounts, least: operate.Admin,
		summary: "Create or replace an account",
		description: "A change of plan takes effect at once. Past the new plan's limit, the workflows that were activated " +
			"first keep working; when one of them is deactivated, the next moves up.",
		codes:     []string{api.CodeInvalid, api.CodeBodyTooLarge, api.CodeNotConfirmed},
		responses: map[string]*huma.Response{"201": response[api.Account](to, "Created")},
	}, s.putAccount)
	register(to, call{
		method: http.MethodDelete, path: "/accounts/{id}", id: "delete-account", tag: tagAccounts, least: operate.Admin,
		summary: "Delete an account", description: "One that has no workflows and no keys. The records of its executions stay.",
		codes: []string{api.CodeForbidden, api.CodeNotFound, api.CodeAccountNotEmpty, api.CodeNotConfirmed},
	}, s.deleteAccount)
}

func (s *server) listPlans(ctx context.Context, in *struct {
	Paging
	OfAccount
},
) (*listOutput[api.Plan], error) {
	return listed(s.Operate.Plans(ctx, signin.Caller(ctx), in.AccountID, in.page()))
}

func (s *server) listAccounts(ctx context.Context, in *struct {
	Paging
	OfAccount
},
) (*listOutput[api.Account], error) {
	return listed(s.Operate.Accounts(ctx, signin.Caller(ctx), in.AccountID, in.page()))
}

// AccountID is the path of an account.
type AccountID struct {
	ID string `path:"id" doc:"The account's ID: 1 to 64 of A-Z a-z 0-9 _ -" example:"acme"`
}

func (s *server) getAccount(ctx context.Context, in *AccountID) (*output[api.Account], error) {
	return answered(s.Operate.Account(ctx, signin.Caller(ctx), in.ID))
}

func (s *server) deleteAccount(ctx context.Context, in *AccountID) (*struct{}, error) {
	return nil, s.Operate.DeleteAccount(ctx, signin.Caller(ctx), in.ID)
}

func (s *server) putAccount(ctx context.Context, in *struct {
	AccountID
	Body api.PutAccount
},
) (*putOutput[api.Account], error) {
	return stored(s.Operate.PutAccount(ctx, signin.Caller(ctx), in.ID, in.Body))
}
