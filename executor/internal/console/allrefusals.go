package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/store"
	"github.com/hookstart/hookstart/shared/webhook"
)

// allRefusals is the data of the page of what was refused, of all workflows.
type allRefusals struct {
	listPage
	Within string // one of spans
	Rows   []refusedRow
}

// refusedRow is how often requests to a workflow were refused with one code.
type refusedRow struct {
	refusal
	WorkflowID string // "": of none that exists
	Name       string
	Exists     bool // the workflow does, still
}

// refusedWithin is how far back the page looks unless somebody says how far.
const refusedWithin = "24h"

func (c *Console) listRefusals(w http.ResponseWriter, r *http.Request) {
	p := allRefusals{Within: refusedWithin}
	var ignored []string
	query := url.Values{}
	if asked := r.URL.Query().Get("within"); spans[asked] > 0 {
		p.Within = asked
		query.Set("within", asked)
	} else if asked != "" {
		ignored = append(ignored, "“"+shortened(asked)+"” is no span of time")
	}
	since := time.Now().Add(-spans[p.Within]).UTC().Format(time.RFC3339)
	found, at, err := askList[api.WorkflowRefusal](c, r, "/refusals", url.Values{"since": {since}}, query)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	p.listPage = at
	p.Ignored = append(ignored, p.Ignored...)
	for _, one := range found {
		row := refusedRow{WorkflowID: one.WorkflowID, Name: one.WorkflowID, refusal: refusal{refusalOf(one.Refusal), advice[webhook.Code(one.Code)]}}
		if workflow, exists := c.Directory.Workflow(one.WorkflowID); exists {
			row.Exists, row.Name = true, nameOr(workflow.Record.GetName(), one.WorkflowID)
		}
		p.Rows = append(p.Rows, row)
	}
	c.render(w, r, http.StatusOK, "refusals", page{Title: "Refusals", Section: "refusals", Body: p})
}

// refusalOf is what the API says as the database does.
func refusalOf(wire api.Refusal) store.RefusalSum {
	sum := store.RefusalSum{Code: wire.Code, Count: wire.Count, Last: store.RefusedRequest{At: wire.Last.At, BodyBytes: -1, UserAgent: wire.Last.UserAgent}}
	if wire.Last.BodyBytes != nil {
		sum.Last.BodyBytes = *wire.Last.BodyBytes
	}
	return sum
}
