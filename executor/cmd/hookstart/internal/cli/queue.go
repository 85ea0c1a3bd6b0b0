package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type queueVerbs struct {
	Pause  queuePause  `cmd:"" help:"Hand nothing new to the runners of a queue." detail:"What runs goes on; what is accepted waits. It also holds for groups that are made later, and after restarts." example:"hookstart queue pause default --for 2h"`
	Resume queueResume `cmd:"" help:"End the pause of a queue." example:"hookstart queue resume default"`
	Limit  queueLimit  `cmd:"" help:"Limit how many executions a group of runners has in flight at all its members together." example:"hookstart queue limit default main 1"`
	List   queueList   `cmd:"" help:"List the queues: what waits, and which runners take it." detail:"Of every queue that a workflow names: how many starts wait, since when, and which groups of runners take them, with how many members." example:"hookstart queue list"`
}

type queueList struct{ paging }

func (v *queueList) Run(s *session) error {
	return list(s, v.paging, func(p apiclient.Page) (api.List[api.Queue], error) {
		return s.client.Queues(s.ctx, p)
	}, listing[api.Queue]{
		// The groups come last, because they are the only cell that may be long.
		head: []string{"QUEUE", "WAITING", "OLDEST", "RUNNERS", "GROUPS"},
		row: func(q api.Queue) []string {
			members, groups := 0, []string{}
			for _, g := range q.Groups {
				members += g.Members
				var text strings.Builder
				fmt.Fprintf(&text, "%s (%d, %d waiting", g.Group, g.Members, g.Waiting)
				if g.MaxInFlight != nil {
					fmt.Fprintf(&text, ", at most %d in flight", *g.MaxInFlight)
				}
				if g.Members == 0 && !g.LastSeenAt.IsZero() {
					text.WriteString(", last seen " + ago(g.LastSeenAt, s.now()))
				}
				for _, h := range g.Held {
					fmt.Fprintf(&text, ", key %q of %s held up by %s, %s: %d behind it", h.OrderKey,
						h.WorkflowID, h.ExecutionID, ago(h.Since, s.now()), h.Waiting)
				}
				groups = append(groups, text.String()+")")
			}
			if len(groups) == 0 {
				groups = []string{"none: nobody takes it"}
			}
			name := q.Queue
			if q.Paused != nil {
				name += " (" + pausedText(*q.Paused) + ")"
			}
			return []string{
				name, strconv.FormatUint(q.Waiting, 10), agoOr(q.OldestAcceptedAt, s.now(), "–"),
				strconv.Itoa(members), strings.Join(groups, ", "),
			}
		},
		none: "No workflow names a queue.",
	})
}

// pausedText returns a text that says that a queue is paused, and until when.
func pausedText(p api.QueuePause) string {
	if p.Until.IsZero() {
		return "paused"
	}
	return "paused until " + p.Until.UTC().Format(time.RFC3339)
}

type queueArg struct {
	Queue string `arg:"" help:"The queue's name." type:"id"`
}

type queuePause struct {
	queueArg
	For   span      `help:"After how long the pause ends by itself, like 90m or 2d. Default: when the queue is resumed." placeholder:"DURATION"`
	Until time.Time `help:"When the pause ends by itself, like 2026-01-31T15:04:05Z." placeholder:"TIME"`
}

func (v *queuePause) Run(s *session) error {
	until := v.Until
	if v.For.seconds > 0 {
		if !until.IsZero() {
			return errors.New("--for and --until say the same: leave one out")
		}
		until = s.now().Add(time.Duration(v.For.seconds) * time.Second)
	}
	q, err := s.client.PauseQueue(s.ctx, v.Queue, until)
	if err != nil {
		return err
	}
	text := "paused"
	if q.Paused != nil {
		text = pausedText(*q.Paused)
	}
	return s.done(nil, "%s is %s", v.Queue, text)
}

type queueResume struct{ queueArg }

func (v *queueResume) Run(s *session) error {
	_, err := s.client.ResumeQueue(s.ctx, v.Queue)
	return s.done(err, "%s is resumed", v.Queue)
}

type queueLimit struct {
	queueArg
	Group string `arg:"" help:"The group's name." type:"id"`
	Limit string `arg:"" help:"How many, or none: as many as the members ask for."`
}

func (v *queueLimit) Run(s *session) error {
	if v.Limit == "none" {
		_, err := s.client.SetQueueGroup(s.ctx, v.Queue, v.Group, nil)
		return s.done(err, "%s of %s has no limit", v.Group, v.Queue)
	}
	limit, err := strconv.ParseInt(v.Limit, 10, 64)
	if err != nil || limit < 1 {
		return fmt.Errorf("LIMIT must be a number from 1 on, or none, but got %q", v.Limit)
	}
	_, err = s.client.SetQueueGroup(s.ctx, v.Queue, v.Group, &limit)
	return s.done(err, "%s of %s has at most %d in flight", v.Group, v.Queue, limit)
}
