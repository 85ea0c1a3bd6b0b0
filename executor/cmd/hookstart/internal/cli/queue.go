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

type queueCmds struct {
	Pause  queuePauseCmd   `cmd:"" help:"Hand nothing new to the runners of a queue." detail:"What runs goes on; what is accepted waits. It also holds for groups that are made later, and after restarts." example:"hookstart queue pause default --for 2h"`
	Resume queueResumeCmd  `cmd:"" help:"End the pause of a queue." example:"hookstart queue resume default"`
	Limit  queueLimitCmd   `cmd:"" help:"Limit how many executions a group of runners has in flight at all its members together." example:"hookstart queue limit default main 1"`
	Stream queueStreamCmds `cmd:"" help:"Give a queue a stream of its own, or take it away."`
	List   queueListCmd    `cmd:"" help:"List the queues: what waits, and which runners take it." detail:"Of every queue that a workflow names, or that is paused, or has a stream or a limit of its own: how many starts wait, since when, and which groups of runners take them, with how many members: ? if that is not known, because the executor has just started or the queue's own stream does not answer." example:"hookstart queue list"`
}

type queueListCmd struct{ paging }

func (v *queueListCmd) Run(s *session) error {
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.Queue], error) {
		return s.client.Queues(s.ctx, p)
	}, listFormat[api.Queue]{
		// The groups come last because they are the only cell that may be long.
		header: []string{"QUEUE", "WAITING", "OLDEST", "RUNNERS", "GROUPS"},
		formatRow: func(q api.Queue) []string {
			members, unknown, groups := 0, q.Incomplete, []string{}
			for _, g := range q.Groups {
				members += g.Members
				unknown = unknown || g.MembersUnknown
				var text strings.Builder
				fmt.Fprintf(&text, "%s (%s, %d waiting", g.Group,
					runnerCountText(g.Members, g.MembersUnknown), g.Waiting)
				if g.MaxInFlight != nil {
					fmt.Fprintf(&text, ", at most %d in flight", *g.MaxInFlight)
				}
				if g.Members == 0 && !g.LastSeenAt.IsZero() {
					text.WriteString(", last seen " + ago(g.LastSeenAt, s.now()))
				}
				for _, h := range g.Held {
					fmt.Fprintf(&text, ", key %q of %s waits for %s, begun %s: %d behind it",
						h.OrderKey, h.WorkflowID, h.ExecutionID, ago(h.Since, s.now()), h.Waiting)
				}
				groups = append(groups, text.String()+")")
			}
			if len(groups) == 0 && unknown {
				groups = []string{"not known"}
			} else if len(groups) == 0 {
				groups = []string{"none: nobody takes it"}
			}
			name := q.Queue
			if q.Paused != nil {
				name += " (" + pauseText(*q.Paused) + ")"
			}
			if q.OwnStream != nil {
				name += " (" + ownStreamPhaseText(q.OwnStream) + ")"
			}
			if q.Incomplete {
				name += " (own stream does not answer)"
			}
			return []string{
				name, strconv.FormatUint(q.Waiting, 10), agoOr(q.OldestAcceptedAt, s.now(), "–"),
				runnerCountText(members, unknown), strings.Join(groups, ", "),
			}
		},
		emptyListHint: "No workflow names a queue.",
	})
}

// runnerCountText returns the number of runners as text. unknown means that there may be more
// runners than were counted. If it is true and no runners were counted, runnerCountText returns
// "?".
func runnerCountText(members int, unknown bool) string {
	if members == 0 && unknown {
		return "?"
	}
	return strconv.Itoa(members)
}

// pauseText returns "paused" or, if the pause ends by itself, "paused until" and the time at which
// it ends.
func pauseText(p api.QueuePause) string {
	if p.Until.IsZero() {
		return "paused"
	}
	return "paused until " + p.Until.UTC().Format(time.RFC3339)
}

type queueStreamCmds struct {
	Set    queueStreamSetCmd    `cmd:"" help:"Give a queue a stream of its own, or change its settings." detail:"What is not named becomes as in the shared stream. It returns when the queue has moved; senders are answered 503 for seconds at most." example:"hookstart queue stream set default --max-bytes 10737418240"`
	Delete queueStreamDeleteCmd `cmd:"" help:"Move a queue back to the stream that all queues share." detail:"What waits in its own stream is run from there. It returns when the queue has moved." example:"hookstart queue stream delete default"`
}

type queueStreamSetCmd struct {
	queueArg
	MaxBytes  int64      `help:"The size in bytes at which it refuses what is new. Default: no limit." placeholder:"BYTES"`
	MaxAge    secondsArg `help:"How long it keeps messages, like 36h or 7d. Default: as long as the shared stream." placeholder:"DURATION"`
	Replicas  int64      `help:"How many servers hold it: 1, 3 or 5. Default: as many as the shared stream." placeholder:"N"`
	Placement []string   `help:"Tag of the servers that hold it; repeatable. Default: any server." placeholder:"TAG"`
}

func (v *queueStreamSetCmd) Run(s *session) error {
	_, err := s.client.SetQueueStream(s.ctx, v.Queue, api.PutQueueStream{
		MaxBytes:      v.MaxBytes,
		MaxAgeSeconds: v.MaxAge.seconds,
		Replicas:      v.Replicas,
		PlacementTags: v.Placement,
	})
	return s.printResultLine(err, "%s has a stream of its own", v.Queue)
}

type queueStreamDeleteCmd struct{ queueArg }

func (v *queueStreamDeleteCmd) Run(s *session) error {
	return s.printResultLine(
		s.client.DropQueueStream(s.ctx, v.Queue),
		"%s is in the shared stream",
		v.Queue,
	)
}

// ownStreamPhaseText returns a text that says whether a queue uses its own stream, drains it, or is
// moving between streams.
func ownStreamPhaseText(q *api.QueueStream) string {
	switch q.Phase {
	case "own":
		return "own stream"
	case "draining":
		return "own stream drains"
	default:
		return "moves"
	}
}

type queueArg struct {
	Queue string `arg:"" help:"The queue's name." type:"id"`
}

type queuePauseCmd struct {
	queueArg
	For   secondsArg `help:"After how long the pause ends by itself, like 90m or 2d. Default: when the queue is resumed." placeholder:"DURATION"`
	Until time.Time  `help:"When the pause ends by itself, like 2026-01-31T15:04:05Z." placeholder:"TIME"`
}

func (v *queuePauseCmd) Run(s *session) error {
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
		text = pauseText(*q.Paused)
	}
	return s.printResultLine(nil, "%s is %s", v.Queue, text)
}

type queueResumeCmd struct{ queueArg }

func (v *queueResumeCmd) Run(s *session) error {
	_, err := s.client.ResumeQueue(s.ctx, v.Queue)
	return s.printResultLine(err, "%s is resumed", v.Queue)
}

type queueLimitCmd struct {
	queueArg
	Group string `arg:"" help:"The group's name." type:"id"`
	Limit string `arg:"" help:"How many, or none: as many as the members ask for."`
}

func (v *queueLimitCmd) Run(s *session) error {
	if v.Limit == "none" {
		_, err := s.client.SetQueueGroup(s.ctx, v.Queue, v.Group, nil)
		return s.printResultLine(err, "%s of %s has no limit", v.Group, v.Queue)
	}
	limit, err := strconv.ParseInt(v.Limit, 10, 64)
	if err != nil || limit < 1 {
		return fmt.Errorf("LIMIT must be a number from 1 on, or none, but got %q", v.Limit)
	}
	_, err = s.client.SetQueueGroup(s.ctx, v.Queue, v.Group, &limit)
	return s.printResultLine(err, "%s of %s has at most %d in flight", v.Group, v.Queue, limit)
}
