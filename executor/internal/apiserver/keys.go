package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routeKeys(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/whoami", id: "get-whoami", tag: tagAccess,
		summary: "Show who makes the call", description: "And what they may do, and see.",
	}, s.whoAmI)
	register(to, call{
		method: http.MethodGet, path: "/keys", id: "list-keys", tag: tagAccess, least: operate.Admin,
		summary: "List the keys", description: "By ID. A key that has expired stays in the list for a day.",
	}, s.listKeys)
	register(to, call{
		method: http.MethodPost, path: "/keys", id: "create-key", tag: tagAccess, least: operate.Admin,
		summary: "Make a key",
		description: "The answer has the key itself, which is shown here only. Each call makes another one. A key that expires soon, for one account and " +
			"with the role viewer, can be given to a page in a browser: `--api-origins` of the executor names the sites that may use one.",
		codes:  []string{api.CodeInvalid, api.CodeBodyTooLarge},
		status: http.StatusCreated,
	}, s.createKey)
	register(to, call{
		method: http.MethodDelete, path: "/keys/{id}", id: "revoke-key", tag: tagAccess, least: operate.Admin,
		summary: "Revoke a key", description: "From the very next request on, no executor takes it. Open streams of events with it end.",
		codes: []string{api.CodeNotFound, api.CodeNotConfirmed},
	}, s.revokeKey)
}

func (s *server) whoAmI(ctx context.Context, _ *struct{}) (*output[api.WhoAmI], error) {
	return answered(s.Operate.WhoAmI(ctx, signin.Caller(ctx)))
}

func (s *server) listKeys(ctx context.Context, in *struct {
	Paging
	OfAccount
},
) (*listOutput[api.Key], error) {
	return listed(s.Operate.Keys(ctx, signin.Caller(ctx), in.AccountID, in.page()))
}

func (s *server) createKey(ctx context.Context, in *struct{ Body api.PutKey }) (*output[api.NewKey], error) {
	return answered(s.Operate.CreateKey(ctx, signin.Caller(ctx), in.Body))
}

// KeyID is the path of a key.
type KeyID struct {
	ID string `path:"id" doc:"The key's ID, not the key." example:"key_q2VnT0pXbWs"`
}

func (s *server) revokeKey(ctx context.Context, in *KeyID) (*struct{}, error) {
	return nil, s.Operate.RevokeKey(ctx, signin.Caller(ctx), in.ID)
}
