package console

import (
	"cmp"
	"net/http"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/webhook"
)

// allRefusals is the template data of the refusals page.
type allRefusals struct {
	listPage
	Within string // ID of the time span, which is one of spans
	Rows   []refusedRow
}

// refusedRow is the number of requests to a workflow that were refused with the same code.
type refusedRow struct {
	refusal
	operate.ExecutionOrigin
	WorkflowID string // "" means that the workflow does not exist
}

// refusedWithin is the page's default time span.
const refusedWithin = "24h"

func (c *Console) allRefusals(r *http.Request) (p allRefusals, err error) {
	ctx, read := r.Context(), filterReader{query: r.URL.Query()}
	within := read.timeSpanID(spans)
	p.Within = cmp.Or(within, refusedWithin)
	from := timeSpanStart(p.Within)
	found, at, err := fetchList(r, queryOf(map[string]string{"within": within}), read.ignored, func(
		p operate.Page,
	) (api.List[api.WorkflowRefusal], error) {
		return c.Operate.AllRefusals(ctx, signin.Caller(ctx), "", from, p)
	})
	if err != nil {
		return p, err
	}
	p.listPage = at
	for _, counted := range found {
		from, err := c.origin(ctx, counted.WorkflowID, "")
		if err != nil {
			return p, err
		}
		p.Rows = append(p.Rows, refusedRow{
			refusal{counted.Refusal, advice[webhook.Code(counted.Code)]}, from, counted.WorkflowID,
		})
	}
	return p, nil
}
