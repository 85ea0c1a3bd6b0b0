package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// auditList is the template data of the audit page.
type auditList struct {
	pager
	Filter    auditFilter
	Spans     []timeSpan
	Accounts  []linkChoice // suggestions for the filter
	Workflows []linkChoice
	Rows      []auditRow
}

// auditFilter is the filter of the audit page. An empty field matches every entry. Within is the ID
// of a time span.
type auditFilter struct {
	Actor, Account, Workflow, Within string
}

// Any reports whether any field of the filter is set. If so, the page may show only some of the
// entries.
func (f auditFilter) Any() bool { return f != auditFilter{} }

func parseAuditFilter(query url.Values) (f auditFilter, ignored []string) {
	read := filterReader{query: query}
	f = auditFilter{
		Actor:    read.text("actor"),
		Account:  read.text("account"),
		Workflow: read.text("workflow"),
		Within:   read.timeSpanID(auditTimeSpans),
	}
	return f, read.ignored
}

// query returns the filter as the URL query of a link to the audit page.
func (f auditFilter) query() url.Values {
	return queryOf(map[string]string{
		"actor":    f.Actor,
		"account":  f.Account,
		"workflow": f.Workflow,
		"within":   f.Within,
	})
}

// auditRow is the template data of one entry on the audit page.
type auditRow struct {
	api.AuditEntry
	ActorName         string // name of the actor, for display
	SameActorURL      string // URL of the list of all entries with this actor
	ShownChanges      []fieldChange
	HiddenChangeCount int // number of changed fields that are not shown
}

// fieldChange describes the change of one field. An empty From or To means that the field was not
// set.
type fieldChange struct {
	Field, From, To string
	ToIsExecutionID bool // To is the ID of an execution
}

// maxShownChanges is the maximum number of changed fields shown in a row.
const maxShownChanges = 12

func (c *Console) auditList(r *http.Request) (list auditList, err error) {
	ctx := r.Context()
	filter, ignored := parseAuditFilter(r.URL.Query())
	found, at, err := fetchList(r, filter.query(), ignored,
		func(p operate.PageOptions) (api.List[api.AuditEntry], error) {
			return c.Operate.AuditEntries(ctx, signin.Caller(ctx), operate.AuditFilter{
				Actor:      filter.Actor,
				AccountID:  filter.Account,
				WorkflowID: filter.Workflow,
				Since:      timeSpanStart(filter.Within, time.Now()),
			}, p)
		})
	if err != nil {
		return list, err
	}
	list = auditList{pager: at, Filter: filter, Spans: auditTimeSpans}
	for _, entry := range found {
		list.Rows = append(list.Rows, auditRowOf(entry))
	}
	list.Workflows, list.Accounts, err = c.suggestionsForFilters(ctx)
	return list, err
}

func auditRowOf(entry api.AuditEntry) auditRow {
	row := auditRow{
		AuditEntry: entry,
		ActorName:  cmp.Or(entry.Actor.Name, entry.Actor.ID, entry.Actor.Kind),
	}
	row.SameActorURL = "/audit?" + url.Values{
		"actor": {cmp.Or(entry.Actor.ID, entry.Actor.Name, entry.Actor.Kind)},
	}.Encode()
	for _, change := range entry.Changes[:min(len(entry.Changes), maxShownChanges)] {
		row.ShownChanges = append(row.ShownChanges, fieldChange{
			Field:           change.Field,
			From:            changedValueText(change.From),
			To:              changedValueText(change.To),
			ToIsExecutionID: change.Field == "executionId",
		})
	}
	row.HiddenChangeCount = len(entry.Changes) - len(row.ShownChanges)
	return row
}

// changedValueText formats the old or new value of a changed field for display. It returns "" for
// nil, which means that the field was not set, and a pair of quotation marks for an empty string.
func changedValueText(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return cmp.Or(value, "“”")
	case float64: // encoding/json decodes all numbers to float64
		return fmt.Sprint(int64(value))
	default:
		return fmt.Sprint(value)
	}
}
