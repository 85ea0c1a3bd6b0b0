package apiserver

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

func (s *server) routeAccounts(to huma.API) {
	register(to, operationSpec{
		method: http.MethodGet, path: "/plans", id: "list-plans", tag: tagAccounts,
		summary: "List the plans",
		description: "The plan catalog, in its own order. It is a configuration file of the " +
			"executor.",
	}, func(ctx context.Context, caller operate.Caller, in *ListInput) (api.List[api.Plan], error) {
		return s.Operate.Plans(ctx, caller, in.AccountID, in.page())
	})
	register(to, operationSpec{
		method: http.MethodGet, path: "/accounts", id: "list-accounts", tag: tagAccounts,
		summary: "List the accounts", description: "By ID.",
	},
		func(ctx context.Context, caller operate.Caller, in *ListInput) (api.List[api.Account],
			error,
		) {
			return s.Operate.Accounts(ctx, caller, in.AccountID, in.page())
		})
	registerOperation(to, operationSpec{
		method: http.MethodGet, path: "/accounts/{id}", id: "get-account", tag: tagAccounts,
		summary: "Show an account", problemCodes: []string{api.CodeNotFound},
	}, func(
		ctx context.Context, caller operate.Caller, in *AccountIDParam,
	) (*accountWithETag, error) {
		a, err := s.Operate.Account(ctx, caller, in.ID)
		return newAccountWithETag(http.StatusOK, a), err
	})
	s.routeAccountChanges(to)
	s.routeAccountEvents(to)
}

// routeAccountEvents registers the calls for an account's operator events.
func (s *server) routeAccountEvents(to huma.API) {
	const path = "/accounts/{id}/events"
	register(to, operationSpec{
		method:       http.MethodGet,
		path:         path,
		id:           "get-events",
		tag:          tagAccounts,
		summary:      "Show which workflow the account's events start",
		description:  "And what they have told of that has not ended. `not_found`: they start none.",
		problemCodes: []string{api.CodeNotFound},
	}, func(ctx context.Context, caller operate.Caller, in *AccountIDParam) (api.Events, error) {
		return s.Operate.EventSubscription(ctx, caller, in.ID)
	})
	registerPut(to, operationSpec{
		method:  http.MethodPut,
		path:    path,
		id:      "put-events",
		tag:     tagAccounts,
		summary: "Let the account's events start a workflow",
		description: "Each operator event starts one execution of the workflow, with the source " +
			"`event`, whether the workflow is active or not. Its kinds: `execution.failed`, " +
			"`queue.unattended`, `sender.refused`, `sender.silent`, `storage.low`, and the last " +
			"four with `.recovered`. The input is `{kind, at, accountId, workflowId?, " +
			"executionId?, queue?, count, text}`; `count` is how many occurrences the event " +
			"tells of.",
		problemCodes: []string{api.CodeNotFound, api.CodeBodyTooLarge, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		AccountUpdateParams
		Body api.PutEvents
	},
	) (operate.PutResult[api.Events], error) {
		return s.Operate.PutEventSubscription(ctx, caller, in.ID, in.Body)
	})
	registerNoContent(to, operationSpec{
		method:       http.MethodDelete,
		path:         path,
		id:           "delete-events",
		tag:          tagAccounts,
		summary:      "Let the account's events start no workflow",
		problemCodes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *AccountUpdateParams) error {
		return s.Operate.RemoveEventSubscription(ctx, caller, in.ID)
	})
}

// routeAccountChanges registers the calls that change an account.
func (s *server) routeAccountChanges(to huma.API) {
	registerOperation(to, operationSpec{
		method:  http.MethodPut,
		path:    "/accounts/{id}",
		id:      "put-account",
		tag:     tagAccounts,
		summary: "Create or replace an account",
		description: "A change of plan takes effect at once. Past the new plan's limit, the " +
			"workflows that were activated first keep working; when one of them is deactivated, " +
			"the next moves up. With the `ETag` of an earlier answer as `If-Match`, only that " +
			"version is replaced; with `If-None-Match: *`, none is.",
		problemCodes: []string{api.CodeBodyTooLarge, api.CodeNotConfirmed},
		responses:    map[string]*huma.Response{"201": successResponse[api.Account](to, "Created")},
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		AccountUpdateParams
		IfNoneMatchHeader
		Body api.PutAccount
	},
	) (*accountWithETag, error) {
		put, err := s.Operate.PutAccount(ctx, caller, in.ID, in.Body, in.IfNoneMatch != "")
		return newAccountWithETag(createdStatus(put.Created), put.Value), err
	})
	account := newPatcher[api.PutAccount](to)
	registerPatch[api.PutAccount](to, operationSpec{
		path: "/accounts/{id}", id: "patch-account", tag: tagAccounts,
		summary: "Change an account", description: "A change of plan takes effect at once.",
	}, func(ctx context.Context, caller operate.Caller, in *struct {
		AccountUpdateParams
		patchBody
	},
	) (*accountWithETag, error) {
		a, err := s.Operate.PatchAccount(ctx, caller, in.ID, account.applyFunc(in.RawBody))
		return newAccountWithETag(http.StatusOK, a), err
	})
	registerNoContent(to, operationSpec{
		method:      http.MethodDelete,
		path:        "/accounts/{id}",
		id:          "delete-account",
		tag:         tagAccounts,
		summary:     "Delete an account",
		description: "One that has no workflows and no keys. The records of its executions stay.",
		problemCodes: []string{
			api.CodeForbidden, api.CodeNotFound, api.CodeAccountNotEmpty, api.CodeNotConfirmed,
		},
	}, func(ctx context.Context, caller operate.Caller, in *AccountUpdateParams) error {
		return s.Operate.DeleteAccount(ctx, caller, in.ID)
	})
}

// AccountUpdateParams is the input of a call that changes an account: the account's ID and a
// precondition.
type AccountUpdateParams struct {
	AccountIDParam
	IfMatch string `header:"If-Match" doc:"The ETag of an earlier answer. The account is changed only if it still is that version. With the value *, any version is changed, but no account is created."`
}

func (c *AccountUpdateParams) withCondition(ctx context.Context) (context.Context, error) {
	switch c.IfMatch {
	case "":
		return ctx, nil
	case anyVersion:
		return operate.WithAccountIfExists(ctx), nil
	}
	tag, ok := strings.CutPrefix(strings.TrimSuffix(c.IfMatch, `"`), `"`)
	if !ok || tag == "" {
		return ctx, invalidFieldsProblem(api.FieldError{
			Field:   "If-Match",
			Problem: "must be one ETag of this account, as an earlier answer had it, or *",
		})
	}
	return operate.WithAccountIfMatch(ctx, tag), nil
}

// accountWithETag is a response with the account's ETag, which clients can send as the If-Match of
// later calls.
type accountWithETag struct {
	Status int
	ETag   string `header:"ETag" doc:"The version of the account, for If-Match."`
	Body   api.Account
}

func newAccountWithETag(status int, a api.Account) *accountWithETag {
	return &accountWithETag{status, `"` + operate.AccountETag(a) + `"`, a}
}

// AccountIDParam holds the path parameter with an account's ID.
type AccountIDParam struct {
	ID string `path:"id" doc:"The account's ID: 1 to 64 of A-Z a-z 0-9 _ -" example:"acme"`
}
