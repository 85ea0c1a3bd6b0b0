package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// keyList is the template data of the keys page. It does not contain the keys' secrets: a secret is
// shown only once, when the key is created.
type keyList struct {
	listPage
	Rows     []keyRow
	Accounts []quota
	More     bool // there are more accounts than the form lists
}

type keyRow struct {
	api.Key
	Expired bool
	Own     bool // the caller has signed in with this key
}

func (c *Console) keyList(r *http.Request) (list keyList, err error) {
	ctx, caller := r.Context(), signin.Caller(r.Context())
	found, at, err := fetchList(r, url.Values{}, nil,
		func(p operate.Page) (api.List[api.Key], error) {
			return c.Operate.Keys(ctx, caller, "", p)
		})
	if err != nil {
		return list, err
	}
	list.listPage = at
	now := time.Now()
	for _, key := range found {
		list.Rows = append(list.Rows, keyRow{
			key, !key.ExpiresAt.IsZero() &&
				!now.Before(key.ExpiresAt), caller.Kind == operate.CallerKindKey &&
				caller.ID == key.ID,
		})
	}
	accounts, err := c.Operate.Accounts(ctx, caller, "", operate.Page{Limit: maxChoices})
	list.More = accounts.NextCursor != ""
	for _, account := range accounts.Items {
		list.Accounts = append(list.Accounts, quota{
			ID:   account.ID,
			Name: nameOr(account.Name, account.ID),
		})
	}
	return list, err
}
