package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// keyList is the template data of the keys page. It does not contain the keys' secrets: a secret is
// shown only once, when the key is created.
type keyList struct {
	pager
	Rows     []keyRow
	Accounts []accountView // accounts that the form offers; only ID and Name are set
	More     bool          // there are more accounts than the form lists
	New      formView      // form that creates a key
	// the key that was just created; no other response contains its secret
	CreatedKey      *api.NewKey
	ListUnavailable bool     // the keys cannot be listed now; CreatedKey can still be shown
	ToRevoke        *api.Key // set if the page asks the operator to confirm the revocation
}

type keyRow struct {
	api.Key
	Expired bool
	Own     bool // the caller has signed in with this key
	Form    formView
}

func (c *Console) keyList(r *http.Request) (list keyList, err error) {
	ctx, caller := r.Context(), signin.Caller(r.Context())
	found, at, err := fetchList(r, url.Values{}, nil,
		func(p operate.PageOptions) (api.List[api.Key], error) {
			return c.Operate.Keys(ctx, caller, "", p)
		})
	list.CreatedKey, list.ToRevoke = createdObject[api.NewKey](ctx), confirmDialogData[api.Key](ctx)
	list.pager, list.ListUnavailable = at, err != nil
	if list.ListUnavailable && list.CreatedKey == nil {
		return list, err
	}
	now := time.Now()
	for _, key := range found {
		list.Rows = append(list.Rows, keyRow{
			key, !key.ExpiresAt.IsZero() &&
				!now.Before(key.ExpiresAt), caller.Kind == operate.CallerKindKey &&
				caller.ID == key.ID,
			newFormView(ctx, formName("revoke", key.ID), nil),
		})
	}
	list.New = newFormView(ctx, "new-key", map[string]string{"expires": "7776000"})
	accounts, err := c.Operate.Accounts(
		ctx,
		caller,
		"",
		operate.PageOptions{Limit: maxOfferedAccounts},
	)
	list.More = accounts.NextCursor != ""
	for _, account := range accounts.Items {
		list.Accounts = append(list.Accounts, accountView{
			ID:   account.ID,
			Name: nameOrID(account.Name, account.ID),
		})
	}
	if list.CreatedKey != nil { // show the page despite an error: no other page can show the secret
		err = nil
	}
	return list, err
}

func (c *Console) keysHandler() http.HandlerFunc {
	return pageHandler(c, "keys", page{Title: "Keys", Section: "keys"}, c.keyList)
}

// newKeyForm returns the form that creates a key. The response to the form itself shows the key's
// secret, because no later page can.
func (c *Console) newKeyForm() *form {
	return &form{
		name:           "new-key",
		operation:      "CreateKey",
		fieldByAPIName: map[string]string{"accountId": "account", "expiresAt": "expires"},
		pageURL:        listPageURL("/keys"),
		showPage:       c.keysHandler(),
		save: func(r *http.Request, p *postedForm) (string, error) {
			put := api.PutKey{
				Name: strings.TrimSpace(p.values["name"]), Role: p.values["role"],
				AccountID: strings.TrimSpace(p.values["account"]),
			}
			if text := p.values["expires"]; text != "" {
				seconds, err := strconv.ParseInt(text, 10, 32)
				if err != nil || seconds < 1 {
					return "", incompleteFormError()
				}
				put.ExpiresAt = time.Now().Add(time.Duration(seconds) * time.Second)
			}
			made, err := c.Operate.CreateKey(r.Context(), signin.Caller(r.Context()), put)
			switch {
			case err == nil:
				p.created = &made
			case api.IsCode(err, api.CodeNotConfirmed):
				err = &operate.Error{Code: api.CodeNotConfirmed, Cause: err, Detail: "It is not " +
					"known whether the key was made. If it is in the list, revoke it: nobody has " +
					"seen it. Then make another."}
			}
			return "", err
		},
	}
}

// revokeKeyForm returns the form that revokes a key.
func (c *Console) revokeKeyForm() *form {
	return &form{
		name:         "revoke",
		idPathParams: []string{"id"},
		operation:    "RevokeKey",
		pageURL:      listPageURL("/keys"),
		showPage:     c.keysHandler(),
		save: func(r *http.Request, p *postedForm) (string, error) {
			ctx, caller := r.Context(), signin.Caller(r.Context())
			key, err := c.Operate.Key(ctx, caller, r.PathValue("id"))
			if err == nil {
				err = p.requireConfirmation(&key)
			}
			if err == nil {
				err = c.Operate.RevokeKey(ctx, caller, key.ID)
			}
			return "“" + key.Name + "” is revoked.", err
		},
	}
}

// durationChoice is an option of a form field that selects a duration: the number of seconds that
// is posted, and the text that is shown.
type durationChoice struct{ Seconds, Text string }

// keyLifetimeChoices are the choices for when a new key expires.
var keyLifetimeChoices = []durationChoice{
	{"", "never"},
	{"3600", "in 1 hour"},
	{"86400", "in 1 day"},
	{"2592000", "in 30 days"},
	{"7776000", "in 90 days"},
	{"31536000", "in 1 year"},
}
