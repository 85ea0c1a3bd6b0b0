package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/api"
)

// deadLetterList is the data of the page of dead letters.
type deadLetterList struct {
	listPage
	Rows []deadLetterRow
}

type deadLetterRow struct {
	api.DeadLetter
	WorkflowName string
	HasWorkflow  bool // it still exists
	HasNode      bool // its trigger node, too: it can be requeued as long as its input is there
}

// Took is from the acceptance to the failure.
func (r deadLetterRow) Took() time.Duration { return r.FailedAt.Sub(r.At) }

func (c *Console) listDeadLetters(w http.ResponseWriter, r *http.Request) {
	found, at, err := askList[api.DeadLetter](c, r, "/dead-letters", url.Values{}, url.Values{})
	if err != nil {
		c.failed(w, r, err)
		return
	}
	list := deadLetterList{listPage: at}
	for _, letter := range found {
		row := deadLetterRow{DeadLetter: letter, WorkflowName: letter.WorkflowID}
		if workflow, exists := c.Directory.Workflow(letter.WorkflowID); exists {
			row.HasWorkflow, row.WorkflowName = true, nameOr(workflow.Record.GetName(), letter.WorkflowID)
			row.HasNode = hasNode(workflow.Record, letter.NodeID)
		}
		list.Rows = append(list.Rows, row)
	}
	c.render(w, r, http.StatusOK, "dead-letters", page{Title: "Dead letters", Section: "dead-letters", Body: list})
}
