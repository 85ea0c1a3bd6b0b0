package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
)

type accountEventsCmd struct {
	accountArg
	Workflow    string        `help:"Let the events start this workflow of the account." type:"id" placeholder:"WORKFLOW" xor:"events"`
	Kinds       []string      `help:"With --workflow: only these kinds, comma-separated. Default: all." placeholder:"KIND,…"`
	SilentAfter time.Duration `help:"With --workflow: after which time without a request a trigger node is silent, in whole seconds. Default: twice the longest pause of its last 7 days." placeholder:"DURATION"`
	Clear       bool          `help:"Let the events start no workflow." xor:"events"`
}

func (*accountEventsCmd) Help() string {
	return `Each event of the account starts one execution of the workflow, with the input {kind, at,
accountId, workflowId, executionId, queue, count, text}; count is how many occurrences it
tells of. The kinds: execution.failed, queue.unattended, sender.refused, sender.silent,
storage.low, and the last four with .recovered. An event about the workflow itself starts
nothing. Without a flag, the setting is shown, and what has begun and not ended; what was
told is in: hookstart execution list --source event

Examples:

  hookstart account events demo --workflow demo --kinds execution.failed
  hookstart account events demo
  hookstart account events demo --clear`
}

func (v *accountEventsCmd) Run(s *session) error {
	switch {
	case v.Clear:
		return s.printResultLine(s.client.DeleteEvents(s.ctx, v.Account),
			"the events of %s start no workflow",
			v.Account)
	case v.Workflow == "" && (len(v.Kinds) > 0 || v.SilentAfter != 0):
		return &usageError{
			"--kinds and --silent-after need --workflow", "hookstart account events --help",
		}
	case v.SilentAfter%time.Second != 0:
		return &usageError{
			"--silent-after must be whole seconds, like 90s or 24h",
			"hookstart account events --help",
		}
	case v.Workflow == "":
		return s.showEventSettings(s.client.Events(s.ctx, v.Account))
	}
	return s.showEventSettings(s.client.PutEvents(s.ctx, v.Account, api.PutEvents{
		WorkflowID:         v.Workflow,
		Kinds:              v.Kinds,
		SilentAfterSeconds: int64(v.SilentAfter / time.Second),
	}))
}

func (s *session) showEventSettings(e api.Events, err error) error {
	if err != nil {
		return err
	}
	silent := "after twice the longest pause of its last 7 days"
	if e.SilentAfterSeconds > 0 {
		silent = "after " + (time.Duration(e.SilentAfterSeconds) * time.Second).String()
	}
	rows := [][]string{
		{"Workflow", e.WorkflowID},
		{"Kinds", cmp.Or(strings.Join(e.Kinds, ", "), "all")},
	}
	if len(e.Kinds) == 0 || slices.ContainsFunc(e.Kinds, isSenderSilentKind) {
		rows = append(rows, []string{"Silent", silent})
	}
	rows = append(rows, []string{"Since", agoAndExact(e.Since, s.now())})
	return s.printResponse(func() error {
		if err := s.printRows(rows); err != nil || len(e.Conditions) == 0 {
			return err
		}
		table := [][]string{{"GOES ON", "SINCE", "WHERE"}}
		for _, c := range e.Conditions {
			where := c.Queue
			if c.WorkflowID != "" {
				where = c.WorkflowID + ", node " + c.NodeID
			}
			table = append(table, []string{c.Kind, ago(c.Since, s.now()), where})
		}
		return s.printRows(table)
	})
}

// isSenderSilentKind reports whether events of this kind say that a trigger node has stopped
// receiving requests, or that it receives requests again.
func isSenderSilentKind(kind string) bool {
	return strings.TrimSuffix(kind, ".recovered") == "sender.silent"
}
