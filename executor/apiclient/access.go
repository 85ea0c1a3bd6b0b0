package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/api"
)

// WhoAmI says who makes the calls.
func (c *Client) WhoAmI(ctx context.Context) (me api.WhoAmI, err error) {
	err = c.call(ctx, http.MethodGet, "/whoami", nil, nil, &me)
	return me, err
}

// Keys lists the keys; only those of an account, unless accountID is empty.
func (c *Client) Keys(ctx context.Context, accountID string, page Page) (list api.List[api.Key], err error) {
	q := page.query()
	if accountID != "" {
		q.Set("accountId", accountID)
	}
	err = c.call(ctx, http.MethodGet, "/keys", q, nil, &list)
	return list, err
}

// CreateKey makes a key. Called again, it makes another one.
func (c *Client) CreateKey(ctx context.Context, put api.PutKey) (made api.NewKey, err error) {
	err = c.call(ctx, http.MethodPost, "/keys", nil, put, &made)
	return made, err
}

// RevokeKey ends a key, by its ID.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/keys/"+url.PathEscape(id), nil, nil, nil)
}
