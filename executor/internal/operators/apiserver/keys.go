package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

func (s *server) routeKeys(to huma.API) {
	register(to, operationSpec{
		method: http.MethodGet, path: "/whoami", id: "get-whoami", tag: tagAccess,
		summary: "Show who makes the call", description: "And what they may do, and see.",
	}, func(ctx context.Context, caller operate.Caller, _ *struct{}) (api.WhoAmI, error) {
		return s.Operate.WhoAmI(ctx, caller)
	})
	register(to, operationSpec{
		method:      http.MethodGet,
		path:        "/keys",
		id:          "list-keys",
		tag:         tagAccess,
		summary:     "List the keys",
		description: "By ID. A key that has expired stays in the list for a day.",
	}, func(ctx context.Context, caller operate.Caller, in *ListInput) (api.List[api.Key], error) {
		return s.Operate.Keys(ctx, caller, in.AccountID, in.page())
	})
	register(to, operationSpec{
		method:  http.MethodPost,
		path:    "/keys",
		id:      "create-key",
		tag:     tagAccess,
		summary: "Make a key",
		description: "The answer has the key itself, which is shown here only. Each call makes " +
			"another one. A key that expires soon, for one account and with the role viewer, can " +
			"be given to a page in a browser: `--api-origins` of the executor names the sites " +
			"that may use one.",
		problemCodes:  []string{api.CodeBodyTooLarge},
		successStatus: http.StatusCreated,
	},
		func(ctx context.Context, caller operate.Caller, in *struct{ Body api.PutKey }) (api.NewKey,
			error,
		) {
			return s.Operate.CreateKey(ctx, caller, in.Body)
		})
	registerNoContent(to, operationSpec{
		method:  http.MethodDelete,
		path:    "/keys/{id}",
		id:      "revoke-key",
		tag:     tagAccess,
		summary: "Revoke a key",
		description: "From the very next request on, no executor takes it. Open streams of " +
			"events with it end.",
		problemCodes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, func(ctx context.Context, caller operate.Caller, in *KeyIDParam) error {
		return s.Operate.RevokeKey(ctx, caller, in.ID)
	})
}

// KeyIDParam holds the path parameter with a key's ID.
type KeyIDParam struct {
	ID string `path:"id" doc:"The ID of the key, which is not its secret text." example:"key_q2VnT0pXbWs"`
}
