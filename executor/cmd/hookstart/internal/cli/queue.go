package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type queueVerbs struct {
	List queueList `cmd:"" help:"List the queues: what waits, and which runners take it." detail:"Of every queue that a workflow names: how many starts wait, since when, and which groups of runners take them, with how many members." example:"hookstart queue list"`
}

type queueList struct{ paging }

func (v *queueList) Run(s *session) error {
	return list(s, v.paging, func(p apiclient.Page) (api.List[api.Queue], error) {
		return s.client.Queues(s.ctx, p)
	}, listing[api.Queue]{
		// The groups come last: they are the only cell that may be long.
		head: []string{"QUEUE", "WAITING", "OLDEST", "RUNNERS", "GROUPS"},
		row: func(q api.Queue) []string {
			members, groups := 0, []string{}
			for _, g := range q.Groups {
				members += g.Members
				text := fmt.Sprintf("%s (%d, %d waiting", g.Group, g.Members, g.Waiting)
				if g.Members == 0 && !g.LastSeenAt.IsZero() {
					text += ", last seen " + ago(g.LastSeenAt, s.now())
				}
				groups = append(groups, text+")")
			}
			if len(groups) == 0 {
				groups = []string{"none: nobody takes it"}
			}
			return []string{q.Queue, strconv.FormatUint(q.Waiting, 10), agoOr(q.OldestAcceptedAt, s.now(), "–"), strconv.Itoa(members), strings.Join(groups, ", ")}
		},
		none: "No workflow names a queue.",
	})
}
