package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/client/api"
)

// WhoAmI says who makes the calls.
func (c *Client) WhoAmI(ctx context.Context) (api.WhoAmI, error) {
	return get[api.WhoAmI](ctx, c, "/whoami")
}

// Keys lists the keys; only those of an account, unless accountID is empty.
func (c *Client) Keys(ctx context.Context, accountID string, page Page) (api.List[api.Key], error) {
	return list[api.Key](ctx, c, "/keys", page, parameters{"accountId": accountID})
}

// CreateKey makes a key. Called again, it makes another one.
func (c *Client) CreateKey(ctx context.Context, put api.PutKey) (api.NewKey, error) {
	return send[api.NewKey](ctx, c, http.MethodPost, "/keys", put)
}

// RevokeKey ends a key, by its ID.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.delete(ctx, "/keys/"+url.PathEscape(id))
}
