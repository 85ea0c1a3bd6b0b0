package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
)

func (s *server) routeAccounts(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/plans", id: "list-plans", tag: tagAccounts,
		summary:     "List the plans",
		description: "The plan catalog, in its own order. It is a configuration file of the executor.",
	}, func(ctx context.Context, by operate.Caller, in *Listing) (api.List[api.Plan], error) {
		return s.Operate.Plans(ctx, by, in.AccountID, in.page())
	})
	register(to, call{
		method: http.MethodGet, path: "/accounts", id: "list-accounts", tag: tagAccounts,
		summary: "List the accounts", description: "By ID.",
	}, func(ctx context.Context, by operate.Caller, in *Listing) (api.List[api.Account], error) {
		return s.Operate.Accounts(ctx, by, in.AccountID, in.page())
	})
	register(to, call{
		method: http.MethodGet, path: "/accounts/{id}", id: "get-account", tag: tagAccounts,
		summary: "Show an account", codes: []string{api.CodeNotFound},
	}, func(ctx context.Context, by operate.Caller, in *AccountID) (api.Account, error) {
		return s.Operate.Account(ctx, by, in.ID)
	})
	registerPut(to, call{
		method: http.MethodPut, path: "/accounts/{id}", id: "put-account", tag: tagAccounts, least: operate.Admin,
		summary: "Create or replace an account",
		description: "A change of plan takes effect at once. Past the new plan's limit, the workflows that were activated " +
			"first keep working; when one of them is deactivated, the next moves up.",
		codes: []string{api.CodeBodyTooLarge, api.CodeNotConfirmed},
	}, func(ctx context.Context, by operate.Caller, in *struct {
		AccountID
		Body api.PutAccount
	},
	) (operate.PutResult[api.Account], error) {
		return s.Operate.PutAccount(ctx, by, in.ID, in.Body)
	})
	registerBare(to, call{
		method: http.MethodDelete, path: "/accounts/{id}", id: "delete-account", tag: tagAccounts, least: operate.Admin,
		summary: "Delete an account", description: "One that has no workflows and no keys. The records of its executions stay.",
		codes: []string{api.CodeForbidden, api.CodeNotFound, api.CodeAccountNotEmpty, api.CodeNotConfirmed},
	}, func(ctx context.Context, by operate.Caller, in *AccountID) error {
		return s.Operate.DeleteAccount(ctx, by, in.ID)
	})
}

// AccountID is the path of an account.
type AccountID struct {
	ID string `path:"id" doc:"The account's ID: 1 to 64 of A-Z a-z 0-9 _ -" example:"acme"`
}
