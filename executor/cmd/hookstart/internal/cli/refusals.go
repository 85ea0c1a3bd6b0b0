package cli

import (
	"cmp"
	"strconv"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/client/apiclient"
)

type workflowRefusalsCmd struct {
	Workflow string  `arg:"" optional:"" type:"id" help:"The workflow's ID. Default: all workflows."`
	Since    timeArg `help:"Refused then or later: like 2026-01-31T15:04:05Z, or like 1h or '2d ago'. Default: 24h; a week is kept." placeholder:"TIME"`
	paging
}

func (*workflowRefusalsCmd) Help() string {
	return `Senders see the same codes in the answers that they got. Of all workflows,
requests to none that exists are counted by code alone.

Examples:

  hookstart workflow refusals
  hookstart workflow refusals demo --since 1h`
}

var refusalTableHeader = []string{"REFUSED", "CODE", "LAST", "BODY", "USER AGENT"}

func (s *session) refusalRow(r api.Refusal) []string {
	return []string{
		strconv.FormatInt(r.Count, 10), r.Code, ago(r.Last.At, s.now()), bodyLengthText(r.Last),
		truncateForDisplay(r.Last.UserAgent, 40),
	}
}

func (v *workflowRefusalsCmd) Run(s *session) error {
	if v.Workflow == "" {
		return v.runForAllWorkflows(s)
	}
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.Refusal], error) {
		return s.client.Refusals(s.ctx, v.Workflow, v.Since.Time, p)
	}, listFormat[api.Refusal]{
		header: refusalTableHeader, formatRow: s.refusalRow,
		emptyListHint: "No refused requests to " + v.Workflow +
			" are counted. Counts arrive within a few seconds.",
	})
}

func (v *workflowRefusalsCmd) runForAllWorkflows(s *session) error {
	return printList(s, v.paging, func(p apiclient.Page) (api.List[api.WorkflowRefusal], error) {
		return s.client.AllRefusals(s.ctx, v.Since.Time, p)
	}, listFormat[api.WorkflowRefusal]{
		header: append([]string{"WORKFLOW"}, refusalTableHeader...),
		formatRow: func(r api.WorkflowRefusal) []string {
			return append([]string{cmp.Or(r.WorkflowID, "–")}, s.refusalRow(r.Refusal)...)
		},
		emptyListHint: "No refused requests are counted. Counts arrive within a few seconds.",
	})
}

// bodyLengthText returns the body length that a refused request declared, as text for a table.
func bodyLengthText(r api.RefusedRequest) string {
	if r.BodyBytes == nil {
		return "–"
	}
	return strconv.FormatInt(*r.BodyBytes, 10) + " B"
}
