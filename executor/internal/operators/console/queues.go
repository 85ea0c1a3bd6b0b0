package console

import (
	"net/http"
	"net/url"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// queueList is the template data of the queues page.
type queueList struct {
	listPage
	Rows []queueRow
}

type queueRow struct {
	api.Queue
	Members int // number of members in all groups
}

func (c *Console) queueList(r *http.Request) (list queueList, err error) {
	ctx := r.Context()
	found, at, err := fetchList(r, url.Values{}, nil,
		func(p operate.Page) (api.List[api.Queue], error) {
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
