package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/client/api"
)

// WhoAmI returns the identity, role and account that belong to the client's token or key.
func (c *Client) WhoAmI(ctx context.Context) (api.WhoAmI, error) {
	return get[api.WhoAmI](ctx, c, "/whoami")
}

// Keys returns one page of the keys, without their secrets. If accountID is not empty, it returns
// only the keys of that account.
func (c *Client) Keys(ctx context.Context, accountID string, page Page) (api.List[api.Key], error) {
	return list[api.Key](ctx, c, "/keys", page, queryParameters{"accountId": accountID})
}

// CreateKey creates a key. It is not idempotent: a repeated call creates another key.
func (c *Client) CreateKey(ctx context.Context, put api.PutKey) (api.NewKey, error) {
	return send[api.NewKey](ctx, c, http.MethodPost, "/keys", put)
}

// RevokeKey revokes the key with the given ID. From then on, the API rejects requests with this
// key.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.delete(ctx, "/keys/"+url.PathEscape(id))
}
