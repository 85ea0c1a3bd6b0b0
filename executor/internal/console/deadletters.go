package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// deadLetterList is the data of the page of dead letters.
type deadLetterList struct {
	listPage
	Filter    deadLetterFilter
	Workflows []choice // that the filter suggests
	Rows      []deadLetterRow
}

// deadLetterFilter is the filter of the page; empty fields do not filter.
type deadLetterFilter struct {
	Workflow, Reason, Within string
}

// Any says whether anything is filtered.
func (f deadLetterFilter) Any() bool { return f != deadLetterFilter{} }

func deadLetterFilterOf(query url.Values) (f deadLetterFilter, ignored []string) {
	f.Workflow, f.Reason, f.Within = strings.TrimSpace(query.Get("workflow")), query.Get("reason"), query.Get("within")
	if f.Within != "" && spans[f.Within] == 0 {
		ignored = append(ignored, "“"+shortened(f.Within)+"” is not a span of time")
		f.Within = ""
	}
	return f, ignored
}

// since is the beginning of the span; zero: there is none.
func (f deadLetterFilter) since(now time.Time) (at time.Time) {
	if span := spans[f.Within]; span > 0 {
		at = now.Add(-span).UTC()
	}
	return at
}

// query is the filter's part of a link.
func (f deadLetterFilter) query() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"workflow": f.Workflow, "reason": f.Reason, "within": f.Within} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// Selected is the request body of a button for all matching dead letters: those that matched when the page was rendered.
func (l deadLetterList) Selected() string {
	now := time.Now()
	text, err := json.Marshal(api.SelectDeadLetters{
		WorkflowID: l.Filter.Workflow, Reason: l.Filter.Reason, Since: l.Filter.since(now), Until: now.UTC(),
	})
	if err != nil {
		panic(err) // texts and times always marshal
	}
	return string(text)
}

type deadLetterRow struct {
	api.DeadLetter
	origin
}

// Took is from the acceptance to the failure.
func (r deadLetterRow) Took() time.Duration { return r.FailedAt.Sub(r.At) }

func (c *Console) listDeadLetters(w http.ResponseWriter, r *http.Request) {
	list, err := c.deadLetterList(r)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "dead-letters", page{Title: "Dead letters", Section: "dead-letters", Body: list})
}

func (c *Console) deadLetterList(r *http.Request) (list deadLetterList, err error) {
	ctx := r.Context()
	filter, ignored := deadLetterFilterOf(r.URL.Query())
	found, at, err := askList(r, filter.query(), func(p operate.Page) (api.List[api.DeadLetter], error) {
		return c.Operate.DeadLetters(ctx, signin.Caller(ctx), operate.DeadLetterFilter{
			WorkflowID: filter.Workflow, Reason: filter.Reason, Since: filter.since(time.Now()),
		}, p)
	})
	if err != nil {
		return list, err
	}
	at.Ignored = slices.Concat(ignored, at.Ignored)
	list = deadLetterList{listPage: at, Filter: filter}
	if list.Workflows, _, err = c.suggestions(ctx); err != nil {
		return list, err
	}
	for _, letter := range found {
		from, err := c.origin(ctx, letter.WorkflowID, letter.NodeID)
		if err != nil {
			return list, err
		}
		list.Rows = append(list.Rows, deadLetterRow{letter, from})
	}
	return list, nil
}
