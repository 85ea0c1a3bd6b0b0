package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// deadLetterList is the template data of the dead letters page.
type deadLetterList struct {
	pager
	Filter         deadLetterFilter
	Workflows      []linkChoice // suggestions for the filter
	Rows           []deadLetterRow
	RefusedID      string      // the dead letter whose form was refused
	RefusalMessage formMessage // what the page says about the refusal
	Bulk           formView
	Question       *bulkDialog // set if the page asks to confirm a bulk change
}

// deadLetterFilter is the filter of the dead letters page. An empty field matches every dead
// letter.
type deadLetterFilter struct {
	Workflow, Reason, Within string
}

// Any reports whether any field of the filter is set. If so, the page may show only some of the
// dead letters.
func (f deadLetterFilter) Any() bool { return f != deadLetterFilter{} }

func parseDeadLetterFilter(query url.Values) (f deadLetterFilter, ignored []string) {
	read := filterReader{query: query}
	f = deadLetterFilter{
		Workflow: read.text("workflow"),
		Reason:   query.Get("reason"),
		Within:   read.timeSpanID(filterTimeSpans),
	}
	return f, read.ignored
}

// query returns the filter as the URL query of a link to the dead letters page.
func (f deadLetterFilter) query() url.Values {
	return queryOf(map[string]string{
		"workflow": f.Workflow,
		"reason":   f.Reason,
		"within":   f.Within,
	})
}

// operateFilter converts the filter to one for package operate. at is the time at which the
// selected time span ends.
func (f deadLetterFilter) operateFilter(at time.Time) operate.DeadLetterFilter {
	return operate.DeadLetterFilter{
		WorkflowID: f.Workflow, Reason: f.Reason, Since: timeSpanStart(f.Within, at),
	}
}

func (c *Console) deadLettersHandler() http.HandlerFunc {
	return pageHandler(c, "dead-letters", page{Title: "Dead letters", Section: "dead-letters"},
		c.deadLetterList)
}

// requeueDeadLetterForm returns the form that requeues a dead letter. If the requeue is refused,
// the reason appears at the top of the page, because the dead letter's row may no longer be in the
// list.
func (c *Console) requeueDeadLetterForm() *form {
	return &form{
		name:         "requeue",
		idPathParams: []string{"id"},
		operation:    "RequeueExecution",
		pageURL:      listPageURL("/dead-letters"),
		showPage:     c.deadLettersHandler(),
		save: func(r *http.Request, p *postedForm) (string, error) {
			id := r.PathValue("id")
			started, err := c.Operate.RequeueExecution(r.Context(), signin.Caller(r.Context()), id)
			done := "Started."
			if operate.IsMessageDeadLetterID(id) {
				done = "Recorded."
			}
			return p.recordStartedExecution(started, done), err
		},
	}
}

type deadLetterRow struct {
	api.DeadLetter
	operate.ExecutionOrigin
}

// Took returns the time from the acceptance of the execution to its failure.
func (r deadLetterRow) Took() time.Duration { return r.FailedAt.Sub(r.At) }

func (c *Console) deadLetterList(r *http.Request) (list deadLetterList, err error) {
	ctx := r.Context()
	filter, ignored := parseDeadLetterFilter(r.URL.Query())
	found, at, err := fetchList(r, filter.query(), ignored,
		func(p operate.PageOptions) (api.List[api.DeadLetter], error) {
			return c.Operate.DeadLetters(
				ctx,
				signin.Caller(ctx),
				filter.operateFilter(time.Now()),
				p,
			)
		})
	if err != nil {
		return list, err
	}
	list = deadLetterList{
		pager: at, Filter: filter, RefusalMessage: formMessage{ID: "dead-letters-said"},
		Bulk: newBulkFormView(ctx), Question: confirmDialogData[bulkDialog](ctx),
	}
	if p := postedFormFromContext(ctx); p != nil && p.name != bulkFormName {
		list.RefusedID, list.RefusalMessage.Text, list.RefusalMessage.Focus = r.PathValue("id"),
			p.Message, true
	}
	if list.Workflows, _, err = c.suggestionsForFilters(ctx); err != nil {
		return list, err
	}
	for _, letter := range found {
		from, err := c.lookUpOrigin(ctx, letter.WorkflowID, letter.NodeID)
		if err != nil {
			return list, err
		}
		list.Rows = append(list.Rows, deadLetterRow{letter, from})
	}
	return list, nil
}
