package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// workflowList is the template data of the workflows page.
type workflowList struct {
	pager
	Search       string
	Account      *accountView // account whose workflows are listed; nil means all accounts
	Rows         []workflowRow
	HasWorkflows bool
	HasAccounts  bool // there is at least one account
}

type workflowRow struct {
	ID, Name        string
	Account         accountView
	State           workflowState
	Queue           string
	QueueUnattended bool // no runner consumes its queue
	LastDay         activityChart
	LastExecution   *operate.Execution // nil means none, or that the database was too slow
}

func (c *Console) workflowList(r *http.Request) (list workflowList, err error) {
	ctx := r.Context()
	filter := operate.WorkflowFilter{
		AccountID: r.URL.Query().Get("account"),
		Text:      strings.TrimSpace(r.URL.Query().Get("q")),
	}
	list.Search = filter.Text
	if list.HasAccounts, list.HasWorkflows, err = c.hasAccountsAndWorkflows(ctx); err != nil {
		return list, err
	}
	if filter.AccountID != "" {
		account, err := c.accountView(ctx, filter.AccountID)
		if err != nil {
			return list, err
		}
		list.Account = &account
	}
	query := queryOf(map[string]string{"q": filter.Text, "account": filter.AccountID})
	ask := func(p operate.PageOptions) (api.List[api.Workflow], error) {
		return c.Operate.Workflows(ctx, signin.Caller(ctx), filter, p)
	}
	found, at, err := fetchList(r, query, nil, ask)
	if err != nil {
		return list, err
	}
	list.pager = at
	// Limit the total time for counting the executions of all rows.
	counting, cancel := context.WithTimeout(ctx, 2*countQueryTimeout)
	defer cancel()
	idle, err := c.Operate.UnattendedQueues(ctx, signin.Caller(ctx))
	if err != nil {
		return list, err
	}
	for _, workflow := range found {
		row, err := c.workflowRow(counting, workflow)
		if err != nil {
			return list, err
		}
		_, row.QueueUnattended = idle[workflow.Queue]
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

// hasAccountsAndWorkflows reports whether there is at least one account, and whether there is at
// least one workflow.
func (c *Console) hasAccountsAndWorkflows(
	ctx context.Context,
) (accounts, workflows bool, err error) {
	someAccounts, err := c.Operate.Accounts(ctx, signin.Caller(ctx), "",
		operate.PageOptions{Limit: 1})
	if err != nil {
		return false, false, err
	}
	someWorkflows, err := c.Operate.Workflows(ctx, signin.Caller(ctx), operate.WorkflowFilter{},
		operate.PageOptions{Limit: 1})
	return len(someAccounts.Items) > 0, len(someWorkflows.Items) > 0, err
}

func (c *Console) workflowRow(ctx context.Context, w api.Workflow) (row workflowRow, err error) {
	row = workflowRow{
		ID:    w.ID,
		Name:  nameOrID(w.Name, w.ID),
		State: workflowStateOf(w),
		Queue: w.Queue,
	}
	if row.Account, err = c.accountView(ctx, w.AccountID); err != nil {
		return row, err
	}
	filter := operate.ExecutionFilter{WorkflowID: w.ID}
	if row.LastDay, err = c.activityChart(ctx, filter, 24, time.Hour); err != nil ||
		row.LastDay.Missing {
		return row, err
	}
	last, err := c.Operate.Executions(ctx, signin.Caller(ctx), filter,
		operate.PageOptions{Limit: 1})
	if len(last.Items) > 0 {
		row.LastExecution = &last.Items[0]
	}
	if ctx.Err() != nil {
		err = nil // it took too long: show the row without the last execution
	}
	return row, err
}

// newWorkflowPage is the template data of the form for a new workflow.
type newWorkflowPage struct {
	Accounts []accountView
	More     bool // there are more accounts than the form lists
	// DemoQueue is the queue of this process's demo runner. "" means that there is none.
	DemoQueue string
	Form      formView
}

func (c *Console) showNewWorkflow() http.HandlerFunc {
	return pageHandler(c, "new-workflow", page{Title: "New workflow", Section: "workflows"},
		c.newWorkflowPage)
}

// maxOfferedAccounts is the maximum number of accounts that a form offers.
const maxOfferedAccounts = 500

func (c *Console) newWorkflowPage(r *http.Request) (form newWorkflowPage, err error) {
	ctx := r.Context()
	form.DemoQueue = c.DemoQueue
	accounts, err := c.Operate.Accounts(ctx, signin.Caller(ctx), "",
		operate.PageOptions{Limit: maxOfferedAccounts})
	if err != nil {
		return form, err
	}
	form.More = accounts.NextCursor != ""
	form.Form = newFormView(ctx, "new-workflow", map[string]string{
		"account": r.URL.Query().Get("account"), "queue": c.DemoQueue, "node": "webhook",
	})
	form.Accounts, err = c.accountViews(ctx, accounts.Items)
	return form, err
}
