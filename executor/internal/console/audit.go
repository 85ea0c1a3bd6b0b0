package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// auditList is the data of the audit page.
type auditList struct {
	listPage
	Filter    auditFilter
	Spans     []choice
	Accounts  []choice // that the filter suggests
	Workflows []choice
	Rows      []auditRow
}

// auditFilter is the filter of the audit page; empty fields do not filter.
type auditFilter struct {
	Actor, Account, Workflow, Within string
}

// Any says whether anything is filtered.
func (f auditFilter) Any() bool { return f != auditFilter{} }

// auditSpans are the time spans of the filter. They are longer than those of executions, because audit entries are kept
// longer.
var auditSpans = map[string]time.Duration{
	"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour, "90d": 90 * 24 * time.Hour,
}

// auditSpanNames are their names, the shortest first.
var auditSpanNames = []choice{
	{ID: "1h", Name: "last hour"}, {ID: "24h", Name: "last 24 hours"}, {ID: "7d", Name: "last 7 days"}, {ID: "30d", Name: "last 30 days"}, {ID: "90d", Name: "last 90 days"},
}

func auditFilterOf(query url.Values) (f auditFilter, ignored []string) {
	text := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	f = auditFilter{Actor: text("actor"), Account: text("account"), Workflow: text("workflow"), Within: query.Get("within")}
	if f.Within != "" && auditSpans[f.Within] == 0 {
		ignored = append(ignored, "“"+shortened(f.Within)+"” is not a span of time")
		f.Within = ""
	}
	return f, ignored
}

// query is the filter's part of a link.
func (f auditFilter) query() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"actor": f.Actor, "account": f.Account, "workflow": f.Workflow, "within": f.Within} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// asked is the filter for package operate.
func (f auditFilter) asked(now time.Time) operate.AuditFilter {
	filter := operate.AuditFilter{Actor: f.Actor, AccountID: f.Account, WorkflowID: f.Workflow}
	if span := auditSpans[f.Within]; span > 0 {
		filter.Since = now.Add(-span)
	}
	return filter
}

// auditRow is one entry.
type auditRow struct {
	api.AuditEntry
	Who  string // for people
	Same string // the link to all entries of this actor
	What []changeText
	More int // fields that are not shown
}

// changeText is the change of a field. Empty texts: it was not set.
type changeText struct {
	Field, From, To string
	Execution       bool // To is the ID of one
}

// maxShownChanges is the maximum number of fields of an entry in a row.
const maxShownChanges = 12

func (c *Console) listAudit(w http.ResponseWriter, r *http.Request) {
	list, err := c.auditList(r)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "audit", page{Title: "Audit", Section: "audit", Body: list})
}

func (c *Console) auditList(r *http.Request) (list auditList, err error) {
	ctx := r.Context()
	filter, ignored := auditFilterOf(r.URL.Query())
	found, at, err := askList(r, filter.query(), func(p operate.Page) (api.List[api.AuditEntry], error) {
		return c.Operate.Audit(ctx, signin.Caller(ctx), filter.asked(time.Now()), p)
	})
	if err != nil {
		return list, err
	}
	at.Ignored = slices.Concat(ignored, at.Ignored)
	list = auditList{listPage: at, Filter: filter, Spans: auditSpanNames}
	for _, entry := range found {
		list.Rows = append(list.Rows, auditRowOf(entry))
	}
	list.Workflows, list.Accounts, err = c.suggestions(ctx)
	return list, err
}

func auditRowOf(entry api.AuditEntry) auditRow {
	row := auditRow{AuditEntry: entry, Who: cmp.Or(entry.Actor.Name, entry.Actor.ID, entry.Actor.Kind)}
	row.Same = "/audit?" + url.Values{"actor": {cmp.Or(entry.Actor.ID, entry.Actor.Name, entry.Actor.Kind)}}.Encode()
	for _, change := range entry.Changes[:min(len(entry.Changes), maxShownChanges)] {
		row.What = append(row.What, changeText{
			Field: change.Field, From: changeValue(change.From), To: changeValue(change.To), Execution: change.Field == "executionId",
		})
	}
	row.More = len(entry.Changes) - len(row.What)
	return row
}

// changeValue is a value for people; "": there is none.
func changeValue(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return cmp.Or(value, "“”")
	case float64: // as JSON has all numbers
		return fmt.Sprint(int64(value))
	default:
		return fmt.Sprint(value)
	}
}
