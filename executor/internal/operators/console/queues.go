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
	pager
	Rows           []queueRow
	RefusalMessage formMessage // what the page says if one of its forms was refused
}

type queueRow struct {
	api.Queue
	Members int // number of members in all groups
	// MembersUnknown means that Members is 0, although the queue may have runners: this executor
	// has not listened for them long enough yet, or the queue's own stream has not answered.
	MembersUnknown bool
	// Pause, Limits and Stream are the queue's forms. Limits holds one form for each group, keyed
	// by the group's name.
	Pause, Stream formView
	Limits        map[string]formView // forms of the groups' limits, by group name
}

func (c *Console) queueList(r *http.Request) (list queueList, err error) {
	ctx := r.Context()
	found, at, err := fetchList(r, url.Values{}, nil,
		func(p operate.PageOptions) (api.List[api.Queue], error) {
			return c.Operate.Queues(ctx, signin.Caller(ctx), "", p)
		})
	if err != nil {
		return list, err
	}
	list.pager = at
	list.RefusalMessage.ID = "queue-said"
	if p := postedFormFromContext(ctx); p != nil {
		list.RefusalMessage.Text, list.RefusalMessage.Focus = r.PathValue("queue")+": "+p.Message,
			true
	}
	for _, q := range found {
		row := queueRow{
			Queue: q,
			Stream: newFormView(ctx, formName("stream", q.Queue),
				ownStreamFields(ownStreamSettings(q))),
			Pause:  newFormView(ctx, formName("pause", q.Queue), map[string]string{"seconds": "0"}),
			Limits: map[string]formView{},
		}
		unknown := q.Incomplete
		for _, g := range q.Groups {
			row.Members += g.Members
			unknown = unknown || g.MembersUnknown
			row.Limits[g.Group] = newFormView(ctx, formName("limit", q.Queue, g.Group),
				map[string]string{"limit": optionalNumberText(g.MaxInFlight)})
		}
		row.MembersUnknown = unknown && row.Members == 0
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}
