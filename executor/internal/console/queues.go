package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// queueList is the data of the page of queues.
type queueList struct {
	listPage
	Rows []queueRow
}

type queueRow struct {
	api.Queue
	Members int // of all groups
}

func (c *Console) listQueues(w http.ResponseWriter, r *http.Request) {
	list, err := c.queueList(r)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, "queues", page{Title: "Queues", Section: "queues", Body: list})
}

// queuesFragment is the list as it is now.
func (c *Console) queuesFragment(w http.ResponseWriter, r *http.Request) {
	list, err := c.queueList(r)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	c.write(w, r, http.StatusOK, "queues", "queue-rows", list)
	note(r, "fragment", nil)
}

func (c *Console) queueList(r *http.Request) (list queueList, err error) {
	ctx := r.Context()
	found, at, err := askList(r, url.Values{}, func(p operate.Page) (api.List[api.Queue], error) {
		return c.Operate.Queues(ctx, signin.Caller(ctx), "", p)
	})
	if err != nil {
		return list, err
	}
	list.listPage = at
	for _, q := range found {
		row := queueRow{Queue: q}
		for _, g := range q.Groups {
			row.Members += g.Members
		}
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

// idleQueue is a queue that nobody takes, as the last look found it.
func (c *Console) idleQueues(ctx context.Context) (map[string]api.Queue, error) {
	return c.Operate.NobodyTakes(ctx, signin.Caller(ctx))
}
