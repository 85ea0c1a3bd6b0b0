package console

import (
	"cmp"
	"net/http"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/webhook"
)

// refusalList is the template data of the refusals page.
type refusalList struct {
	pager
	Within string // ID of the time span, which is one of filterTimeSpans
	Rows   []refusalRow
}

// refusalRow is a row of the refusals page. It says how many requests to one workflow were refused
// with one error code.
type refusalRow struct {
	refusal
	operate.ExecutionOrigin
	WorkflowID string // "" means that the workflow does not exist
}

// defaultRefusalSpan is the ID of the time span whose refusals the page shows if the request
// selects no time span.
const defaultRefusalSpan = "24h"

func (c *Console) refusalList(r *http.Request) (p refusalList, err error) {
	ctx, read := r.Context(), filterReader{query: r.URL.Query()}
	within := read.timeSpanID(filterTimeSpans)
	p.Within = cmp.Or(within, defaultRefusalSpan)
	from := timeSpanStart(p.Within, time.Now())
	found, at, err := fetchList(r, queryOf(map[string]string{"within": within}), read.ignored, func(
		p operate.PageOptions,
	) (api.List[api.WorkflowRefusal], error) {
		return c.Operate.AllRefusals(ctx, signin.Caller(ctx), "", from, p)
	})
	if err != nil {
		return p, err
	}
	p.pager = at
	for _, counted := range found {
		from, err := c.lookUpOrigin(ctx, counted.WorkflowID, "")
		if err != nil {
			return p, err
		}
		p.Rows = append(p.Rows, refusalRow{
			refusal{counted.Refusal, refusalAdvice[webhook.Code(counted.Code)]},
			from,
			counted.WorkflowID,
		})
	}
	return p, nil
}
