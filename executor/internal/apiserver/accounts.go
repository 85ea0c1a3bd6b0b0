package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
)

func (s *server) routeAccounts(to huma.API) {
	register(s, to, call{
		method: http.MethodGet, path: "/plans", id: "list-plans", tag: tagAccounts,
		summary:     "List the plans",
		description: "The plan catalog, in its own order. It is a configuration file of the executor.",
	}, s.listPlans)
	register(s, to, call{
		method: http.MethodGet, path: "/accounts", id: "list-accounts", tag: tagAccounts,
		summary: "List the accounts", description: "By ID.",
	}, s.listAccounts)
	register(s, to, call{
		method: http.MethodGet, path: "/accounts/{id}", id: "get-account", tag: tagAccounts,
		summary: "Show an account", codes: []string{api.CodeNotFound},
	}, s.getAccount)
	register(s, to, call{
		method: http.MethodPut, path: "/accounts/{id}", id: "put-account", tag: tagAccounts,
		summary: "Create or replace an account",
		description: "A change of plan takes effect at once. Past the new plan's limit, the workflows that were activated " +
			"first keep working; when one of them is deactivated, the next moves up.",
		codes:     []string{api.CodeInvalid, api.CodeBodyTooLarge, api.CodeNotConfirmed},
		responses: map[string]*huma.Response{"201": response[api.Account](to, "Created")},
	}, s.putAccount)
}

const plansList = "plans"

func (s *server) listPlans(_ context.Context, in *struct{ Paging }) (*listOutput[api.Plan], error) {
	position, err := in.after(plansList)
	if err != nil {
		return nil, err
	}
	plans := s.Directory.Plans().Record.GetPlans()
	first := 0
	if position != "" {
		last := slices.IndexFunc(plans, func(p *hookstartv1.Plan) bool { return p.GetId() == position })
		if last < 0 {
			return nil, badCursor()
		}
		first = last + 1
	}
	rest := plans[first:]
	return page(plansList, rest[:min(len(rest), in.Limit+1)], in.Limit, planOnWire, (*hookstartv1.Plan).GetId), nil
}

const accountsList = "accounts"

func (s *server) listAccounts(_ context.Context, in *struct{ Paging }) (*listOutput[api.Account], error) {
	after, err := in.after(accountsList)
	if err != nil {
		return nil, err
	}
	found := s.Directory.Accounts(after, in.Limit+1)
	return page(accountsList, found, in.Limit, accountOnWire, (*hookstartv1.Account).GetId), nil
}

// AccountID is the path of an account.
type AccountID struct {
	ID string `path:"id" doc:"The account's ID: 1 to 64 of A-Z a-z 0-9 _ -" example:"acme"`
}

type accountOutput struct {
	Status int
	Body   api.Account
}

func (s *server) getAccount(_ context.Context, in *AccountID) (*accountOutput, error) {
	have, exists := s.Directory.Account(in.ID)
	if !exists {
		return nil, newProblem(api.CodeNotFound, "There is no account "+strconv.Quote(in.ID)+".")
	}
	return &accountOutput{Status: http.StatusOK, Body: accountOnWire(have.Record)}, nil
}

func (s *server) putAccount(ctx context.Context, in *struct {
	AccountID
	Body api.PutAccount
},
) (*accountOutput, error) {
	ctx, cancel := s.changing(ctx)
	defer cancel()
	account, created, err := s.Editor.PutAccount(ctx, in.ID, in.Body.Name, in.Body.Plan)
	if err != nil {
		return nil, err
	}
	return &accountOutput{Status: statusOfPut(created), Body: accountOnWire(account)}, nil
}

func statusOfPut(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func planOnWire(p *hookstartv1.Plan) api.Plan {
	return api.Plan{
		ID: p.GetId(), WebhookTriggers: p.GetWebhookTriggers(),
		MaxActiveWebhookWorkflows: p.MaxActiveWebhookWorkflows,
		RateLimit:                 *rateLimitOnWire(p.GetRateLimit()),
	}
}

func accountOnWire(a *hookstartv1.Account) api.Account {
	return api.Account{ID: a.GetId(), Name: a.GetName(), Plan: a.GetPlan(), CreatedAt: a.GetCreatedAt().AsTime()}
}

func rateLimitOnWire(l *hookstartv1.RateLimit) *api.RateLimit {
	return &api.RateLimit{Requests: l.GetRequests(), WindowSeconds: l.GetWindowSeconds()}
}

func rateLimitFromWire(l *api.RateLimit) *registry.RateLimit {
	if l == nil {
		return nil
	}
	return &registry.RateLimit{Requests: l.Requests, Window: seconds(l.WindowSeconds)}
}
