package console

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/execution"
)

const maxExecutionRows = 25

// executionList is the template data of a list of executions with its filters.
type executionList struct {
	Path          string // path of the page that shows the list
	WorkflowID    string // workflow whose executions are listed; "" means all workflows
	NodeID        string // node that the page shows, to be preserved in links
	Filter        executionListFilter
	Ignored       []string // descriptions of the invalid parts of the query, for display
	Rows          []executionRow
	First         bool         // this is the page with the newest rows, which is updated live
	After         string       // the cursor before the rows; "" means the newest rows
	NextPageQuery template.URL // query of the next page; "" means that this is the last one
	MaxRows       int
	Bulk          formView
	Question      *bulkDialog // set if the page asks to confirm a bulk change

	Workflows, Accounts []linkChoice // suggestions for the filters
}

// executionListFilter holds the filters of a list of executions. An empty field matches every
// execution.
type executionListFilter struct {
	Status, Source, Within, DeliveryID string
	Workflow, Account                  string // only if the list is of all workflows
}

// Any reports whether any field is set. If so, the list may show only a part of the executions.
func (f executionListFilter) Any() bool { return f != executionListFilter{} }

// executionRow is an execution in a list.
type executionRow struct {
	operate.Execution
	operate.ExecutionOrigin
	ShowWorkflow bool
}

// Took returns the time from acceptance until the execution ended, or zero if it has not ended.
func (r executionRow) Took() time.Duration { return executionDuration(r.Execution) }

func executionDuration(e operate.Execution) time.Duration {
	if e.FinishedAt.IsZero() {
		return 0
	}
	return e.FinishedAt.Sub(e.AcceptedAt)
}

// Ended reports whether the execution has ended, including by rejection.
func (r executionRow) Ended() bool { return execution.Status(r.Status).Final() }

// maxFailureReasonLength is the maximum length, in characters, of a failure's reason in a list.
const maxFailureReasonLength = 300

// FailureReason returns the first line of the execution's error, or "" if the execution did not
// fail.
func (r executionRow) FailureReason() string {
	if execution.Status(r.Status) != execution.Failed {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(r.Error), "\n")
	if text := []rune(line); len(text) > maxFailureReasonLength {
		return string(text[:maxFailureReasonLength]) + "…"
	}
	return line
}

// CanRequeue reports whether the execution is a dead letter whose trigger node still exists.
// Requeuing may still fail if the stream has deleted the execution's input.
func (r executionRow) CanRequeue() bool {
	return r.HasNode && isDeadLetter(r.Execution)
}

func isDeadLetter(e operate.Execution) bool {
	return execution.Status(e.Status) == execution.Failed && e.RequeuedAs == "" &&
		e.DismissedAt.IsZero()
}

func parseExecutionListFilter(query url.Values) (f executionListFilter, ignored []string) {
	read := filterReader{query: query}
	f = executionListFilter{
		DeliveryID: read.text("delivery"), Workflow: read.text("of"), Account: read.text("account"),
		Status: read.validValue("status", "status",
			func(status string) bool {
				return slices.Contains(execution.Statuses, execution.Status(status))
			}),
		Source: read.validValue("source", "way to start an execution", func(source string) bool {
			return slices.Contains(execution.Sources, execution.Source(source))
		}),
		Within: read.timeSpanID(filterTimeSpans),
	}
	return f, read.ignored
}

// executionList returns the list of executions for a request, using the filters and the cursor in
// the request's query.
func (c *Console) executionList(r *http.Request, path, workflowID string) (executionList, error) {
	query := r.URL.Query()
	p := executionList{
		Path:       path,
		WorkflowID: workflowID,
		NodeID:     query.Get("node"),
		MaxRows:    maxExecutionRows,
		Bulk:       newBulkFormView(r.Context()),
		Question:   confirmDialogData[bulkDialog](r.Context()),
	}
	p.Filter, p.Ignored = parseExecutionListFilter(query)
	err := c.fillRows(r.Context(), &p, query.Get("after"))
	if err == nil && workflowID == "" {
		p.Workflows, p.Accounts, err = c.suggestionsForFilters(r.Context())
	}
	return p, err
}

// fillRows fetches the rows of p that follow the given cursor. An empty cursor means the newest
// rows.
func (c *Console) fillRows(ctx context.Context, p *executionList, after string) error {
	filter := operate.ExecutionFilter{
		WorkflowID: cmp.Or(p.WorkflowID, p.Filter.Workflow), AccountID: p.Filter.Account,
		Status: execution.Status(p.Filter.Status), Source: execution.Source(p.Filter.Source),
		DeliveryPrefix: p.Filter.DeliveryID, Since: timeSpanStart(p.Filter.Within, time.Now()),
	}
	ask := func(page operate.PageOptions) (api.List[operate.Execution], error) {
		return c.Operate.Executions(ctx, signin.Caller(ctx), filter, page)
	}
	found, ignored, err := fetchPage(after, p.MaxRows, ask)
	if isInvalid(err) && filter.DeliveryPrefix != "" { // too many records for a search by prefix
		filter.DeliveryPrefix, filter.DeliveryID = "", filter.DeliveryPrefix
		found, ignored, err = fetchPage(after, p.MaxRows, ask)
		ignored = append(ignored,
			"delivery IDs that only begin so, because there are too many executions: choose a time")
	}
	if err != nil {
		return err
	}
	if p.First = after == "" || len(ignored) > 0; !p.First {
		p.After = after
	}
	p.Ignored = append(p.Ignored, ignored...)
	if found.NextCursor != "" {
		p.NextPageQuery = encodeQuery(p.query(found.NextCursor))
	}
	for _, one := range found.Items {
		from, err := c.lookUpOrigin(ctx, one.WorkflowID, one.NodeID)
		if err != nil {
			return err
		}
		p.Rows = append(p.Rows, executionRow{one, from, p.WorkflowID == ""})
	}
	return nil
}

// query returns the URL query for the page of the list that begins after the given cursor. An empty
// cursor means the first page, with the newest rows.
func (p executionList) query(after string) url.Values {
	return queryOf(map[string]string{
		"node": p.NodeID, "status": p.Filter.Status, "source": p.Filter.Source,
		"within":   p.Filter.Within,
		"delivery": p.Filter.DeliveryID, "of": p.Filter.Workflow, "account": p.Filter.Account,
		"after": after,
	})
}

// Newest returns the URL query for the list's first page, with the newest rows.
func (p executionList) Newest() template.URL { return encodeQuery(p.query("")) }

// BulkForm returns the path and query to which the bulk form is posted. action is the last part of
// the path.
func (p executionList) BulkForm(action string) string {
	path := "/matching-executions/"
	if p.WorkflowID != "" {
		path = "/workflows/" + url.PathEscape(p.WorkflowID) + path
	}
	return path + action + "?" + p.query(p.After).Encode()
}

// Cleared returns the URL query for the list without filters.
func (p executionList) Cleared() template.URL {
	return encodeQuery(executionList{NodeID: p.NodeID}.query(""))
}

// FragmentURL returns the URL from which live.js loads only the rows.
func (p executionList) FragmentURL() string {
	query := p.query("")
	query.Set("limit", strconv.Itoa(p.MaxRows))
	if p.WorkflowID != "" {
		query.Set("workflow", p.WorkflowID)
	}
	return "/fragments/executions?" + query.Encode()
}

// Events returns the URL of the event stream for the executions in the list.
func (p executionList) Events() string {
	query := queryOf(map[string]string{
		"workflowId": cmp.Or(p.WorkflowID, p.Filter.Workflow), "accountId": p.Filter.Account,
	})
	if len(query) == 0 {
		return api.PathPrefix + "/executions/stream"
	}
	return api.PathPrefix + "/executions/stream?" + query.Encode()
}

// SelectedWorkflow returns the ID of the workflow whose executions are listed, or "" for all.
func (p executionList) SelectedWorkflow() string { return cmp.Or(p.WorkflowID, p.Filter.Workflow) }

// ShowsReplayAll reports whether the list has a button that replays all rejected executions that
// match the filters.
func (p executionList) ShowsReplayAll() bool { return p.supportsBulkReplay() && p.needsBulkForm() }

// ShowsCancelAll reports whether the list has a button that cancels all executions that match the
// filters.
func (p executionList) ShowsCancelAll() bool { return p.supportsBulkCancel() && p.needsBulkForm() }

// needsBulkForm reports whether the page must contain the bulk form: there are executions that it
// may change, or a failure that it must show.
func (p executionList) needsBulkForm() bool { return len(p.Rows) > 0 || p.Bulk.Code != "" }

// supportsBulkReplay reports whether a bulk replay can be offered: the filters select rejected
// executions, and a bulk replay supports every filter that is set.
func (p executionList) supportsBulkReplay() bool {
	return p.Filter.Status == string(execution.Rejected) && p.Filter.DeliveryID == "" &&
		p.Filter.Source != string(execution.SourceRerun)
}

// supportsBulkCancel reports whether a bulk cancellation can be offered: the filters select the
// queued or the running executions of one workflow, and a bulk cancellation supports every filter
// that is set.
func (p executionList) supportsBulkCancel() bool {
	status := execution.Status(p.Filter.Status)
	return (status == execution.Queued || status == execution.Running) &&
		p.SelectedWorkflow() != "" && p.Filter.DeliveryID == "" && p.Filter.Source == "" &&
		p.Filter.Account == ""
}

// maxSuggestions is the maximum number of workflows, and of accounts, suggested by a filter.
const maxSuggestions = 200

// suggestionsForFilters returns the first workflows and accounts, as suggestions for filters.
func (c *Console) suggestionsForFilters(
	ctx context.Context,
) (workflows, accounts []linkChoice, err error) {
	some, err := c.Operate.Workflows(ctx, signin.Caller(ctx), operate.WorkflowFilter{},
		operate.PageOptions{Limit: maxSuggestions})
	if err != nil {
		return nil, nil, err
	}
	for _, w := range some.Items {
		workflows = append(workflows, workflowLinkChoice(w))
	}
	owners, err := c.Operate.Accounts(ctx, signin.Caller(ctx), "",
		operate.PageOptions{Limit: maxSuggestions})
	for _, a := range owners.Items {
		accounts = append(accounts, linkChoice{ID: a.ID, Name: nameOrID(a.Name, a.ID)})
	}
	return workflows, accounts, err
}

// redirectIfExecutionID handles a search for an execution. If the text searched for is the ID of an
// execution, it redirects to the execution's page and returns true. Otherwise, it returns false,
// and the caller searches for the text as a delivery ID.
func (c *Console) redirectIfExecutionID(w http.ResponseWriter, r *http.Request) bool {
	id := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("delivery")))
	if uuid.Validate(id) != nil {
		return false
	}
	if _, err := c.Operate.Execution(r.Context(), signin.Caller(r.Context()), id); err != nil {
		return false
	}
	http.Redirect(w, r, "/executions/"+url.PathEscape(id), http.StatusSeeOther)
	return true
}

func (c *Console) showExecutions(w http.ResponseWriter, r *http.Request) {
	if c.redirectIfExecutionID(w, r) {
		return
	}
	pageHandler(c, "executions", page{Title: "Executions", Section: "executions"},
		func(r *http.Request) (executionList, error) {
			return c.executionList(r, "/executions", "")
		})(w, r)
}

// newestExecutions returns the newest rows of a list of executions, and the link to the next page.
// live.js requests this data to update an open page.
func (c *Console) newestExecutions(r *http.Request) (executionList, error) {
	query := r.URL.Query()
	p := executionList{
		Path: "/executions", WorkflowID: query.Get("workflow"), NodeID: query.Get("node"),
		First: true,
	}
	if p.WorkflowID != "" {
		p.Path = "/workflows/" + url.PathEscape(p.WorkflowID)
	}
	p.Filter, _ = parseExecutionListFilter(query)
	limit, _ := strconv.Atoi(query.Get("limit")) // invalid text counts as 0
	p.MaxRows = cmp.Or(min(max(0, limit), maxExecutionRows), maxExecutionRows)
	err := c.fillRows(r.Context(), &p, "")
	return p, err
}
