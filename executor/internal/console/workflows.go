package console

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

const (
	workflowRows = 25
	// searchPage is how many workflows a search looks through at once.
	searchPage = 1000
)

// workflowList is the data of the list of workflows.
type workflowList struct {
	Search    string
	Account   *quota // of which it is; nil: of all
	Rows      []workflowRow
	Older     template.URL // the query of the next page; "": this is the last
	Begin     template.URL // the query of the first page
	First     bool
	AnyAtAll  bool
	AnyOwners bool // there are accounts
}

type workflowRow struct {
	ID, Name string
	Account  quota
	State    state
	Day      chart
	Last     *store.Record // nil: there was none, or it is not known in time
}

func (c *Console) listWorkflows(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	list := workflowList{
		Search: strings.TrimSpace(query.Get("q")), First: query.Get("after") == "",
		AnyAtAll: len(c.Directory.Workflows("", "", 1)) > 0, AnyOwners: len(c.Directory.Accounts("", 1)) > 0,
	}
	accountID := query.Get("account")
	if accountID != "" {
		of := c.quota(accountID)
		list.Account = &of
	}
	found := c.searchWorkflows(r.Context(), accountID, list.Search, query.Get("after"), workflowRows+1)
	position := url.Values{}
	if list.Search != "" {
		position.Set("q", list.Search)
	}
	if accountID != "" {
		position.Set("account", accountID)
	}
	list.Begin = queryText(position)
	if len(found) > workflowRows {
		found = found[:workflowRows]
		position.Set("after", found[workflowRows-1].GetId())
		list.Older = queryText(position)
	}
	// All rows together may take that long.
	counting, cancel := context.WithTimeout(r.Context(), 2*countTimeout)
	defer cancel()
	for _, record := range found {
		row, err := c.workflowRow(counting, record)
		if err != nil {
			c.failed(w, r, err)
			return
		}
		list.Rows = append(list.Rows, row)
	}
	c.render(w, r, http.StatusOK, "workflows", page{Title: "Workflows", Section: "workflows", Body: list})
}

// searchWorkflows finds workflows whose name or ID holds a text, by ID.
func (c *Console) searchWorkflows(ctx context.Context, accountID, text, after string, limit int) []*hookstartv1.Workflow {
	if text == "" {
		return c.Directory.Workflows(accountID, after, limit)
	}
	text = strings.ToLower(text)
	var found []*hookstartv1.Workflow
	for ctx.Err() == nil {
		some := c.Directory.Workflows(accountID, after, searchPage)
		for _, w := range some {
			if strings.Contains(strings.ToLower(w.GetId()), text) || strings.Contains(strings.ToLower(w.GetName()), text) {
				if found = append(found, w); len(found) == limit {
					return found
				}
			}
		}
		if len(some) < searchPage {
			break
		}
		after = some[len(some)-1].GetId()
	}
	return found
}

func (c *Console) workflowRow(ctx context.Context, w *hookstartv1.Workflow) (workflowRow, error) {
	row := workflowRow{
		ID: w.GetId(), Name: nameOr(w.GetName(), w.GetId()), Account: c.quota(w.GetAccountId()), State: c.state(w),
	}
	var err error
	if row.Day, err = c.chartOf(ctx, store.Filter{WorkflowID: w.GetId()}, 24, time.Hour, time.Now()); err != nil || row.Day.Missing {
		return row, err
	}
	last, err := c.Store.List(ctx, store.Filter{WorkflowID: w.GetId()}, store.Position{}, 1)
	if len(last) > 0 {
		row.Last = &last[0]
	}
	if ctx.Err() != nil {
		err = nil // too slow: the row comes without it
	}
	return row, err
}

// newWorkflow is the data of the form for a new one.
type newWorkflow struct {
	Accounts []quota
	Account  string // chosen already
	More     bool   // there are more accounts than the form lists
}

// maxChoices is how many accounts a form lists.
const maxChoices = 500

func (c *Console) newWorkflow(w http.ResponseWriter, r *http.Request) {
	form := newWorkflow{Account: r.URL.Query().Get("account")}
	for _, account := range c.Directory.Accounts("", maxChoices+1) {
		form.Accounts = append(form.Accounts, c.quota(account.GetId()))
	}
	if form.More = len(form.Accounts) > maxChoices; form.More {
		form.Accounts = form.Accounts[:maxChoices]
	}
	c.render(w, r, http.StatusOK, "new-workflow", page{Title: "New workflow", Section: "workflows", Body: form})
}
