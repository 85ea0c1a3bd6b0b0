package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// deadLetterList is the data of the page of dead letters.
type deadLetterList struct {
	listPage
	Rows []deadLetterRow
}

type deadLetterRow struct {
	api.DeadLetter
	origin
}

// Took is from the acceptance to the failure.
func (r deadLetterRow) Took() time.Duration { return r.FailedAt.Sub(r.At) }

func (c *Console) listDeadLetters(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	found, at, err := askList(r, url.Values{}, func(p operate.Page) (api.List[api.DeadLetter], error) {
		return c.Operate.DeadLetters(ctx, signin.Caller(ctx), operate.DeadLetterFilter{}, p)
	})
	if err != nil {
		c.failed(w, r, err)
		return
	}
	list := deadLetterList{listPage: at}
	for _, letter := range found {
		from, err := c.origin(ctx, letter.WorkflowID, letter.NodeID)
		if err != nil {
			c.failed(w, r, err)
			return
		}
		list.Rows = append(list.Rows, deadLetterRow{letter, from})
	}
	c.render(w, r, http.StatusOK, "dead-letters", page{Title: "Dead letters", Section: "dead-letters", Body: list})
}
