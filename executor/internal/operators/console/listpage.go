package console

import (
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
)

// rowsPerPage is the number of rows on one page of a list.
const rowsPerPage = 25

// pager describes the position of a page in a list.
type pager struct {
	First          bool         // whether this is the first page of the list
	Ignored        []string     // descriptions of the invalid parts of the query, for display
	FirstPageQuery template.URL // query of the first page
	// query of this page, with its "?"; it is part of the forms' addresses
	CurrentPageQuery template.URL
	NextPageQuery    template.URL // query of the next page; "" means that this is the last page
}

// fetchList fetches one page of a list by calling ask. The request's query holds the cursor after
// which the page begins. query holds the list's filters as URL parameters, and invalid describes
// the filters that were ignored because they are invalid.
func fetchList[T any](
	r *http.Request, query url.Values, invalid []string,
	ask func(operate.PageOptions) (api.List[T], error),
) (items []T, at pager, err error) {
	after := r.URL.Query().Get("after")
	at.FirstPageQuery = encodeQuery(query)
	list, ignored, err := fetchPage(after, rowsPerPage, ask)
	at.First, at.Ignored = after == "" || len(ignored) > 0, slices.Concat(invalid, ignored)
	here := maps.Clone(query)
	if !at.First {
		here.Set("after", after)
	}
	if len(here) > 0 {
		at.CurrentPageQuery = "?" + encodeQuery(here)
	}
	if list.NextCursor != "" {
		query.Set("after", list.NextCursor)
		at.NextPageQuery = encodeQuery(query)
	}
	return list.Items, at, err
}

// listPageURL returns the pageURL function of a form on a list page. The URL consists of the given
// path and the query of the request, which holds the list's filters and position.
func listPageURL(path string) func(*http.Request) string {
	return func(r *http.Request) string {
		if query := r.URL.Query(); len(query) > 0 {
			return path + "?" + query.Encode()
		}
		return path
	}
}

// fetchPage fetches one page of a list by calling ask. The page has at most limit items, and begins
// after the position of the given cursor. An empty cursor means the first page. If the cursor is
// invalid, fetchPage returns the first page, and ignored contains a message about the invalid
// cursor.
func fetchPage[T any](
	after string, limit int, ask func(operate.PageOptions) (api.List[T], error),
) (list api.List[T], ignored []string, err error) {
	list, err = ask(operate.PageOptions{Limit: limit, Cursor: after})
	if isInvalid(err) && after != "" {
		ignored = []string{"“" + shortened(after) + "” is not a place in the list"}
		list, err = ask(operate.PageOptions{Limit: limit})
	}
	return list, ignored, err
}
