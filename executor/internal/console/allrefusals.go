package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
	"github.com/hookstart/hookstart/shared/webhook"
)

// allRefusals is the data of the page of refused requests to all workflows.
type allRefusals struct {
	listPage
	Within string // one of spans
	Rows   []refusedRow
}

// refusedRow is how often requests to a workflow were refused with one code.
type refusedRow struct {
	refusal
	origin
	WorkflowID string // "": the workflow does not exist
}

// refusedWithin is the default time span of the page.
const refusedWithin = "24h"

func (c *Console) listRefusals(w http.ResponseWriter, r *http.Request) {
	ctx, p := r.Context(), allRefusals{Within: refusedWithin}
	var ignored []string
	query := url.Values{}
	if asked := r.URL.Query().Get("within"); spans[asked] > 0 {
		p.Within = asked
		query.Set("within", asked)
	} else if asked != "" {
		ignored = append(ignored, "“"+shortened(asked)+"” is not a span of time")
	}
	since := time.Now().Add(-spans[p.Within])
	found, at, err := askList(r, query, func(p operate.Page) (api.List[api.WorkflowRefusal], error) {
		return c.Operate.AllRefusals(ctx, signin.Caller(ctx), "", since, p)
	})
	if err != nil {
		c.failed(w, r, err)
		return
	}
	p.listPage = at
	p.Ignored = append(ignored, p.Ignored...)
	for _, one := range found {
		from, err := c.origin(ctx, one.WorkflowID, "")
		if err != nil {
			c.failed(w, r, err)
			return
		}
		p.Rows = append(p.Rows, refusedRow{refusal{one.Refusal, advice[webhook.Code(one.Code)]}, from, one.WorkflowID})
	}
	c.render(w, r, http.StatusOK, "refusals", page{Title: "Refusals", Section: "refusals", Body: p})
}
