package console

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hookstart/hookstart/executor/api"
)

// listRows is how many items of one of the API's lists a page shows.
const listRows = 25

// listPage is the place of a page in one of the API's lists.
type listPage struct {
	First   bool
	Ignored []string     // parts of the query that say nothing, for people
	Begin   template.URL // the query of the first page
	Older   template.URL // the query of the next page; "": this is the last
}

// askList asks for the page of a list that begins after the place named in a request's
// query, a cursor of the API. query is what of the request says which list it is, and wanted
// what is asked of the API.
func askList[T any](c *Console, r *http.Request, path string, wanted, query url.Values) (items []T, at listPage, err error) {
	wanted.Set("limit", strconv.Itoa(listRows))
	after := r.URL.Query().Get("after")
	at = listPage{First: after == "", Begin: queryText(query)}
	if after != "" {
		wanted.Set("cursor", after)
	}
	var list api.List[T]
	err = c.ask(r, path+"?"+wanted.Encode(), &list)
	if refused, is := errors.AsType[*api.Problem](err); is && refused.Code == api.CodeInvalid && !at.First {
		at.First, at.Ignored = true, []string{"“" + shortened(after) + "” is no place in the list"}
		wanted.Del("cursor")
		err = c.ask(r, path+"?"+wanted.Encode(), &list)
	}
	if list.NextCursor != "" {
		query.Set("after", list.NextCursor)
		at.Older = queryText(query)
	}
	return list.Items, at, err
}
