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

	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/execution"
)

const (
	panelRows = 25
	// readTimeout is how long the database and NATS may take for a page.
	readTimeout = 5 * time.Second
)

// panel is a list of executions with its filters.
type panel struct {
	Path       string // of the page that it is on
	WorkflowID string // "": of all workflows
	NodeID     string // the node that the page shows, to be kept in links
	Filter     panelFilter
	Ignored    []string // parts of the query that say nothing, for people
	Rows       []row
	First      bool         // the newest page: the one that is kept up to date
	Older      template.URL // the query of the next page; "": this is the last
	Limit      int
}

// panelFilter is what an operator looks for; empty fields do not filter.
type panelFilter struct {
	Status, Source, Within, DeliveryID string
}

// Any says whether anything is filtered.
func (f panelFilter) Any() bool { return f != panelFilter{} }

// spans are how far back one can look, by their names in queries.
var spans = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

// row is an execution in a list.
type row struct {
	store.Record
	WorkflowName string
	ShowWorkflow bool
	HasWorkflow  bool // it still exists
	HasNode      bool // its trigger node, too: it can run again
}

// Took is from the acceptance to the end; zero: it has not ended.
func (r row) Took() time.Duration {
	if r.FinishedAt.IsZero() {
		return 0
	}
	return r.FinishedAt.Sub(r.AcceptedAt)
}

// CanRequeue says whether it is a dead letter whose trigger node is there; its input is, too,
// unless the stream has deleted it with age.
func (r row) CanRequeue() bool {
	return r.HasNode && r.Status == execution.Failed && r.RequeuedAs == ""
}

// panelFilterOf reads the filters of a query. What is none is left out, and named.
func panelFilterOf(query url.Values) (f panelFilter, ignored []string) {
	known := func(name, what string, is bool) string {
		value := query.Get(name)
		if value == "" || is {
			return value
		}
		ignored = append(ignored, "“"+shortened(value)+"” is no "+what)
		return ""
	}
	f.DeliveryID = strings.TrimSpace(query.Get("delivery"))
	f.Status = known("status", "status", slices.Contains(statuses, query.Get("status")))
	f.Source = known("source", "way to start an execution", slices.Contains(execution.Sources, execution.Source(query.Get("source"))))
	f.Within = known("within", "span of time", spans[query.Get("within")] > 0)
	return f, ignored
}

// shortened is a text that may be of any length.
func shortened(text string) string {
	const longest = 40
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}

// panel lists what a request asks for, with its filters and position.
func (c *Console) panel(r *http.Request, path, workflowID string) (panel, error) {
	query := r.URL.Query()
	p := panel{Path: path, WorkflowID: workflowID, NodeID: query.Get("node"), Limit: panelRows}
	p.Filter, p.Ignored = panelFilterOf(query)
	after, first := positionOf(query.Get("after"))
	if first && query.Get("after") != "" {
		p.Ignored = append(p.Ignored, "“"+shortened(query.Get("after"))+"” is no place in the list")
	}
	p.First = first
	err := c.fill(r.Context(), &p, after)
	return p, err
}

func (c *Console) fill(ctx context.Context, p *panel, after store.Position) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	filter := store.Filter{
		WorkflowID: p.WorkflowID, Status: execution.Status(p.Filter.Status), Source: execution.Source(p.Filter.Source), DeliveryID: p.Filter.DeliveryID,
	}
	if span := spans[p.Filter.Within]; span > 0 {
		filter.Since = time.Now().Add(-span)
	}
	records, err := c.Store.List(ctx, filter, after, p.Limit+1)
	if err != nil {
		return err
	}
	if len(records) > p.Limit {
		records = records[:p.Limit]
		p.Older = queryText(p.query(positionText(records[p.Limit-1])))
	}
	for _, record := range records {
		one := row{Record: record, ShowWorkflow: p.WorkflowID == "", WorkflowName: record.WorkflowID}
		if w, exists := c.Directory.Workflow(record.WorkflowID); exists {
			one.WorkflowName, one.HasWorkflow = nameOr(w.Record.GetName(), record.WorkflowID), true
			one.HasNode = hasNode(w.Record, record.NodeID)
		}
		p.Rows = append(p.Rows, one)
	}
	return nil
}

// query is the panel's query at a position, "" for the newest.
func (p panel) query(after string) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"node": p.NodeID, "status": p.Filter.Status, "source": p.Filter.Source, "within": p.Filter.Within,
		"delivery": p.Filter.DeliveryID, "after": after,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// queryText is a query as it may stand behind a "?" in a link: templates would escape
// its "&" and "=" once more.
func queryText(query url.Values) template.URL {
	return template.URL(query.Encode()) //nolint:gosec // encoded
}

// Newest is the query of the newest page.
func (p panel) Newest() template.URL { return queryText(p.query("")) }

// Cleared is the query without filters.
func (p panel) Cleared() template.URL { return queryText(panel{NodeID: p.NodeID}.query("")) }

// Fragment is where the rows alone are, for live.js.
func (p panel) Fragment() string {
	query := p.query("")
	query.Set("limit", strconv.Itoa(p.Limit))
	if p.WorkflowID != "" {
		query.Set("workflow", p.WorkflowID)
	}
	return "/fragments/executions?" + query.Encode()
}

// Events is the event stream of what the panel shows.
func (p panel) Events() string {
	if p.WorkflowID == "" {
		return "/api/v1/executions/stream"
	}
	return "/api/v1/executions/stream?" + url.Values{"workflowId": {p.WorkflowID}}.Encode()
}

// A position in a query: the microseconds of its time and the ID.
func positionText(r store.Record) string {
	return strconv.FormatInt(r.AcceptedAt.UnixMicro(), 10) + "." + r.ID
}

func positionOf(text string) (position store.Position, first bool) {
	micros, id, _ := strings.Cut(text, ".")
	at, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || id == "" {
		return store.Position{}, true
	}
	return store.Position{AcceptedAt: time.UnixMicro(at).UTC(), ID: id}, false
}

// goToExecution leads who looks for an execution's ID to its page, and says whether it did.
// An ID that is none of an execution may be one of a delivery.
func (c *Console) goToExecution(w http.ResponseWriter, r *http.Request) bool {
	id := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("delivery")))
	if uuid.Validate(id) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	if _, err := c.Store.Get(ctx, id); err != nil {
		return false
	}
	http.Redirect(w, r, "/executions/"+url.PathEscape(id), http.StatusSeeOther)
	return true
}

func (c *Console) listExecutions(w http.ResponseWriter, r *http.Request) {
	if c.goToExecution(w, r) {
		return
	}
	p, err := c.panel(r, "/executions", "")
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "executions", page{Title: "Executions", Section: "executions", Body: p})
}

// executionsFragment is the newest rows of a panel and the link to those after them, for live.js.
func (c *Console) executionsFragment(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	p := panel{Path: "/executions", WorkflowID: query.Get("workflow"), NodeID: query.Get("node"), First: true}
	if p.WorkflowID != "" {
		p.Path = "/workflows/" + url.PathEscape(p.WorkflowID)
	}
	p.Filter, _ = panelFilterOf(query)
	limit, _ := strconv.Atoi(query.Get("limit")) // not a number: none
	p.Limit = cmp.Or(min(max(0, limit), panelRows), panelRows)
	if err := c.fill(r.Context(), &p, store.Position{}); err != nil {
		c.failed(w, r, err)
		return
	}
	c.write(w, r, http.StatusOK, "fragment", "newest", p)
}
